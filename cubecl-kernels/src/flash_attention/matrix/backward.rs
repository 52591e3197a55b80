//! The backward pass: the gradients of keys and values, those of queries.
//!
//! One kernel does both. A plane keeps 16 rows, keys or queries, and goes over blocks of the others; the accumulators
//! of the weights and of their gradients, rows by columns, become left factors of the products with the block's rows.
//! Where keys stay, the weights are so computed transposed. Each result is summed by one plane in one order.

use cubecl::ir::FastMath;
use cubecl::prelude::barrier::Barrier;
use cubecl::prelude::*;

use super::super::device::{HeadRows, Problem, fragment_factors, transposed_fragment_factors};
use super::tile::{COLUMNS, LOAD, PLANE, SIDE, Tile, copy, left, multiply, right_of_columns, right_of_rows};
use super::tile::{LOG2_E, copy_numbers, exp2, from_the_end, lane};
use crate::cube::dropout::DroppedRows;

/// Writes the gradient of what stays: of keys and values, from `kept` the keys and `kept_other` the values, or of
/// queries, from `kept` the queries and `kept_other` the output's gradient; `passing` are the others of each pair.
///
/// Cubes: blocks of what stays times the parts of their heads, heads of what stays, samples.
#[cube(
    launch_unchecked,
    address_type = "dynamic",
    fast_math = FastMath::ReducedPrecision | FastMath::NotNaN | FastMath::NotInf
)]
#[allow(clippy::too_many_arguments)]
pub fn gradients_mma<F: Float, N: Size, O: Size>(
    kept: &Tensor<Vector<F, N>>,
    kept_other: &Tensor<Vector<F, N>>,
    passing: &Tensor<Vector<F, N>>,
    passing_other: &Tensor<Vector<F, N>>,
    log_sum_exp: &Tensor<f32>,
    along: &Tensor<f32>,
    of_kept: &mut Tensor<Vector<F, O>>,
    of_other: &mut Tensor<Vector<F, O>>,
    problem: Problem,
    dropped: ComptimeOption<DroppedRows>,
    #[comptime] tile: Tile,
    #[comptime] keeps_keys: bool,
    #[define(F)] _dtype: StorageType,
) {
    let def = cmma::MmaDefinition::<F, F, f32>::new(16usize, 8usize, 16usize);
    let size!(P) = def.vector_size(cmma::MatrixIdent::Accumulator);
    let lane = lane() as u32;
    let plane_row = UNIT_POS as usize / PLANE * SIDE;
    let score_tiles = comptime!(tile.passing / COLUMNS);
    let parts = comptime!(tile.width.div_ceil(tile.part()));
    let element_tiles = comptime!(tile.part() / COLUMNS);
    let stride = comptime!(tile.vectors());
    let staying = comptime!(tile.staying());
    let mut kept_block = CUBE_POS_X / parts as u32;
    if comptime!(!keeps_keys) {
        // The last queries see the most keys under causal attention: they go first, as the first keys do.
        kept_block = from_the_end(kept_block, CUBE_COUNT_X / parts as u32);
    }
    let first_kept = kept_block as usize * staying;
    let first_vector = CUBE_POS_X as usize % parts * comptime!(tile.part() / LOAD);
    let kept_head = CUBE_POS_Y as usize;
    let sample = CUBE_POS_Z as usize;

    let barrier = Barrier::shared(CUBE_DIM, UNIT_POS == 0);
    let mut kept_tile = SharedMemory::<Vector<F, N>>::new_aligned(comptime!(staying * stride), 16usize);
    let mut kept_other_tile = SharedMemory::<Vector<F, N>>::new_aligned(comptime!(staying * stride), 16usize);
    let block = comptime!(tile.passing * stride);
    let mut passing_tile = SharedMemory::<Vector<F, N>>::new_aligned(comptime!(2 * block), 16usize);
    let mut passing_other_tile = SharedMemory::<Vector<F, N>>::new_aligned(comptime!(2 * block), 16usize);
    // Of the rows that pass, where they are queries; else hardly any.
    let numbers = comptime!(if keeps_keys { 2 * tile.passing } else { 4 });
    let mut passing_statistics = SharedMemory::<f32>::new_aligned(numbers, 16usize);
    let mut passing_products = SharedMemory::<f32>::new_aligned(numbers, 16usize);

    let kept_start = sample * kept.stride(0) + kept_head * kept.stride(2);
    let kept_other_start = sample * kept_other.stride(0) + kept_head * kept_other.stride(2);
    let passing_start = sample * passing.stride(0);
    let passing_other_start = sample * passing_other.stride(0);
    let d_head = problem.d_head;
    let is_causal = problem.is_causal != 0;
    let mut kept_start = kept_start;
    let mut kept_other_start = kept_other_start;
    let mut passing_start = passing_start;
    let mut passing_other_start = passing_other_start;
    // What stays and what passes, the heads that pass by, and where they begin.
    let mut kept_rows = problem.queries;
    let mut rows = problem.keys;
    let mut first_head = kept_head / problem.group;
    let mut heads = 1usize;
    let mut begin = 0usize;
    let seen = first_kept + staying;
    let mut end = select(is_causal && seen < problem.keys, seen, problem.keys);
    let mut query_heads = CUBE_COUNT_Y as usize;
    if comptime!(keeps_keys) {
        kept_start += problem.key_start;
        kept_other_start += problem.value_start;
        passing_start += problem.query_start;
        kept_rows = problem.keys;
        rows = problem.queries;
        first_head = kept_head * problem.group;
        heads = problem.group;
        // Queries before the first key see none of the keys.
        begin = select(is_causal, first_kept / tile.passing * tile.passing, 0usize);
        end = problem.queries;
        query_heads *= problem.group;
    } else {
        kept_start += problem.query_start;
        passing_start += problem.key_start;
        passing_other_start += problem.value_start;
    }
    let kept_stride = kept.stride(1);
    let kept_other_stride = kept_other.stride(1);
    let passing_stride = passing.stride(1);
    let passing_other_stride = passing_other.stride(1);
    let passing_head = passing.stride(2);
    let passing_other_head = passing_other.stride(2);

    let mut sums = Array::<Vector<f32, P>>::new(comptime!(element_tiles * 2));
    let mut sums_other = Array::<Vector<f32, P>>::new(comptime!(if keeps_keys { element_tiles * 2 } else { 2 }));
    #[unroll]
    for index in 0..comptime!(element_tiles * 2) {
        sums[index] = Vector::new(0.0f32);
        if comptime!(keeps_keys) {
            sums_other[index] = Vector::new(0.0f32);
        }
    }

    copy::<F, N>(
        &kept.to_slice(),
        &HeadRows {
            start: kept_start,
            stride: kept_stride,
            count: kept_rows,
            d_head,
        },
        first_kept,
        &mut kept_tile,
        0usize,
        staying,
        tile,
    );
    copy::<F, N>(
        &kept_other.to_slice(),
        &HeadRows {
            start: kept_other_start,
            stride: kept_other_stride,
            count: kept_rows,
            d_head,
        },
        first_kept,
        &mut kept_other_tile,
        0usize,
        staying,
        tile,
    );
    let start = passing_start + first_head * passing_head;
    let other_start = passing_other_start + first_head * passing_other_head;
    copy::<F, N>(
        &passing.to_slice(),
        &HeadRows {
            start: start,
            stride: passing_stride,
            count: rows,
            d_head,
        },
        begin,
        &mut passing_tile,
        0usize,
        tile.passing,
        tile,
    );
    copy::<F, N>(
        &passing_other.to_slice(),
        &HeadRows {
            start: other_start,
            stride: passing_other_stride,
            count: rows,
            d_head,
        },
        begin,
        &mut passing_other_tile,
        0usize,
        tile.passing,
        tile,
    );
    let numbers_start = (sample * query_heads + first_head) * problem.queries;
    if comptime!(keeps_keys) {
        copy_numbers(
            &log_sum_exp.to_slice(),
            numbers_start,
            rows,
            begin,
            &mut passing_statistics,
            0usize,
            tile.passing,
        );
        copy_numbers(
            &along.to_slice(),
            numbers_start,
            rows,
            begin,
            &mut passing_products,
            0usize,
            tile.passing,
        );
    }
    barrier.commit_copy_async();
    barrier.arrive();
    let sharpness = problem.scale * LOG2_E;

    // Of the rows that stay, where they are queries: `lane / 4` and eight below.
    let mut statistics = Array::<f32>::new(2usize);
    let mut products = Array::<f32>::new(2usize);
    if comptime!(!keeps_keys) {
        #[unroll]
        for half in 0..2usize {
            let (i, _) = def.position_of_nth(lane, (half * 2) as u32, cmma::MatrixIdent::Accumulator);
            let query = first_kept + plane_row + i as usize;
            let row = (sample * query_heads + kept_head) * problem.queries + query;
            let is_there = query < problem.queries;
            statistics[half] = statistic(number(log_sum_exp, row, is_there), problem.nothing);
            products[half] = number(along, row, is_there);
        }
    }

    let mut member = 0usize;
    let mut first = begin;
    let mut stage = 0u32;
    while member < heads && first < end {
        barrier.wait_parity(stage);
        // All have done with the other stage.
        sync_cube();
        let at = stage as usize * block;
        let mut next = first + tile.passing;
        let mut next_member = member;
        if next >= end {
            next = begin;
            next_member = member + 1;
        }
        if next_member < heads {
            let other = (1 - stage) as usize * block;
            let start = passing_start + (first_head + next_member) * passing_head;
            let other_start = passing_other_start + (first_head + next_member) * passing_other_head;
            copy::<F, N>(
                &passing.to_slice(),
                &HeadRows {
                    start: start,
                    stride: passing_stride,
                    count: rows,
                    d_head,
                },
                next,
                &mut passing_tile,
                other,
                tile.passing,
                tile,
            );
            copy::<F, N>(
                &passing_other.to_slice(),
                &HeadRows {
                    start: other_start,
                    stride: passing_other_stride,
                    count: rows,
                    d_head,
                },
                next,
                &mut passing_other_tile,
                other,
                tile.passing,
                tile,
            );
            if comptime!(keeps_keys) {
                let start = numbers_start + next_member * problem.queries;
                let other = (1 - stage) as usize * tile.passing;
                copy_numbers(
                    &log_sum_exp.to_slice(),
                    start,
                    rows,
                    next,
                    &mut passing_statistics,
                    other,
                    tile.passing,
                );
                copy_numbers(
                    &along.to_slice(),
                    start,
                    rows,
                    next,
                    &mut passing_products,
                    other,
                    tile.passing,
                );
            }
            barrier.commit_copy_async();
            barrier.arrive();
        }

        let mut scores = Array::<Vector<f32, P>>::new(comptime!(score_tiles * 2));
        let mut of_weights = Array::<Vector<f32, P>>::new(comptime!(score_tiles * 2));
        #[unroll]
        for index in 0..comptime!(score_tiles * 2) {
            scores[index] = Vector::new(0.0f32);
            of_weights[index] = Vector::new(0.0f32);
        }
        #[unroll]
        for step in 0..comptime!(tile.width / SIDE) {
            let vector = step * comptime!(SIDE / LOAD);
            let factor = left::<F, N, P>(&kept_tile, plane_row, vector, tile);
            let factor_other = left::<F, N, P>(&kept_other_tile, plane_row, vector, tile);
            #[unroll]
            for pair in 0..comptime!(score_tiles / 2) {
                let columns = right_of_rows::<F, N, P>(&passing_tile, at, pair * SIDE, vector, tile);
                let columns_other = right_of_rows::<F, N, P>(&passing_other_tile, at, pair * SIDE, vector, tile);
                #[unroll]
                for which in 0..2usize {
                    multiply::<F, P>(&factor, &columns, which, &mut scores, pair * 2 + which);
                    multiply::<F, P>(&factor_other, &columns_other, which, &mut of_weights, pair * 2 + which);
                }
            }
        }

        let mut head = kept_head;
        // Whether this plane's part of the block has pairs of which the query does not see the key.
        let last = first + tile.passing;
        let mut is_edge = last > rows;
        if comptime!(keeps_keys) {
            head = first_head + member;
            is_edge = is_edge || (is_causal && first + 1 < first_kept + plane_row + SIDE);
        } else {
            is_edge = is_edge || (is_causal && last > first_kept + plane_row + 1);
        }
        #[unroll]
        for column in 0..score_tiles {
            let first_column = first + column * COLUMNS;
            if comptime!(keeps_keys) {
                #[unroll]
                for element in 0..2usize {
                    let (_, j) = def.position_of_nth(lane, element as u32, cmma::MatrixIdent::Accumulator);
                    let place = stage as usize * tile.passing + column * COLUMNS + j as usize;
                    statistics[element] = statistic(passing_statistics[place], problem.nothing);
                    products[element] = passing_products[place];
                }
            }
            let mut kept_factors = Array::<f32>::new(4usize);
            if comptime!(tile.has_dropout) {
                if comptime!(keeps_keys) {
                    let key = first_kept + plane_row;
                    let factors = transposed_fragment_factors(&dropped, &problem, first_column, head, key);
                    #[unroll]
                    for index in 0..4usize {
                        kept_factors[index] = factors[index];
                    }
                } else {
                    let query = first_kept + plane_row;
                    let factors = fragment_factors(&dropped, &problem, query, head, first_column);
                    #[unroll]
                    for index in 0..4usize {
                        kept_factors[index] = factors[index];
                    }
                }
            }
            #[unroll]
            for half in 0..2usize {
                let index = column * 2 + half;
                let mut weights = scores[index];
                let mut gradients = of_weights[index];
                let mut shifts = Vector::<f32, P>::new(statistics[half]);
                let mut along_rows = Vector::<f32, P>::new(products[half]);
                if comptime!(keeps_keys) {
                    #[unroll]
                    for element in 0..2usize {
                        shifts[element] = statistics[element];
                        along_rows[element] = products[element];
                    }
                }
                let weight = exp2(weights * Vector::new(sharpness) - shifts);
                weights = weight;
                if comptime!(tile.has_dropout) {
                    #[unroll]
                    for element in 0..2usize {
                        gradients[element] = gradients[element] * kept_factors[half * 2 + element];
                        weights[element] = weights[element] * kept_factors[half * 2 + element];
                    }
                }
                gradients = weight * (gradients - along_rows);
                if is_edge {
                    #[unroll]
                    for element in 0..2usize {
                        let nth = (half * 2 + element) as u32;
                        let (i, j) = def.position_of_nth(lane, nth, cmma::MatrixIdent::Accumulator);
                        let row = first_kept + plane_row + i as usize;
                        let column = first_column + j as usize;
                        let mut is_hidden = column >= rows;
                        if comptime!(keeps_keys) {
                            is_hidden = is_hidden || (is_causal && row > column);
                        } else {
                            is_hidden = is_hidden || (is_causal && column > row);
                        }
                        weights[element] = select(is_hidden, 0.0f32, weights[element]);
                        gradients[element] = select(is_hidden, 0.0f32, gradients[element]);
                    }
                }
                scores[index] = weights;
                of_weights[index] = gradients;
            }
        }

        #[unroll]
        for step in 0..comptime!(tile.passing / SIDE) {
            // The accumulators of two adjacent tiles are the left factor of 16 columns.
            let mut weights = Array::<Vector<F, P>>::new(4usize);
            let mut of_scores = Array::<Vector<F, P>>::new(4usize);
            #[unroll]
            for index in 0..4usize {
                weights[index] = Vector::cast_from(scores[step * 4 + index]);
                of_scores[index] = Vector::cast_from(of_weights[step * 4 + index]);
            }
            #[unroll]
            for pair in 0..comptime!(element_tiles / 2) {
                let vector = first_vector + pair * 2;
                let columns = right_of_columns::<F, N, P>(&passing_tile, at, step * SIDE, vector, tile);
                #[unroll]
                for which in 0..2usize {
                    multiply::<F, P>(&of_scores, &columns, which, &mut sums, pair * 2 + which);
                }
                if comptime!(keeps_keys) {
                    let columns = right_of_columns::<F, N, P>(&passing_other_tile, at, step * SIDE, vector, tile);
                    #[unroll]
                    for which in 0..2usize {
                        multiply::<F, P>(&weights, &columns, which, &mut sums_other, pair * 2 + which);
                    }
                }
            }
        }
        first = next;
        member = next_member;
        stage = 1 - stage;
    }

    let mut start = sample * of_kept.stride(0) + kept_head * of_kept.stride(2);
    let mut other_start = sample * of_other.stride(0) + kept_head * of_other.stride(2);
    if comptime!(keeps_keys) {
        start += problem.of_key_start;
        other_start += problem.of_value_start;
    } else {
        start += problem.of_query_start;
    }
    #[unroll]
    for half in 0..2usize {
        let (i, j) = def.position_of_nth(lane, (half * 2) as u32, cmma::MatrixIdent::Accumulator);
        let row = first_kept + plane_row + i as usize;
        if row < kept_rows {
            #[unroll]
            for column in 0..element_tiles {
                let element = first_vector * LOAD + column * COLUMNS + j as usize;
                if element < d_head {
                    let pair = sums[column * 2 + half] * Vector::new(problem.scale);
                    of_kept[(start + row * of_kept.stride(1) + element) / 2] = Vector::cast_from(pair);
                    if comptime!(keeps_keys) {
                        let pair = sums_other[column * 2 + half];
                        of_other[(other_start + row * of_other.stride(1) + element) / 2] = Vector::cast_from(pair);
                    }
                }
            }
        }
    }
}

/// What a query's `log Σ exp` is among exponents of 2; where it sees nothing, what makes its weights 0.
#[cube]
fn statistic(log_sum_exp: f32, nothing: f32) -> f32 {
    let value = select(log_sum_exp == nothing, 0.0f32 - nothing, log_sum_exp);
    value * LOG2_E
}

/// A number, 0 where there is none.
#[cube]
fn number(numbers: &Tensor<f32>, row: usize, is_there: bool) -> f32 {
    let mut value = 0.0f32;
    if is_there {
        value = numbers[row];
    }
    value
}
