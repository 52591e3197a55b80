//! The gradient of the relative bias: a cube goes along a band of diagonals of the scores, of all samples.
//!
//! Each result is summed by one unit in one order: the same numbers come out every time.

use cubecl::prelude::*;

use super::super::device::{BackwardPlaces, KEYS_ALIGNED, KeyRanges, Problem, RelativeBias, keys_seen};
use super::UNITS;
use super::tile::{BlockPlace, Tile, Tiles, gradients_of_scores, load};
use crate::cube::dropout::DroppedRows;

/// The diagonals that each unit sums.
const EACH: usize = 2;
/// The diagonals of a cube's band.
pub const BAND: usize = EACH * UNITS;

/// Writes the gradient of the bias, `[heads, queries + keys - 1]`.
///
/// Cubes: bands of [`BAND`] distances between keys and queries, heads.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub fn bias_gradient<F: Float, N: Size>(
    query: &[Vector<F, N>],
    key: &[Vector<F, N>],
    value: &[Vector<F, N>],
    gradient: &[Vector<F, N>],
    log_sum_exp: &[f32],
    along: &[f32],
    of_bias: &mut [f32],
    places: BackwardPlaces,
    problem: Problem,
    ranges: ComptimeOption<KeyRanges>,
    bias: ComptimeOption<RelativeBias>,
    dropped: ComptimeOption<DroppedRows>,
    samples: usize,
    #[comptime] tile: Tile,
    #[define(F)] _dtype: ElemType,
) {
    let stride = comptime!(tile.width + 1);
    let weight_stride = comptime!(tile.keys + 1);
    let head = CUBE_POS_Y as usize;
    let heads = CUBE_COUNT_Y as usize;
    let key_head = head / problem.group;
    let distances = problem.queries + problem.keys - 1;
    // Of a key and a query there is the distance `key + last - query`.
    let last = problem.queries - 1;
    let first_distance = CUBE_POS_X as usize * comptime!(BAND);

    let mut tiles = Tiles {
        query: Shared::new_slice(comptime!(tile.queries * stride)),
        key: Shared::new_slice(comptime!(tile.keys * stride)),
        value: Shared::new_slice(comptime!(tile.keys * stride)),
        gradient: Shared::new_slice(comptime!(tile.queries * stride)),
    };
    let mut weights = Shared::<[f32]>::new_slice(comptime!(tile.queries * weight_stride));
    let mut of_scores = Shared::<[f32]>::new_slice(comptime!(tile.queries * weight_stride));
    let mut sums = Array::<f32>::new(comptime!(EACH));
    #[unroll]
    for index in 0..comptime!(EACH) {
        sums[index] = 0.0f32;
    }

    // The queries that have a key at one of the distances.
    let highest = first_distance + comptime!(BAND - 1);
    let from = select(highest < last, last - highest, 0usize) / tile.queries * tile.queries;
    let end = distances - select(first_distance < distances, first_distance, distances);
    let to = select(end < problem.queries, end, problem.queries);
    for sample in 0..samples {
        let query_rows = places.query.rows(sample, head, problem.queries, problem.d_head);
        let key_rows = places.key.rows(sample, key_head, problem.keys, problem.d_head);
        let value_rows = places.value.rows(sample, key_head, problem.keys, problem.d_head);
        let gradient_rows = places.gradient.rows(sample, head, problem.queries, problem.d_head);
        let mut first_query = from;
        while first_query < to {
            let end_query = first_query + tile.queries;
            let seen = keys_seen(&ranges, &problem, sample, first_query, end_query);
            // The keys at these distances from these queries: from the last distance's first query, to the first one's
            // last.
            let lowest = select(
                first_distance + first_query > last,
                first_distance + first_query - last,
                0usize,
            );
            let lowest = lowest / comptime!(KEYS_ALIGNED) * comptime!(KEYS_ALIGNED);
            let beyond = highest + end_query - select(highest + end_query > last, last, highest + end_query);
            let end_key = select(beyond < seen.to, beyond, seen.to);
            let mut first_key = select(lowest > seen.from, lowest, seen.from);
            if first_key < end_key {
                // The block before has been read.
                sync_cube();
                load::<F, N>(
                    query,
                    &query_rows,
                    first_query,
                    &mut tiles.query,
                    tile.queries,
                    tile.width,
                );
                load::<F, N>(
                    gradient,
                    &gradient_rows,
                    first_query,
                    &mut tiles.gradient,
                    tile.queries,
                    tile.width,
                );
            }
            while first_key < end_key {
                sync_cube();
                load::<F, N>(key, &key_rows, first_key, &mut tiles.key, tile.keys, tile.width);
                load::<F, N>(value, &value_rows, first_key, &mut tiles.value, tile.keys, tile.width);
                sync_cube();
                let block = BlockPlace {
                    sample,
                    head,
                    query: first_query,
                    key: first_key,
                    statistics: (sample * heads + head) * problem.queries,
                };
                gradients_of_scores(
                    &tiles,
                    &mut weights,
                    &mut of_scores,
                    log_sum_exp,
                    along,
                    &block,
                    &problem,
                    &ranges,
                    &bias,
                    &dropped,
                    tile,
                );
                sync_cube();
                #[unroll]
                for index in 0..comptime!(EACH) {
                    let distance = first_distance + UNIT_POS as usize + index * UNITS;
                    // The first query's key in the block; before its first one it is a large number.
                    let first = distance + first_query - last - first_key;
                    for row in 0..tile.queries {
                        let column = first + row;
                        if column < tile.keys {
                            sums[index] += of_scores[row * weight_stride + column];
                        }
                    }
                }
                first_key += tile.keys;
            }
            first_query = end_query;
        }
    }
    #[unroll]
    for index in 0..comptime!(EACH) {
        let distance = first_distance + UNIT_POS as usize + index * UNITS;
        if distance < distances {
            of_bias[head * distances + distance] = sums[index] / problem.scale;
        }
    }
}
