//! The backward pass: the products of outputs and their gradients, the gradients of keys and values, those of queries.
//!
//! Each result is summed by one unit in one order: the same numbers come out every time.

use cubecl::prelude::*;

use super::super::device::{BackwardPlaces, HeadsAt, KeyRanges, Problem, RelativeBias, keys_seen, queries_seeing};
use super::tile::{BlockPlace, Tile, Tiles, gradients_of_scores, load};
use super::{SIDE, UNITS};
use crate::cube::dropout::DroppedRows;

/// Writes each query's product of its output and the output's gradient, `[batch, heads, queries]`, and zeros to
/// `query_sums` where they are given.
///
/// Cubes: blocks of [`SIDE`] rows of that.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub fn dot<F: Float, N: Size>(
    output: &[Vector<F, N>],
    gradient: &[Vector<F, N>],
    along: &mut [f32],
    query_sums: ComptimeOption<&mut [Vector<f32, Const<4>>]>,
    output_at: HeadsAt,
    gradient_at: HeadsAt,
    sums: usize,
    queries: usize,
    heads: usize,
    rows: usize,
    d_head: usize,
    #[define(F)] _dtype: ElemType,
) {
    let size = N::value();
    let unit_row = UNIT_POS as usize / SIDE;
    let unit_column = UNIT_POS as usize % SIDE;
    let row = (CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize) * SIDE + unit_row;
    let mut partial = Shared::<[f32]>::new_slice(UNITS);
    let mut sum = 0.0f32;
    if row < rows {
        let query = row % queries;
        let head = row / queries % heads;
        let sample = row / (queries * heads);
        let left = output_at.element(sample, query, head);
        let right = gradient_at.element(sample, query, head);
        let mut column = unit_column * size;
        while column < d_head {
            let a = Vector::<f32, N>::cast_from(output[(left + column) / size]);
            let b = Vector::<f32, N>::cast_from(gradient[(right + column) / size]);
            let product = a * b;
            #[unroll]
            for element in 0..size {
                sum += product.extract(element);
            }
            column += SIDE * size;
        }
    }
    partial[UNIT_POS as usize] = sum;
    sync_cube();
    if row < rows && unit_column == 0 {
        let mut total = 0.0f32;
        #[unroll]
        for other in 0..SIDE {
            total += partial[unit_row * SIDE + other];
        }
        along[row] = total;
    }
    #[comptime]
    if let ComptimeOption::Some(query_sums) = query_sums {
        let cube = CUBE_POS_Y as usize * CUBE_COUNT_X as usize + CUBE_POS_X as usize;
        let turn = CUBE_COUNT_X as usize * CUBE_COUNT_Y as usize * UNITS;
        let mut place = cube * UNITS + UNIT_POS as usize;
        while place < sums {
            query_sums[place] = Vector::new(0.0f32);
            place += turn;
        }
    }
}

/// Writes the gradients of keys and values: a cube goes with its keys over the blocks of queries of each head that
/// reads them.
///
/// Cubes: blocks of keys, their heads, samples.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub fn key_gradients<F: Float, N: Size>(
    query: &[Vector<F, N>],
    key: &[Vector<F, N>],
    value: &[Vector<F, N>],
    gradient: &[Vector<F, N>],
    log_sum_exp: &[f32],
    along: &[f32],
    of_key: &mut [F],
    of_value: &mut [F],
    places: BackwardPlaces,
    problem: Problem,
    ranges: ComptimeOption<KeyRanges>,
    bias: ComptimeOption<RelativeBias>,
    dropped: ComptimeOption<DroppedRows>,
    #[comptime] tile: Tile,
    #[define(F)] _dtype: ElemType,
) {
    let rows = comptime!(tile.keys / SIDE);
    let elements = comptime!(tile.width / SIDE);
    let stride = comptime!(tile.width + 1);
    let weight_stride = comptime!(tile.keys + 1);
    let unit_row = UNIT_POS as usize / SIDE;
    let unit_column = UNIT_POS as usize % SIDE;
    let first_key = CUBE_POS_X as usize * tile.keys;
    let key_head = CUBE_POS_Y as usize;
    let sample = CUBE_POS_Z as usize;

    let mut tiles = Tiles {
        query: Shared::new_slice(comptime!(tile.queries * stride)),
        key: Shared::new_slice(comptime!(tile.keys * stride)),
        value: Shared::new_slice(comptime!(tile.keys * stride)),
        gradient: Shared::new_slice(comptime!(tile.queries * stride)),
    };
    let mut weights = Shared::<[f32]>::new_slice(comptime!(tile.queries * weight_stride));
    let mut of_scores = Shared::<[f32]>::new_slice(comptime!(tile.queries * weight_stride));
    let key_rows = places.key.rows(sample, key_head, problem.keys, problem.d_head);
    let value_rows = places.value.rows(sample, key_head, problem.keys, problem.d_head);
    load::<F, N>(key, &key_rows, first_key, &mut tiles.key, tile.keys, tile.width);
    load::<F, N>(value, &value_rows, first_key, &mut tiles.value, tile.keys, tile.width);

    let mut sums_key = Array::<f32>::new(comptime!(rows * elements));
    let mut sums_value = Array::<f32>::new(comptime!(rows * elements));
    #[unroll]
    for index in 0..comptime!(rows * elements) {
        sums_key[index] = 0.0f32;
        sums_value[index] = 0.0f32;
    }

    let end = first_key + tile.keys;
    let seeing = queries_seeing(&ranges, &problem, sample, first_key, end, tile.queries);
    for member in 0..problem.group {
        let head = key_head * problem.group + member;
        let heads = CUBE_COUNT_Y as usize * problem.group;
        let query_rows = places.query.rows(sample, head, problem.queries, problem.d_head);
        let gradient_rows = places.gradient.rows(sample, head, problem.queries, problem.d_head);
        let statistics = (sample * heads + head) * problem.queries;
        let mut first_query = seeing.from;
        while first_query < seeing.to {
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
            sync_cube();
            let block = BlockPlace {
                sample,
                head,
                query: first_query,
                key: first_key,
                statistics,
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
            for index in 0..tile.queries {
                #[unroll]
                for row in 0..rows {
                    let place = index * weight_stride + unit_row + row * SIDE;
                    let weight = weights[place];
                    let of_score = of_scores[place];
                    #[unroll]
                    for element in 0..elements {
                        let place = index * stride + unit_column + element * SIDE;
                        sums_key[row * elements + element] += of_score * tiles.query[place];
                        sums_value[row * elements + element] += weight * tiles.gradient[place];
                    }
                }
            }
            first_query += tile.queries;
        }
    }

    #[unroll]
    for row in 0..rows {
        let key = first_key + unit_row + row * SIDE;
        if key < problem.keys {
            let key_start = places.of_key.element(sample, key, key_head);
            let value_start = places.of_value.element(sample, key, key_head);
            #[unroll]
            for element in 0..elements {
                let place = unit_column + element * SIDE;
                if place < problem.d_head {
                    of_key[key_start + place] = F::cast_from(sums_key[row * elements + element]);
                    of_value[value_start + place] = F::cast_from(sums_value[row * elements + element]);
                }
            }
        }
    }
}

/// Writes the gradient of the queries: a cube goes with its queries over blocks of keys.
///
/// Cubes: blocks of queries, heads, samples.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub fn query_gradients<F: Float, N: Size>(
    query: &[Vector<F, N>],
    key: &[Vector<F, N>],
    value: &[Vector<F, N>],
    gradient: &[Vector<F, N>],
    log_sum_exp: &[f32],
    along: &[f32],
    of_query: &mut [F],
    places: BackwardPlaces,
    problem: Problem,
    ranges: ComptimeOption<KeyRanges>,
    bias: ComptimeOption<RelativeBias>,
    dropped: ComptimeOption<DroppedRows>,
    #[comptime] tile: Tile,
    #[define(F)] _dtype: ElemType,
) {
    let rows = comptime!(tile.queries / SIDE);
    let elements = comptime!(tile.width / SIDE);
    let stride = comptime!(tile.width + 1);
    let weight_stride = comptime!(tile.keys + 1);
    let unit_row = UNIT_POS as usize / SIDE;
    let unit_column = UNIT_POS as usize % SIDE;
    let first_query = CUBE_POS_X as usize * tile.queries;
    let head = CUBE_POS_Y as usize;
    let sample = CUBE_POS_Z as usize;
    let key_head = head / problem.group;

    let mut tiles = Tiles {
        query: Shared::new_slice(comptime!(tile.queries * stride)),
        key: Shared::new_slice(comptime!(tile.keys * stride)),
        value: Shared::new_slice(comptime!(tile.keys * stride)),
        gradient: Shared::new_slice(comptime!(tile.queries * stride)),
    };
    let mut weights = Shared::<[f32]>::new_slice(comptime!(tile.queries * weight_stride));
    let mut of_scores = Shared::<[f32]>::new_slice(comptime!(tile.queries * weight_stride));
    let query_rows = places.query.rows(sample, head, problem.queries, problem.d_head);
    let key_rows = places.key.rows(sample, key_head, problem.keys, problem.d_head);
    let value_rows = places.value.rows(sample, key_head, problem.keys, problem.d_head);
    let gradient_rows = places.gradient.rows(sample, head, problem.queries, problem.d_head);
    let statistics = (sample * CUBE_COUNT_Y as usize + head) * problem.queries;
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

    let mut sums = Array::<f32>::new(comptime!(rows * elements));
    #[unroll]
    for index in 0..comptime!(rows * elements) {
        sums[index] = 0.0f32;
    }

    let seen = keys_seen(&ranges, &problem, sample, first_query, first_query + tile.queries);
    let mut first_key = seen.from;
    while first_key < seen.to {
        // The block before has been read.
        sync_cube();
        load::<F, N>(key, &key_rows, first_key, &mut tiles.key, tile.keys, tile.width);
        load::<F, N>(value, &value_rows, first_key, &mut tiles.value, tile.keys, tile.width);
        sync_cube();
        let block = BlockPlace {
            sample,
            head,
            query: first_query,
            key: first_key,
            statistics,
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
        for index in 0..tile.keys {
            #[unroll]
            for row in 0..rows {
                let of_score = of_scores[(unit_row + row * SIDE) * weight_stride + index];
                #[unroll]
                for element in 0..elements {
                    let place = index * stride + unit_column + element * SIDE;
                    sums[row * elements + element] += of_score * tiles.key[place];
                }
            }
        }
        first_key += tile.keys;
    }

    #[unroll]
    for row in 0..rows {
        let query = first_query + unit_row + row * SIDE;
        if query < problem.queries {
            let start = places.of_query.element(sample, query, head);
            #[unroll]
            for element in 0..elements {
                let place = unit_column + element * SIDE;
                if place < problem.d_head {
                    of_query[start + place] = F::cast_from(sums[row * elements + element]);
                }
            }
        }
    }
}
