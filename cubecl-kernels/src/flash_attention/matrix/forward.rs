//! The forward pass: each plane goes with its queries over blocks of keys.

use cubecl::ir::FastMath;
use cubecl::prelude::barrier::Barrier;
use cubecl::prelude::*;

use super::super::device::{Problem, fragment_factors};
use super::tile::{COLUMNS, LOAD, PLANE, SIDE, Tile, copy, left, multiply, right_of_columns, right_of_rows};
use super::tile::{LOG2_E, exp2, from_the_end, row_maximum, row_sum};
use crate::cube::dropout::DroppedRows;

/// Writes the output, `[batch, queries, heads, d_head]`, and `log Σ exp` of the scores, `[batch, heads, queries]`.
///
/// Cubes: blocks of queries, heads, samples.
#[cube(
    launch_unchecked,
    address_type = "dynamic",
    fast_math = FastMath::ReducedPrecision | FastMath::NotNaN | FastMath::NotInf
)]
#[allow(clippy::too_many_arguments)]
pub fn attend_mma<F: Float, N: Size, O: Size>(
    query: &Tensor<Vector<F, N>>,
    key: &Tensor<Vector<F, N>>,
    value: &Tensor<Vector<F, N>>,
    output: &mut Tensor<Vector<F, O>>,
    log_sum_exp: &mut Tensor<f32>,
    problem: Problem,
    dropped: ComptimeOption<DroppedRows>,
    #[comptime] tile: Tile,
    #[define(F)] _dtype: StorageType,
) {
    let def = cmma::MmaDefinition::<F, F, f32>::new(16usize, 8usize, 16usize);
    let size!(P) = def.vector_size(cmma::MatrixIdent::Accumulator);
    let lane = UNIT_POS_PLANE;
    let plane = UNIT_POS as usize / PLANE;
    let row_tiles = tile.row_tiles;
    let score_tiles = comptime!(tile.passing / COLUMNS);
    let element_tiles = comptime!(tile.width / COLUMNS);
    let stride = comptime!(tile.stride());
    // The last queries see the most keys under causal attention: they go first.
    let first_query = from_the_end(CUBE_POS_X, CUBE_COUNT_X) as usize * comptime!(tile.staying());
    let head = CUBE_POS_Y as usize;
    let sample = CUBE_POS_Z as usize;
    let key_head = head / problem.group;
    let plane_row = plane * comptime!(tile.row_tiles * SIDE);

    let barrier = Barrier::shared(CUBE_DIM, UNIT_POS == 0);
    let mut queries = SharedMemory::<Vector<F, N>>::new_aligned(comptime!(tile.staying() * stride), 16usize);
    let block = comptime!(tile.passing * stride);
    let mut keys = SharedMemory::<Vector<F, N>>::new_aligned(comptime!(2 * block), 16usize);
    let mut values = SharedMemory::<Vector<F, N>>::new_aligned(comptime!(2 * block), 16usize);
    let query_start = problem.query_start + sample * query.stride(0) + head * query.stride(2);
    let key_start = problem.key_start + sample * key.stride(0) + key_head * key.stride(2);
    let value_start = problem.value_start + sample * value.stride(0) + key_head * value.stride(2);

    let mut sums = Array::<Vector<f32, P>>::new(comptime!(row_tiles * element_tiles * 2));
    #[unroll]
    for index in 0..comptime!(row_tiles * element_tiles * 2) {
        sums[index] = Vector::new(0.0f32);
    }
    // Maxima are kept of products as they come, and what scales them is applied with the subtraction, in one
    // instruction.
    let sharpness = problem.scale * LOG2_E;
    // Of rows `lane / 4` and eight below, of each of the plane's tiles.
    let mut maxima = Array::<f32>::new(comptime!(row_tiles * 2));
    let mut totals = Array::<f32>::new(comptime!(row_tiles * 2));
    #[unroll]
    for index in 0..comptime!(row_tiles * 2) {
        maxima[index] = problem.nothing;
        totals[index] = 0.0f32;
    }

    let seen = first_query + comptime!(tile.staying());
    let end = select(problem.is_causal != 0 && seen < problem.keys, seen, problem.keys);
    let (rows, d_head) = (problem.keys, problem.d_head);
    copy::<F, N>(
        query,
        query_start,
        problem.queries,
        first_query,
        d_head,
        &mut queries,
        0usize,
        comptime!(tile.staying()),
        tile,
    );
    copy::<F, N>(
        key,
        key_start,
        rows,
        0usize,
        d_head,
        &mut keys,
        0usize,
        tile.passing,
        tile,
    );
    copy::<F, N>(
        value,
        value_start,
        rows,
        0usize,
        d_head,
        &mut values,
        0usize,
        tile.passing,
        tile,
    );
    barrier.commit_copy_async();
    barrier.arrive();

    let mut first_key = 0usize;
    let mut stage = 0u32;
    while first_key < end {
        barrier.wait_parity(stage);
        // All have done with the other stage.
        sync_cube();
        let at = stage as usize * block;
        let next = first_key + tile.passing;
        if next < end {
            let other = (1 - stage) as usize * block;
            copy::<F, N>(key, key_start, rows, next, d_head, &mut keys, other, tile.passing, tile);
            copy::<F, N>(
                value,
                value_start,
                rows,
                next,
                d_head,
                &mut values,
                other,
                tile.passing,
                tile,
            );
            barrier.commit_copy_async();
            barrier.arrive();
        }

        let mut scores = Array::<Vector<f32, P>>::new(comptime!(row_tiles * score_tiles * 2));
        #[unroll]
        for index in 0..comptime!(row_tiles * score_tiles * 2) {
            scores[index] = Vector::new(0.0f32);
        }
        #[unroll]
        for step in 0..comptime!(tile.width / SIDE) {
            let mut factors = Array::<Vector<F, P>>::new(comptime!(row_tiles * 4));
            #[unroll]
            for row in 0..row_tiles {
                let loaded = left::<F, N, P>(&queries, plane_row + row * SIDE, step * comptime!(SIDE / LOAD), tile);
                #[unroll]
                for index in 0..4usize {
                    factors[row * 4 + index] = loaded[index];
                }
            }
            #[unroll]
            for pair in 0..comptime!(score_tiles / 2) {
                let columns = right_of_rows::<F, N, P>(&keys, at, pair * SIDE, step * comptime!(SIDE / LOAD), tile);
                #[unroll]
                for row in 0..row_tiles {
                    let mut factor = Array::<Vector<F, P>>::new(4usize);
                    #[unroll]
                    for index in 0..4usize {
                        factor[index] = factors[row * 4 + index];
                    }
                    #[unroll]
                    for which in 0..2usize {
                        multiply::<F, P>(
                            &factor,
                            &columns,
                            which,
                            &mut scores,
                            row * score_tiles + pair * 2 + which,
                        );
                    }
                }
            }
        }

        let is_edge = next > problem.keys || (problem.is_causal != 0 && next > first_query + plane_row + 1);
        #[unroll]
        for row in 0..row_tiles {
            #[unroll]
            for column in 0..score_tiles {
                #[unroll]
                for half in 0..2usize {
                    let index = (row * score_tiles + column) * 2 + half;
                    if is_edge {
                        let mut pair = scores[index];
                        #[unroll]
                        for element in 0..2usize {
                            let nth = (half * 2 + element) as u32;
                            let (i, j) = def.position_of_nth(lane, nth, cmma::MatrixIdent::Accumulator);
                            let query = first_query + plane_row + row * SIDE + i as usize;
                            let key = first_key + column * COLUMNS + j as usize;
                            let is_hidden = key >= problem.keys || (problem.is_causal != 0 && key > query);
                            pair[element] = select(is_hidden, problem.nothing, pair[element]);
                        }
                        scores[index] = pair;
                    }
                }
            }
            #[unroll]
            for half in 0..2usize {
                let mut maximum = maxima[row * 2 + half];
                #[unroll]
                for column in 0..score_tiles {
                    let pair = scores[(row * score_tiles + column) * 2 + half];
                    maximum = select(pair[0] > maximum, pair[0], maximum);
                    maximum = select(pair[1] > maximum, pair[1], maximum);
                }
                let maximum = row_maximum(maximum);
                // −∞ less −∞ is no number; where all is −∞, all weights shall be 0.
                let base = select(maximum == problem.nothing, 0.0f32, maximum) * sharpness;
                let shrink = exp2(Vector::<f32, P>::new(maxima[row * 2 + half] * sharpness - base));
                maxima[row * 2 + half] = maximum;
                let mut total = totals[row * 2 + half] * shrink[0];
                #[unroll]
                for column in 0..score_tiles {
                    let index = (row * score_tiles + column) * 2 + half;
                    let weights = exp2(scores[index] * Vector::new(sharpness) - Vector::new(base));
                    total += weights[0] + weights[1];
                    scores[index] = weights;
                }
                totals[row * 2 + half] = total;
                #[unroll]
                for column in 0..element_tiles {
                    let index = (row * element_tiles + column) * 2 + half;
                    sums[index] = sums[index] * shrink;
                }
            }
            if comptime!(tile.has_dropout) {
                #[unroll]
                for column in 0..score_tiles {
                    let query = first_query + plane_row + row * SIDE;
                    let key = first_key + column * COLUMNS;
                    let kept = fragment_factors(&dropped, &problem, query, head, key);
                    let index = (row * score_tiles + column) * 2;
                    #[unroll]
                    for half in 0..2usize {
                        let mut pair = scores[index + half];
                        pair[0] = pair[0] * kept[half * 2];
                        pair[1] = pair[1] * kept[half * 2 + 1];
                        scores[index + half] = pair;
                    }
                }
            }
        }

        #[unroll]
        for step in 0..comptime!(tile.passing / SIDE) {
            let mut factors = Array::<Vector<F, P>>::new(comptime!(row_tiles * 4));
            #[unroll]
            for row in 0..row_tiles {
                // The accumulators of two adjacent tiles are the left factor of 16 columns.
                #[unroll]
                for index in 0..4usize {
                    let weights = scores[(row * score_tiles + step * 2) * 2 + index];
                    factors[row * 4 + index] = Vector::cast_from(weights);
                }
            }
            #[unroll]
            for pair in 0..comptime!(element_tiles / 2) {
                let columns = right_of_columns::<F, N, P>(&values, at, step * SIDE, pair * 2, tile);
                #[unroll]
                for row in 0..row_tiles {
                    let mut factor = Array::<Vector<F, P>>::new(4usize);
                    #[unroll]
                    for index in 0..4usize {
                        factor[index] = factors[row * 4 + index];
                    }
                    #[unroll]
                    for which in 0..2usize {
                        multiply::<F, P>(
                            &factor,
                            &columns,
                            which,
                            &mut sums,
                            row * element_tiles + pair * 2 + which,
                        );
                    }
                }
            }
        }
        first_key = next;
        stage = 1 - stage;
    }

    let heads = CUBE_COUNT_Y as usize;
    #[unroll]
    for row in 0..row_tiles {
        #[unroll]
        for half in 0..2usize {
            let total = row_sum(totals[row * 2 + half]);
            let maximum = maxima[row * 2 + half];
            let (i, _) = def.position_of_nth(lane, (half * 2) as u32, cmma::MatrixIdent::Accumulator);
            let query = first_query + plane_row + row * SIDE + i as usize;
            if query < problem.queries {
                let share = select(total == 0.0f32, 0.0f32, 1.0f32 / total);
                let start = sample * output.stride(0) + query * output.stride(1) + head * output.stride(2);
                #[unroll]
                for column in 0..element_tiles {
                    let (_, j) = def.position_of_nth(lane, (half * 2) as u32, cmma::MatrixIdent::Accumulator);
                    let element = column * COLUMNS + j as usize;
                    if element < problem.d_head {
                        let pair = sums[(row * element_tiles + column) * 2 + half] * Vector::new(share);
                        output[(start + element) / 2] = Vector::cast_from(pair);
                    }
                }
                // One of the four lanes that hold the row.
                if lane % 4 < 1 {
                    let base = select(maximum == problem.nothing, 0.0f32, maximum) * problem.scale;
                    let statistic = select(total == 0.0f32, problem.nothing, base + total.ln());
                    log_sum_exp[(sample * heads + head) * problem.queries + query] = statistic;
                }
            }
        }
    }
}
