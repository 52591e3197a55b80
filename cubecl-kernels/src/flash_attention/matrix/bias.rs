//! The relative bias of a plane's share of scores, and its gradient.
//!
//! Tiles of eight rows by eight columns on a diagonal have the same bias at the same places.

use cubecl::prelude::*;

use super::super::device::{Problem, RelativeBias};
use super::tile::{COLUMNS, lane};

/// Adds the bias to scores that are not yet scaled, whose first ones are those of `query` and `key`; to those of
/// queries and keys that there are not, any.
#[cube]
#[allow(clippy::assign_op_pattern, clippy::too_many_arguments)]
pub fn add_bias<P: Size>(
    scores: &mut Array<Vector<f32, P>>,
    bias: &ComptimeOption<RelativeBias>,
    problem: &Problem,
    head: usize,
    query: usize,
    key: usize,
    #[comptime] row_tiles: usize,
    #[comptime] columns: usize,
) {
    let bias = bias.as_ref().unwrap();
    let rows = comptime!(row_tiles * 2);
    let distances = problem.queries + problem.keys - 1;
    let to_scores = 1.0f32 / problem.scale;
    let first = first_distance(problem, query, key, rows);
    #[unroll]
    for diagonal in 0..comptime!(columns + rows - 1) {
        let mut pair = Vector::<f32, P>::empty();
        #[unroll]
        for element in 0..2usize {
            let distance = first + comptime!(diagonal * COLUMNS) + element;
            let place = head * distances + select(distance < distances, distance, 0usize);
            pair.insert(element, bias.table[place] * to_scores);
        }
        #[unroll]
        for row in 0..rows {
            if comptime!(diagonal + row + 1 >= rows && diagonal + row + 1 - rows < columns) {
                let column = comptime!(diagonal + row + 1 - rows);
                let index = comptime!((row / 2 * columns + column) * 2 + row % 2);
                scores[index] = scores[index] + pair;
            }
        }
    }
}

/// Adds the gradients of scores to that of the bias, each diagonal's first among themselves. The order of what cubes
/// add is not fixed.
#[cube]
#[allow(clippy::assign_op_pattern, clippy::too_many_arguments)]
pub fn add_to_bias<P: Size>(
    of_scores: &Array<Vector<f32, P>>,
    of_bias: &[Atomic<f32>],
    problem: &Problem,
    head: usize,
    query: usize,
    key: usize,
    #[comptime] row_tiles: usize,
    #[comptime] columns: usize,
) {
    let rows = comptime!(row_tiles * 2);
    let distances = problem.queries + problem.keys - 1;
    let first = first_distance(problem, query, key, rows);
    #[unroll]
    for diagonal in 0..comptime!(columns + rows - 1) {
        let mut pair = Vector::<f32, P>::new(0.0f32);
        #[unroll]
        for row in 0..rows {
            if comptime!(diagonal + row + 1 >= rows && diagonal + row + 1 - rows < columns) {
                let column = comptime!(diagonal + row + 1 - rows);
                pair = pair + of_scores[comptime!((row / 2 * columns + column) * 2 + row % 2)];
            }
        }
        #[unroll]
        for element in 0..2usize {
            let distance = first + comptime!(diagonal * COLUMNS) + element;
            // Of queries and keys that there are not, there is nothing to add.
            if distance < distances {
                of_bias[head * distances + distance].fetch_add(pair.extract(element));
            }
        }
    }
}

/// The number of the distance at this unit's place in the last row's first tile; of queries far beyond the last one a
/// large number.
#[cube]
fn first_distance(problem: &Problem, query: usize, key: usize, #[comptime] rows: usize) -> usize {
    let lane = lane();
    let last = query + lane / 4 + comptime!((rows - 1) * COLUMNS);
    key + lane % 4 * 2 + problem.queries - 1 - last
}
