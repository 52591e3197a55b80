//! The gradients of queries alone, each summed by one plane in one order.
//!
//! A plane keeps 16 queries and goes over the blocks of keys that they see; the accumulators of the gradients of its
//! scores become left factors of the products with the keys.

use cubecl::ir::FastMath;
use cubecl::prelude::*;

use super::super::super::device::{
    BackwardPlaces, HeadRows, KeyRanges, Problem, RelativeBias, common_keys, is_outside, keys_seen,
};
use super::super::tile::{LOAD, PLANE, SIDE, Tile, copy, from_the_end, lane, right_of_columns};
use super::scores::{ScorePlace, add_scores, hide, is_edge, left_tiles, multiply_tiles, statistic, weigh, zeros};
use super::split::{query_scores, query_sums};
use super::store::store_rows;
use crate::cube::dropout::DroppedRows;
use crate::cube::nvidia::{commit_copies, wait_for_copies};

/// Where keys and values are that go by, and two blocks of each.
#[derive(CubeType)]
struct Blocks<F: Float, N: Size> {
    keys: Shared<[Vector<F, N>]>,
    values: Shared<[Vector<F, N>]>,
    key: HeadRows,
    value: HeadRows,
}

/// Writes the gradients of queries.
///
/// Cubes: heads, blocks of queries from the one that sees most keys, samples.
#[cube(
    launch_unchecked,
    address_type = "dynamic",
    fast_math = FastMath::ReducedPrecision | FastMath::NotNaN | FastMath::NotInf
)]
#[allow(clippy::too_many_arguments)]
pub fn query_gradients_mma<F: Float, N: Size, O: Size>(
    query: &[Vector<F, N>],
    key: &[Vector<F, N>],
    value: &[Vector<F, N>],
    gradient: &[Vector<F, N>],
    log_sum_exp: &[f32],
    along: &[f32],
    of_query: &mut [Vector<F, O>],
    places: BackwardPlaces,
    problem: Problem,
    ranges: ComptimeOption<KeyRanges>,
    bias: ComptimeOption<RelativeBias>,
    dropped: ComptimeOption<DroppedRows>,
    #[comptime] tile: Tile,
    #[define(F)] _dtype: ElemType,
) {
    let def = cmma::MmaDefinition::<F, F, f32>::new(16usize, 8usize, 16usize);
    let size!(P) = def.vector_size(cmma::MatrixIdent::Accumulator);
    let share = comptime!(query_scores(tile));
    let summed = comptime!(query_sums(tile));
    let steps = comptime!(tile.width / SIDE);
    let staying = comptime!(tile.staying());
    let head = CUBE_POS_X as usize;
    let first_query = from_the_end(CUBE_POS_Y, CUBE_COUNT_Y) as usize * staying;
    let sample = CUBE_POS_Z as usize;
    let key_head = head / problem.group;
    let plane_row = UNIT_POS as usize / PLANE * SIDE;

    let mut queries = Shared::<[Vector<F, N>]>::new_aligned_slice(comptime!(staying * tile.vectors()), 128usize);
    let mut gradients = Shared::<[Vector<F, N>]>::new_aligned_slice(comptime!(staying * tile.vectors()), 128usize);
    let mut blocks = Blocks::<F, N> {
        keys: Shared::new_aligned_slice(comptime!(2 * tile.passing * tile.vectors()), 128usize),
        values: Shared::new_aligned_slice(comptime!(2 * tile.passing * tile.vectors()), 128usize),
        key: places.key.rows(sample, key_head, problem.keys, problem.d_head),
        value: places.value.rows(sample, key_head, problem.keys, problem.d_head),
    };
    let seen = keys_seen(&ranges, &problem, sample, first_query, first_query + staying);
    let plane_end = first_query + plane_row + SIDE;
    let common = common_keys(&ranges, &problem, sample, first_query + plane_row, plane_end);

    let from = places.query.rows(sample, head, problem.queries, problem.d_head);
    copy::<F, N>(query, &from, first_query, &mut queries, 0usize, staying, tile);
    let from = places.gradient.rows(sample, head, problem.queries, problem.d_head);
    copy::<F, N>(gradient, &from, first_query, &mut gradients, 0usize, staying, tile);
    load::<F, N>(key, value, &mut blocks, seen.from, 0usize, tile);
    commit_copies();

    // Of rows `lane / 4` and eight below.
    let mut statistics = Array::<f32>::new(2usize);
    let mut products = Array::<f32>::new(2usize);
    #[unroll]
    for half in 0..2usize {
        let query = first_query + plane_row + half * 8 + lane() / 4;
        let row = (sample * CUBE_COUNT_X as usize + head) * problem.queries + query;
        let is_there = query < problem.queries;
        statistics[half] = statistic(number(log_sum_exp, row, is_there), problem.nothing);
        products[half] = number(along, row, is_there);
    }
    wait_for_copies(0u32);
    sync_cube();
    // Fragments stay in registers where there are enough.
    let held = comptime!(if tile.holds_left() { steps } else { 0 });
    let held_queries = held_tiles::<F, N, P>(&queries, plane_row, held, tile);
    let held_gradients = held_tiles::<F, N, P>(&gradients, plane_row, held, tile);

    let mut sums = zeros::<P>(comptime!(summed.accumulators()));
    let mut first = seen.from;
    let mut stage = 0usize;
    while first < seen.to {
        let next = first + tile.passing;
        if next < seen.to {
            load::<F, N>(key, value, &mut blocks, next, 1 - stage, tile);
        }
        commit_copies();
        let stage_row = stage * tile.passing;
        let mut scores = zeros::<P>(comptime!(share.accumulators()));
        let mut of_weights = zeros::<P>(comptime!(share.accumulators()));
        #[unroll]
        for step in 0..steps {
            let vector = step * comptime!(SIDE / LOAD);
            let factors = kept_tile::<F, N, P>(&held_queries, &queries, plane_row, step, held, tile);
            let factors_other = kept_tile::<F, N, P>(&held_gradients, &gradients, plane_row, step, held, tile);
            add_scores::<F, N, P>(
                &factors,
                &factors_other,
                &blocks.keys,
                &blocks.values,
                stage_row,
                vector,
                &mut scores,
                &mut of_weights,
                share,
                tile,
            );
        }
        let place = ScorePlace {
            query: first_query + plane_row,
            key: first,
            head,
            sample,
        };
        weigh::<P>(
            &mut scores,
            &mut of_weights,
            &statistics,
            &products,
            &problem,
            &bias,
            &dropped,
            &place,
            share,
            tile.has_dropout,
        );
        if is_edge(&place, &problem, share) || is_outside(&ranges, &common, first, next) {
            hide::<P>(&mut scores, &mut of_weights, &problem, &ranges, &place, share);
        }
        #[unroll]
        for step in 0..summed.steps {
            // The accumulators of two adjacent tiles are the left factor of 16 columns.
            let mut of_scores = Array::<Vector<F, P>>::new(4usize);
            #[unroll]
            for index in 0..4usize {
                of_scores[index] = Vector::cast_from(of_weights[step * 4 + index]);
            }
            #[unroll]
            for pair in 0..comptime!(summed.columns / 2) {
                let columns =
                    right_of_columns::<F, N, P>(&blocks.keys, 0usize, stage_row + step * SIDE, pair * 2, tile);
                multiply_tiles::<F, P>(&of_scores, &columns, &mut sums, pair * 2, summed);
            }
        }
        wait_for_copies(0u32);
        // All have done with this stage, and the other one is there.
        sync_cube();
        first = next;
        stage = 1 - stage;
    }

    let to = places.of_query.rows(sample, head, problem.queries, problem.d_head);
    let row = first_query + plane_row;
    store_rows::<F, O, P>(&sums, problem.scale, of_query, &to, row, 0usize, summed);
}

/// Starts the copies of a block of keys and values.
#[cube]
fn load<F: Float, N: Size>(
    key: &[Vector<F, N>],
    value: &[Vector<F, N>],
    blocks: &mut Blocks<F, N>,
    first: usize,
    stage: usize,
    #[comptime] tile: Tile,
) {
    let at = stage * comptime!(tile.passing * tile.vectors());
    copy::<F, N>(key, &blocks.key, first, &mut blocks.keys, at, tile.passing, tile);
    copy::<F, N>(value, &blocks.value, first, &mut blocks.values, at, tile.passing, tile);
}

/// Loads the left fragments of the first `steps` steps.
#[cube]
fn held_tiles<F: Float, N: Size, P: Size>(
    from: &Shared<[Vector<F, N>]>,
    row: usize,
    #[comptime] steps: usize,
    #[comptime] tile: Tile,
) -> Array<Vector<F, P>> {
    let mut factors = Array::<Vector<F, P>>::new(comptime!((steps * 4).max(1)));
    #[unroll]
    for step in 0..steps {
        let loaded = left_tiles::<F, N, P>(from, row, step * comptime!(SIDE / LOAD), 1usize, tile);
        #[unroll]
        for register in 0..4usize {
            factors[step * 4 + register] = loaded[register];
        }
    }
    factors
}

/// The left fragment of a step: one that is held, or loaded.
#[cube]
fn kept_tile<F: Float, N: Size, P: Size>(
    held: &Array<Vector<F, P>>,
    from: &Shared<[Vector<F, N>]>,
    row: usize,
    #[comptime] step: usize,
    #[comptime] steps: usize,
    #[comptime] tile: Tile,
) -> Array<Vector<F, P>> {
    if comptime!(step < steps) {
        let mut factor = Array::<Vector<F, P>>::new(4usize);
        #[unroll]
        for register in 0..4usize {
            factor[register] = held[comptime!(step * 4) + register];
        }
        factor
    } else {
        left_tiles::<F, N, P>(from, row, comptime!(step * (SIDE / LOAD)), 1usize, tile)
    }
}

/// A number, 0 where there is none.
#[cube]
fn number(numbers: &[f32], row: usize, is_there: bool) -> f32 {
    let mut value = 0.0f32;
    if is_there {
        value = numbers[row];
    }
    value
}
