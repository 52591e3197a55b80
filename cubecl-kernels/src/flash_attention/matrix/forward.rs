//! The forward pass: each plane goes with its queries over blocks of keys.
//!
//! There is one block of keys and one of values in shared memory: the values come while scores are computed, the next
//! keys while weights are summed. A row's weights are relative to a base, near the largest of its scores so far: where
//! no score has grown much past it, nothing that is summed changes, and the division by the sum makes up for the rest.

use cubecl::ir::FastMath;
use cubecl::prelude::*;

use super::super::device::{
    ForwardPlaces, HeadRows, KeyRanges, Problem, RelativeBias, common_keys, fragment_factors, is_outside, keys_of,
    keys_seen,
};
use super::bias::add_bias;
use super::tile::{COLUMNS, LOAD, PLANE, SIDE, Tile, copy, left, multiply, right_of_columns, right_of_rows};
use super::tile::{LOG2_E, exp2, from_the_end, lane, row_maximum, row_sum};
use crate::cube::dropout::DroppedRows;
use crate::cube::nvidia::{commit_copies, wait_for_copies};

/// How far exponents of 2 may be above a row's base: weights of 2^8 are as precise as those of 1, and their sums are
/// far from the largest numbers of 16 bits.
const MOST_GROWTH: f32 = 8.0;

/// The rows that a plane computes.
#[derive(CubeType, Clone, Copy)]
struct PlaneRows {
    /// The first one's number among the queries.
    query: usize,
    head: usize,
    sample: usize,
}

/// Writes the output, `[batch, queries, heads, d_head]`, and `log Σ exp` of the scores, `[batch, heads, queries]`.
///
/// Cubes: heads, blocks of queries, samples.
#[cube(
    launch_unchecked,
    address_type = "dynamic",
    fast_math = FastMath::ReducedPrecision | FastMath::NotNaN | FastMath::NotInf
)]
#[allow(clippy::too_many_arguments)]
pub fn attend_mma<F: Float, N: Size>(
    query: &[Vector<F, N>],
    key: &[Vector<F, N>],
    value: &[Vector<F, N>],
    output: &mut [Vector<F, N>],
    log_sum_exp: &mut [f32],
    places: ForwardPlaces,
    problem: Problem,
    ranges: ComptimeOption<KeyRanges>,
    bias: ComptimeOption<RelativeBias>,
    dropped: ComptimeOption<DroppedRows>,
    #[comptime] tile: Tile,
    #[define(F)] _dtype: ElemType,
) {
    let def = cmma::MmaDefinition::<F, F, f32>::new(16usize, 8usize, 16usize);
    let size!(P) = def.vector_size(cmma::MatrixIdent::Accumulator);
    // Under causal attention the last queries see the most keys. They go first, of all heads, so that the cubes that
    // take long do not end last.
    let first_query = from_the_end(CUBE_POS_Y, CUBE_COUNT_Y) as usize * comptime!(tile.staying());
    let plane_row = UNIT_POS as usize / PLANE * comptime!(tile.row_tiles * SIDE);
    let rows = PlaneRows {
        query: first_query + plane_row,
        head: CUBE_POS_X as usize,
        sample: CUBE_POS_Z as usize,
    };
    let key_head = rows.head / problem.group;
    let query_rows = places
        .query
        .rows(rows.sample, rows.head, problem.queries, problem.d_head);
    let key_rows = places.key.rows(rows.sample, key_head, problem.keys, problem.d_head);
    let value_rows = places.value.rows(rows.sample, key_head, problem.keys, problem.d_head);

    let staying = comptime!(tile.staying());
    let passing = tile.passing;
    let mut queries = Shared::<[Vector<F, N>]>::new_aligned_slice(comptime!(staying * tile.vectors()), 16usize);
    let mut keys = Shared::<[Vector<F, N>]>::new_aligned_slice(comptime!(passing * tile.vectors()), 16usize);
    let mut values = Shared::<[Vector<F, N>]>::new_aligned_slice(comptime!(passing * tile.vectors()), 16usize);
    copy::<F, N>(query, &query_rows, first_query, &mut queries, 0usize, staying, tile);
    let seen = keys_seen(&ranges, &problem, rows.sample, first_query, first_query + staying);
    copy::<F, N>(key, &key_rows, seen.from, &mut keys, 0usize, passing, tile);
    commit_copies();

    let element_tiles = comptime!(tile.width / COLUMNS);
    let mut sums = Array::<Vector<f32, P>>::new(comptime!(tile.row_tiles * element_tiles * 2));
    #[unroll]
    for index in 0..comptime!(tile.row_tiles * element_tiles * 2) {
        sums[index] = Vector::new(0.0f32);
    }
    // Of rows `lane / 4` and eight below, of each of the plane's tiles: the exponents of 2 that weights are relative
    // to, and the sums of weights in this unit's columns.
    let mut bases = Array::<f32>::new(comptime!(tile.row_tiles * 2));
    let mut totals = Array::<f32>::new(comptime!(tile.row_tiles * 2));
    #[unroll]
    for index in 0..comptime!(tile.row_tiles * 2) {
        // Below every score, and unlike −∞ a number that −∞ can be subtracted from.
        bases[index] = f32::min_value();
        totals[index] = 0.0f32;
    }
    // What scales scores is applied with the subtraction of the base, in one instruction.
    let sharpness = problem.scale * LOG2_E;
    let is_causal = problem.is_causal != 0;
    let plane_end = rows.query + comptime!(tile.row_tiles * SIDE);
    let common = common_keys(&ranges, &problem, rows.sample, rows.query, plane_end);

    let mut first_key = seen.from;
    while first_key < seen.to {
        let next = first_key + passing;
        wait_for_copies(0u32);
        // The keys are there, and all have done with the values.
        sync_cube();
        copy::<F, N>(value, &value_rows, first_key, &mut values, 0usize, passing, tile);
        commit_copies();
        let mut scores = products::<F, N, P>(&queries, &keys, plane_row, tile);
        wait_for_copies(0u32);
        // The values are there, and all have done with the keys.
        sync_cube();
        if next < seen.to {
            copy::<F, N>(key, &key_rows, next, &mut keys, 0usize, passing, tile);
            commit_copies();
        }
        if comptime!(bias.is_some()) {
            add_bias::<P>(
                &mut scores,
                &bias,
                &problem,
                rows.head,
                rows.query,
                first_key,
                tile.row_tiles,
                comptime!(passing / COLUMNS),
            );
        }
        if next > problem.keys || (is_causal && next > rows.query + 1) || is_outside(&ranges, &common, first_key, next)
        {
            hide::<F, P>(&mut scores, &rows, first_key, &problem, &ranges, tile);
        }
        weigh::<P>(&mut scores, &mut sums, &mut bases, &mut totals, sharpness, tile);
        if comptime!(tile.has_dropout) {
            drop_weights::<P>(&mut scores, &dropped, &problem, &rows, first_key, tile);
        }
        accumulate::<F, N, P>(&scores, &values, &mut sums, tile);
        first_key = next;
    }

    let output_rows = places
        .output
        .rows(rows.sample, rows.head, problem.queries, problem.d_head);
    store::<F, N, P>(
        &sums,
        &bases,
        &totals,
        output,
        log_sum_exp,
        &output_rows,
        &rows,
        &problem,
        tile,
    );
}

/// The products of the plane's queries and a block's keys.
#[cube]
fn products<F: Float, N: Size, P: Size>(
    queries: &Shared<[Vector<F, N>]>,
    keys: &Shared<[Vector<F, N>]>,
    plane_row: usize,
    #[comptime] tile: Tile,
) -> Array<Vector<f32, P>> {
    let row_tiles = tile.row_tiles;
    let score_tiles = comptime!(tile.passing / COLUMNS);
    let mut scores = Array::<Vector<f32, P>>::new(comptime!(row_tiles * score_tiles * 2));
    #[unroll]
    for index in 0..comptime!(row_tiles * score_tiles * 2) {
        scores[index] = Vector::new(0.0f32);
    }
    #[unroll]
    for step in 0..comptime!(tile.width / SIDE) {
        let vector = step * comptime!(SIDE / LOAD);
        let mut factors = Array::<Vector<F, P>>::new(comptime!(row_tiles * 4));
        #[unroll]
        for row in 0..row_tiles {
            let loaded = left::<F, N, P>(queries, plane_row + row * SIDE, vector, tile);
            #[unroll]
            for index in 0..4usize {
                factors[row * 4 + index] = loaded[index];
            }
        }
        #[unroll]
        for pair in 0..comptime!(score_tiles / 2) {
            let columns = right_of_rows::<F, N, P>(keys, 0usize, pair * SIDE, vector, tile);
            multiply_rows::<F, P>(&factors, &columns, &mut scores, pair, score_tiles, row_tiles);
        }
    }
    scores
}

/// Adds to the accumulators of each tile of rows the products with two right fragments, the `pair`th of `columns` / 2.
#[cube]
fn multiply_rows<F: Float, P: Size>(
    factors: &Array<Vector<F, P>>,
    right: &Array<Vector<F, P>>,
    sums: &mut Array<Vector<f32, P>>,
    pair: usize,
    #[comptime] columns: usize,
    #[comptime] row_tiles: usize,
) {
    #[unroll]
    for row in 0..row_tiles {
        let mut factor = Array::<Vector<F, P>>::new(4usize);
        #[unroll]
        for index in 0..4usize {
            factor[index] = factors[row * 4 + index];
        }
        #[unroll]
        for which in 0..2usize {
            multiply::<F, P>(&factor, right, which, sums, row * columns + pair * 2 + which);
        }
    }
}

/// Makes the scores −∞ of keys that there are not or that the query does not see.
#[cube]
fn hide<F: Float, P: Size>(
    scores: &mut Array<Vector<f32, P>>,
    rows: &PlaneRows,
    first_key: usize,
    problem: &Problem,
    ranges: &ComptimeOption<KeyRanges>,
    #[comptime] tile: Tile,
) {
    let def = cmma::MmaDefinition::<F, F, f32>::new(16usize, 8usize, 16usize);
    let score_tiles = comptime!(tile.passing / COLUMNS);
    #[unroll]
    for row in 0..tile.row_tiles {
        #[unroll]
        for half in 0..2usize {
            let (i, j) = def.position_of_nth(lane() as u32, (half * 2) as u32, cmma::MatrixIdent::Accumulator);
            let query = rows.query + row * SIDE + i as usize;
            let seen = select(problem.is_causal != 0 && query < problem.keys, query + 1, problem.keys);
            let own = keys_of(ranges, problem, rows.sample, query);
            // Of the first column; the others are one more each.
            let key = first_key + j as usize;
            #[unroll]
            for column in 0..score_tiles {
                let index = (row * score_tiles + column) * 2 + half;
                let mut pair = scores[index];
                #[unroll]
                for element in 0..2usize {
                    let at = key + column * COLUMNS + element;
                    let is_hidden = at >= seen || is_outside(ranges, &own, at, at + 1);
                    pair.insert(element, select(is_hidden, problem.nothing, pair.extract(element)));
                }
                scores[index] = pair;
            }
        }
    }
}

/// Turns scores into weights relative to the rows' bases, and adds them to the totals. Before that, bases that scores
/// have grown past are raised, and what was summed relative to them is scaled to the new ones.
#[cube]
#[allow(clippy::assign_op_pattern)]
fn weigh<P: Size>(
    scores: &mut Array<Vector<f32, P>>,
    sums: &mut Array<Vector<f32, P>>,
    bases: &mut Array<f32>,
    totals: &mut Array<f32>,
    sharpness: f32,
    #[comptime] tile: Tile,
) {
    let score_tiles = comptime!(tile.passing / COLUMNS);
    let element_tiles = comptime!(tile.width / COLUMNS);
    let mut largest = Array::<f32>::new(comptime!(tile.row_tiles * 2));
    let mut growth = 0.0f32;
    #[unroll]
    for row in 0..comptime!(tile.row_tiles * 2) {
        let first = row / 2 * score_tiles * 2 + row % 2;
        let mut maximum = larger(scores[first]);
        #[unroll]
        for column in 1..score_tiles {
            maximum = max(maximum, larger(scores[first + column * 2]));
        }
        largest[row] = row_maximum(maximum) * sharpness;
        growth = max(growth, largest[row] - bases[row]);
    }
    if plane_any(growth > MOST_GROWTH) {
        #[unroll]
        for row in 0..comptime!(tile.row_tiles * 2) {
            let base = max(bases[row], largest[row]);
            let shrink = exp2(Vector::<f32, P>::new(bases[row] - base));
            bases[row] = base;
            totals[row] = totals[row] * shrink.extract(0usize);
            let first = row / 2 * element_tiles * 2 + row % 2;
            #[unroll]
            for column in 0..element_tiles {
                let index = first + column * 2;
                sums[index] = sums[index] * shrink;
            }
        }
    }
    #[unroll]
    for row in 0..comptime!(tile.row_tiles * 2) {
        let first = row / 2 * score_tiles * 2 + row % 2;
        #[unroll]
        for column in 0..score_tiles {
            let index = first + column * 2;
            let weights = exp2(scores[index] * Vector::new(sharpness) - Vector::new(bases[row]));
            totals[row] = totals[row] + (weights.extract(0usize) + weights.extract(1usize));
            scores[index] = weights;
        }
    }
}

/// The larger number of a pair.
#[cube]
fn larger<P: Size>(pair: Vector<f32, P>) -> f32 {
    max(pair.extract(0usize), pair.extract(1usize))
}

/// Drops weights, and scales the others.
#[cube]
fn drop_weights<P: Size>(
    weights: &mut Array<Vector<f32, P>>,
    dropped: &ComptimeOption<DroppedRows>,
    problem: &Problem,
    rows: &PlaneRows,
    first_key: usize,
    #[comptime] tile: Tile,
) {
    let score_tiles = comptime!(tile.passing / COLUMNS);
    #[unroll]
    for row in 0..tile.row_tiles {
        #[unroll]
        for column in 0..score_tiles {
            let query = rows.query + row * SIDE;
            let kept = fragment_factors(dropped, problem, query, rows.head, first_key + column * COLUMNS);
            let index = (row * score_tiles + column) * 2;
            #[unroll]
            for half in 0..2usize {
                let mut pair = weights[index + half];
                pair.insert(0usize, pair.extract(0usize) * kept[half * 2]);
                pair.insert(1usize, pair.extract(1usize) * kept[half * 2 + 1]);
                weights[index + half] = pair;
            }
        }
    }
}

/// Adds the values of a block, times their weights, to the plane's sums.
#[cube]
fn accumulate<F: Float, N: Size, P: Size>(
    weights: &Array<Vector<f32, P>>,
    values: &Shared<[Vector<F, N>]>,
    sums: &mut Array<Vector<f32, P>>,
    #[comptime] tile: Tile,
) {
    let row_tiles = tile.row_tiles;
    let score_tiles = comptime!(tile.passing / COLUMNS);
    let element_tiles = comptime!(tile.width / COLUMNS);
    #[unroll]
    for step in 0..comptime!(tile.passing / SIDE) {
        let mut factors = Array::<Vector<F, P>>::new(comptime!(row_tiles * 4));
        #[unroll]
        for row in 0..row_tiles {
            // The accumulators of two adjacent tiles are the left factor of 16 columns.
            #[unroll]
            for index in 0..4usize {
                factors[row * 4 + index] = Vector::cast_from(weights[(row * score_tiles + step * 2) * 2 + index]);
            }
        }
        #[unroll]
        for pair in 0..comptime!(element_tiles / 2) {
            let columns = right_of_columns::<F, N, P>(values, 0usize, step * SIDE, pair * 2, tile);
            multiply_rows::<F, P>(&factors, &columns, sums, pair, element_tiles, row_tiles);
        }
    }
}

/// Divides the sums by the totals and writes them, and the rows' `log Σ exp`.
#[cube]
#[allow(clippy::too_many_arguments)]
fn store<F: Float, N: Size, P: Size>(
    sums: &Array<Vector<f32, P>>,
    bases: &Array<f32>,
    totals: &Array<f32>,
    output: &mut [Vector<F, N>],
    log_sum_exp: &mut [f32],
    output_rows: &HeadRows,
    rows: &PlaneRows,
    problem: &Problem,
    #[comptime] tile: Tile,
) {
    let lane = lane();
    let element_tiles = comptime!(tile.width / COLUMNS);
    let statistics = (rows.sample * CUBE_COUNT_X as usize + rows.head) * problem.queries;
    #[unroll]
    for row in 0..comptime!(tile.row_tiles * 2) {
        let total = row_sum(totals[row]);
        let share = select(total == 0.0f32, 0.0f32, 1.0f32 / total);
        let query = rows.query + comptime!(row / 2 * SIDE + row % 2 * COLUMNS) + lane / 4;
        let start = (output_rows.start + query * output_rows.stride) / LOAD;
        let first = row / 2 * element_tiles * 2 + row % 2;
        #[unroll]
        for group in 0..comptime!(element_tiles.div_ceil(4)) {
            let mut words = Array::<u32>::new(4usize);
            #[unroll]
            for word in 0..4usize {
                // Past the last tile anything: it is not stored.
                let column = comptime!(if group * 4 + word < element_tiles {
                    group * 4 + word
                } else {
                    group * 4
                });
                let pair = sums[first + column * 2] * Vector::new(share);
                words[word] = u32::reinterpret(Vector::<F, P>::cast_from(pair));
            }
            let vector = group * 4 + lane % 4;
            let gathered = gather::<F, N>(&words);
            if query < problem.queries && vector * LOAD < problem.d_head {
                output[start + vector] = gathered;
            }
        }
        // One of the four lanes that hold the row.
        if query < problem.queries && lane % 4 < 1 {
            let statistic = bases[row] * std::f32::consts::LN_2 + total.ln();
            log_sum_exp[statistics + query] = select(total == 0.0f32, problem.nothing, statistic);
        }
    }
}

/// Gives each of four adjacent lanes all eight columns of one of four tiles, of each of which it holds two columns in a
/// word.
#[cube]
fn gather<F: Float, N: Size>(words: &Array<u32>) -> Vector<F, N> {
    let is_odd = lane() % 2 == 1;
    let is_late = lane() / 2 % 2 == 1;
    // Lanes of a pair exchange words: then each has two of its own tile of the first two, and of the last two.
    let given_0 = plane_shuffle_xor(select(is_odd, words[0], words[1]), 1u32);
    let given_1 = plane_shuffle_xor(select(is_odd, words[2], words[3]), 1u32);
    let early_0 = select(is_odd, given_0, words[0]);
    let early_1 = select(is_odd, words[1], given_0);
    let late_0 = select(is_odd, given_1, words[2]);
    let late_1 = select(is_odd, words[3], given_1);
    // The pairs exchange those: the first pair keeps the first two tiles.
    let given_0 = plane_shuffle_xor(select(is_late, early_0, late_0), 2u32);
    let given_1 = plane_shuffle_xor(select(is_late, early_1, late_1), 2u32);
    let mut gathered = Vector::<u32, Const<4>>::empty();
    gathered.insert(0usize, select(is_late, given_0, early_0));
    gathered.insert(1usize, select(is_late, given_1, early_1));
    gathered.insert(2usize, select(is_late, late_0, given_0));
    gathered.insert(3usize, select(is_late, late_1, given_1));
    Vector::<F, N>::reinterpret(gathered)
}
