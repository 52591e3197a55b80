//! The relative bias of a plane's share of scores.

use cubecl::prelude::*;

use super::super::device::{Problem, RelativeBias};
use super::tile::{COLUMNS, lane};

/// Adds the bias to scores that are not yet scaled, whose first ones are those of `query` and `key`; to those of queries
/// and keys that there are not, any.
///
/// What tiles on a diagonal add is the same: it is loaded once.
#[cube]
#[allow(clippy::too_many_arguments)]
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
    let lane = lane();
    // Tiles of eight rows and eight columns.
    let rows = comptime!(row_tiles * 2);
    let distances = problem.queries + problem.keys - 1;
    let to_scores = 1.0f32 / problem.scale;
    // Of this unit's place in the last row's first tile; of queries far beyond the last one a large number.
    let first = key + lane % 4 * 2 + problem.queries - 1 - (query + lane / 4 + comptime!((rows - 1) * COLUMNS));
    #[unroll]
    for diagonal in 0..comptime!(columns + rows - 1) {
        let mut pair = Vector::<f32, P>::empty();
        #[unroll]
        for element in 0..2usize {
            let distance = first + comptime!(diagonal * COLUMNS) + element;
            let place = head * distances + select(distance < distances, distance, 0usize);
            pair[element] = bias.table[place] * to_scores;
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
