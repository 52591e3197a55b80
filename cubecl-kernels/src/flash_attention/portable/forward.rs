//! The forward pass: a cube goes with its queries over blocks of keys.

use cubecl::prelude::*;

use super::super::device::{
    ForwardPlaces, KeyRanges, Problem, RelativeBias, bias_of, factors, is_outside, keys_of, keys_seen,
};
use super::SIDE;
use super::tile::{Tile, load};
use crate::cube::dropout::DroppedRows;

/// Writes the output, `[batch, queries, heads, d_head]`, and `log Σ exp` of the scores, `[batch, heads, queries]`.
///
/// Cubes: blocks of queries, heads, samples.
#[cube(launch_unchecked, address_type = "dynamic")]
#[allow(clippy::too_many_arguments)]
pub fn attend<F: Float, N: Size>(
    query: &[Vector<F, N>],
    key: &[Vector<F, N>],
    value: &[Vector<F, N>],
    output: &mut [F],
    log_sum_exp: &mut [f32],
    places: ForwardPlaces,
    problem: Problem,
    ranges: ComptimeOption<KeyRanges>,
    bias: ComptimeOption<RelativeBias>,
    dropped: ComptimeOption<DroppedRows>,
    #[comptime] tile: Tile,
    #[define(F)] _dtype: ElemType,
) {
    let rows = comptime!(tile.queries / SIDE);
    let columns = comptime!(tile.keys / SIDE);
    let elements = comptime!(tile.width / SIDE);
    let stride = comptime!(tile.width + 1);
    let weight_stride = comptime!(tile.keys + 1);
    let unit_row = UNIT_POS as usize / SIDE;
    let unit_column = UNIT_POS as usize % SIDE;
    let first_query = CUBE_POS_X as usize * tile.queries;
    let head = CUBE_POS_Y as usize;
    let sample = CUBE_POS_Z as usize;
    let key_head = head / problem.group;

    let mut queries = Shared::<[f32]>::new_slice(comptime!(tile.queries * stride));
    let mut keys = Shared::<[f32]>::new_slice(comptime!(tile.keys * stride));
    let mut values = Shared::<[f32]>::new_slice(comptime!(tile.keys * stride));
    let mut weights = Shared::<[f32]>::new_slice(comptime!(tile.queries * weight_stride));
    let mut partial = Shared::<[f32]>::new_slice(comptime!(tile.queries * SIDE));

    let query_rows = places.query.rows(sample, head, problem.queries, problem.d_head);
    let key_rows = places.key.rows(sample, key_head, problem.keys, problem.d_head);
    let value_rows = places.value.rows(sample, key_head, problem.keys, problem.d_head);
    load::<F, N>(query, &query_rows, first_query, &mut queries, tile.queries, tile.width);

    let mut sums = Array::<f32>::new(comptime!(rows * elements));
    let mut maxima = Array::<f32>::new(rows);
    let mut totals = Array::<f32>::new(rows);
    #[unroll]
    for row in 0..rows {
        maxima[row] = problem.nothing;
        totals[row] = 0.0f32;
        #[unroll]
        for element in 0..elements {
            sums[row * elements + element] = 0.0f32;
        }
    }
    let mut scores = Array::<f32>::new(comptime!(rows * columns));
    let mut numbers = Array::<f32>::new(comptime!(if elements > columns { elements } else { columns }));
    let size!(C) = columns;

    let seen = keys_seen(&ranges, &problem, sample, first_query, first_query + tile.queries);
    let mut first_key = seen.from;
    while first_key < seen.to {
        // The block before has been read.
        sync_cube();
        load::<F, N>(key, &key_rows, first_key, &mut keys, tile.keys, tile.width);
        load::<F, N>(value, &value_rows, first_key, &mut values, tile.keys, tile.width);
        sync_cube();

        #[unroll]
        for index in 0..comptime!(rows * columns) {
            scores[index] = 0.0f32;
        }
        for element in 0..tile.width {
            #[unroll]
            for column in 0..columns {
                numbers[column] = keys[(unit_column * columns + column) * stride + element];
            }
            #[unroll]
            for row in 0..rows {
                let number = queries[(unit_row + row * SIDE) * stride + element];
                #[unroll]
                for column in 0..columns {
                    scores[row * columns + column] += number * numbers[column];
                }
            }
        }
        let first_column = first_key + unit_column * columns;
        #[unroll]
        for row in 0..rows {
            let tile_row = unit_row + row * SIDE;
            let own = keys_of(&ranges, &problem, sample, first_query + tile_row);
            let mut maximum = problem.nothing;
            #[unroll]
            for column in 0..columns {
                let index = row * columns + column;
                let key = first_column + column;
                let is_hidden = key >= problem.keys
                    || (problem.is_causal != 0 && key > first_query + tile_row)
                    || is_outside(&ranges, &own, key, key + 1);
                let mut score = scores[index] * problem.scale;
                if comptime!(bias.is_some()) {
                    score += bias_of(&bias, &problem, head, first_query + tile_row, key);
                }
                let score = select(is_hidden, problem.nothing, score);
                scores[index] = score;
                maximum = select(score > maximum, score, maximum);
            }
            partial[tile_row * SIDE + unit_column] = maximum;
        }
        sync_cube();

        #[unroll]
        for row in 0..rows {
            let tile_row = unit_row + row * SIDE;
            let mut maximum = maxima[row];
            #[unroll]
            for other in 0..SIDE {
                let score = partial[tile_row * SIDE + other];
                maximum = select(score > maximum, score, maximum);
            }
            // −∞ less −∞ is no number; where all is −∞, all weights shall be 0.
            let base = select(maximum == problem.nothing, 0.0f32, maximum);
            let shrink = (maxima[row] - base).exp();
            maxima[row] = maximum;
            let mut total = totals[row] * shrink;
            let mut kept = Vector::<f32, C>::new(1.0f32);
            if comptime!(tile.has_dropout) {
                let query = first_query + tile_row;
                kept = factors::<C>(&dropped, &problem, sample, query, head, first_column);
            }
            #[unroll]
            for column in 0..columns {
                let mut weight = (scores[row * columns + column] - base).exp();
                total += weight;
                if comptime!(tile.has_dropout) {
                    weight *= kept.extract(column);
                }
                weights[tile_row * weight_stride + unit_column * columns + column] = weight;
            }
            totals[row] = total;
            #[unroll]
            for element in 0..elements {
                sums[row * elements + element] *= shrink;
            }
        }
        sync_cube();

        for index in 0..tile.keys {
            #[unroll]
            for element in 0..elements {
                numbers[element] = values[index * stride + unit_column + element * SIDE];
            }
            #[unroll]
            for row in 0..rows {
                let weight = weights[(unit_row + row * SIDE) * weight_stride + index];
                #[unroll]
                for element in 0..elements {
                    sums[row * elements + element] += weight * numbers[element];
                }
            }
        }
        first_key += tile.keys;
    }

    sync_cube();
    #[unroll]
    for row in 0..rows {
        partial[(unit_row + row * SIDE) * SIDE + unit_column] = totals[row];
    }
    sync_cube();
    #[unroll]
    for row in 0..rows {
        let query = first_query + unit_row + row * SIDE;
        let mut total = 0.0f32;
        #[unroll]
        for other in 0..SIDE {
            total += partial[(unit_row + row * SIDE) * SIDE + other];
        }
        if query < problem.queries {
            let share = select(total == 0.0f32, 0.0f32, 1.0f32 / total);
            let start = places.output.element(sample, query, head);
            #[unroll]
            for element in 0..elements {
                let place = unit_column + element * SIDE;
                if place < problem.d_head {
                    output[start + place] = F::cast_from(sums[row * elements + element] * share);
                }
            }
            if unit_column == 0 {
                let heads = CUBE_COUNT_Y as usize;
                let base = select(maxima[row] == problem.nothing, 0.0f32, maxima[row]);
                let statistic = select(total == 0.0f32, problem.nothing, base + total.ln());
                log_sum_exp[(sample * heads + head) * problem.queries + query] = statistic;
            }
        }
    }
}
