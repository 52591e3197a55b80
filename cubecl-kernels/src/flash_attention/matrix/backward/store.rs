//! The gradients on their way from accumulators to memory.

use cubecl::prelude::*;

use super::super::super::device::{HeadRows, HeadsAt};
use super::super::tile::{COLUMNS, LOAD, PLANE, SIDE, lane};
use super::split::Share;

/// Writes a plane's accumulators, scaled, to rows from `row` and elements from `element` on.
#[cube]
pub fn store_rows<F: Float, O: Size, P: Size>(
    sums: &Array<Vector<f32, P>>,
    scale: f32,
    to: &mut [Vector<F, O>],
    rows: &HeadRows,
    row: usize,
    element: usize,
    #[comptime] share: Share,
) {
    let first = element + lane() % 4 * 2;
    #[unroll]
    for half in 0..comptime!(share.rows * 2) {
        let row = row + half * 8 + lane() / 4;
        if row < rows.count {
            let start = (rows.start + row * rows.stride + first) / 2;
            #[unroll]
            for column in 0..share.columns {
                if first + column * COLUMNS < rows.d_head {
                    let pair = sums[(half / 2 * share.columns + column) * 2 + half % 2] * Vector::new(scale);
                    to[start + comptime!(column * COLUMNS / 2)] = Vector::cast_from(pair);
                }
            }
        }
    }
}

/// Writes the gradients of queries from their sums, whose order
/// [`KeysTile::query_rows`](super::split::KeysTile::query_rows) describes.
///
/// Units: eight elements of each query of each head.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub fn finish_queries<F: Float, N: Size>(
    sums: &[Vector<f32, Const<4>>],
    of_query: &mut [Vector<F, N>],
    place: HeadsAt,
    queries: usize,
    heads: usize,
    head_rows: usize,
    d_head: usize,
    units: usize,
    scale: f32,
    #[comptime] width: usize,
    #[define(F)] _dtype: ElemType,
) {
    let vectors = d_head / LOAD;
    if ABSOLUTE_POS < units {
        let vector = ABSOLUTE_POS % vectors;
        let row = ABSOLUTE_POS / vectors;
        let query = row % queries;
        let head = row / queries % heads;
        let sample = row / (queries * heads);
        // Of the tile, then of its half, then of the four lanes that hold a row; their second numbers are 32 later.
        let tile = ((sample * heads + head) * head_rows + query / SIDE * SIDE) * width + vector * comptime!(4 * PLANE);
        let at = (tile + query % SIDE / 8 * comptime!(2 * PLANE) + query % 8 * 4) / 4;
        let first = sums[at];
        let second = sums[at + comptime!(PLANE / 4)];
        let mut elements = Vector::<F, N>::empty();
        #[unroll]
        for lane in 0..4usize {
            elements.insert(lane * 2, F::cast_from(first.extract(lane) * scale));
            elements.insert(lane * 2 + 1, F::cast_from(second.extract(lane) * scale));
        }
        let to = place.rows(sample, head, queries, d_head);
        of_query[(to.start + query * to.stride) / LOAD + vector] = elements;
    }
}
