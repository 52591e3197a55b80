//! The gradients of keys and values, and of queries in the same pass where the order of their sums is free.
//!
//! A cube keeps a block of keys and values and goes over the blocks of queries that see them, of each head of their
//! group. Planes share the scores of a block; its weights and the gradients of its scores go through shared memory,
//! from which each plane loads what its own part of the sums takes.

use cubecl::ir::FastMath;
use cubecl::prelude::*;

use super::super::super::device::{
    BackwardPlaces, KeyRanges, Problem, RelativeBias, Span, common_queries, is_outside, queries_seeing,
};
use super::super::bias::add_to_bias;
use super::super::tile::{COLUMNS, LOAD, PLANE, SIDE, Tile, copy, copy_numbers, fragment_place, lane};
use super::super::tile::{left_of_columns, right_of_columns};
use super::scores::{ScorePlace, add_scores, hide, is_edge, left_tiles, multiply_tiles, statistic, weigh, zeros};
use super::split::{KeysTile, Share};
use super::store::store_rows;
use crate::cube::dropout::DroppedRows;
use crate::cube::nvidia::{commit_copies, opaque, wait_for_copies};

/// Two blocks each of queries, of the gradients of the output and of what is known of each query.
#[derive(CubeType)]
struct Blocks<F: Float, N: Size> {
    queries: Shared<[Vector<F, N>]>,
    gradients: Shared<[Vector<F, N>]>,
    log_sum_exp: Shared<[f32]>,
    along: Shared<[f32]>,
}

/// A block of queries.
#[derive(CubeType, Clone, Copy)]
struct QueryBlock {
    sample: usize,
    head: usize,
    /// The heads of a sample.
    heads: usize,
    /// The first query.
    first: usize,
}

/// Writes the gradients of keys and values. Adds those of queries, not yet scaled, to `query_sums` where there are
/// any, as [`KeysTile::query_rows`](super::split::KeysTile::query_rows) tells, and the gradient of the bias to
/// `of_bias` where it is wanted: cubes do so in no fixed order.
///
/// Cubes: heads of keys, blocks of keys from the one that most queries see, samples.
#[cube(
    launch_unchecked,
    address_type = "dynamic",
    fast_math = FastMath::ReducedPrecision | FastMath::NotNaN | FastMath::NotInf
)]
#[allow(clippy::too_many_arguments)]
pub fn gradients_mma<F: Float, N: Size, O: Size>(
    query: &[Vector<F, N>],
    key: &[Vector<F, N>],
    value: &[Vector<F, N>],
    gradient: &[Vector<F, N>],
    log_sum_exp: &[f32],
    along: &[f32],
    query_sums: ComptimeOption<&[Atomic<f32>]>,
    of_bias: ComptimeOption<&[Atomic<f32>]>,
    of_key: &mut [Vector<F, O>],
    of_value: &mut [Vector<F, O>],
    places: BackwardPlaces,
    problem: Problem,
    ranges: ComptimeOption<KeyRanges>,
    bias: ComptimeOption<RelativeBias>,
    dropped: ComptimeOption<DroppedRows>,
    #[comptime] tile: KeysTile,
    #[define(F)] _dtype: ElemType,
) {
    let def = cmma::MmaDefinition::<F, F, f32>::new(16usize, 8usize, 16usize);
    let size!(P) = def.vector_size(cmma::MatrixIdent::Accumulator);
    let rows = comptime!(tile.rows());
    let kept = comptime!(tile.key_gradients());
    let key_head = CUBE_POS_X as usize;
    let first_key = CUBE_POS_Y as usize * tile.keys;
    let sample = CUBE_POS_Z as usize;
    let query_heads = CUBE_COUNT_X as usize * problem.group;
    let first_head = key_head * problem.group;

    let mut keys = Shared::<[Vector<F, N>]>::new_aligned_slice(comptime!(tile.keys * tile.vectors()), 128usize);
    let mut values = Shared::<[Vector<F, N>]>::new_aligned_slice(comptime!(tile.keys * tile.vectors()), 128usize);
    let mut blocks = Blocks::<F, N> {
        queries: Shared::new_aligned_slice(comptime!(2 * tile.queries * tile.vectors()), 128usize),
        gradients: Shared::new_aligned_slice(comptime!(2 * tile.queries * tile.vectors()), 128usize),
        log_sum_exp: Shared::new_aligned_slice(comptime!(2 * tile.queries), 16usize),
        along: Shared::new_aligned_slice(comptime!(2 * tile.queries), 16usize),
    };
    let pairs = comptime!(tile.queries * tile.keys / LOAD);
    let mut weights = Shared::<[Vector<F, N>]>::new_aligned_slice(pairs, 128usize);
    let mut of_scores = Shared::<[Vector<F, N>]>::new_aligned_slice(pairs, 128usize);

    let end = first_key + tile.keys;
    let seeing = queries_seeing(&ranges, &problem, sample, first_key, end, tile.queries);
    let column = first_key + share_column(comptime!(tile.scores()));
    let column_end = column + comptime!(tile.scores().columns * COLUMNS);
    let common = common_queries(&ranges, &problem, sample, column, column_end);

    let mut of_keys = zeros::<P>(comptime!(kept.accumulators()));
    let mut of_values = zeros::<P>(comptime!(kept.accumulators()));
    let of_key_head = places.key.rows(sample, key_head, problem.keys, problem.d_head);
    copy::<F, N>(key, &of_key_head, first_key, &mut keys, 0usize, tile.keys, rows);
    let of_value_head = places.value.rows(sample, key_head, problem.keys, problem.d_head);
    copy::<F, N>(value, &of_value_head, first_key, &mut values, 0usize, tile.keys, rows);
    let block = QueryBlock {
        sample,
        head: first_head,
        heads: query_heads,
        first: seeing.from,
    };
    load::<F, N>(
        query,
        gradient,
        log_sum_exp,
        along,
        &places,
        &problem,
        &block,
        &mut blocks,
        0usize,
        tile,
    );
    commit_copies();

    let end = first_head + problem.group;
    let mut head = first_head;
    let mut first = seeing.from;
    let mut stage = 0usize;
    while head < end && first < seeing.to {
        wait_for_copies(0u32);
        // All have done with the other stage, and with the weights of the block before.
        sync_cube();
        let mut next_head = head;
        let mut next_first = first + tile.queries;
        if next_first >= seeing.to {
            next_first = seeing.from;
            next_head += 1;
        }
        let block = QueryBlock {
            sample,
            head,
            heads: query_heads,
            first,
        };
        let next = QueryBlock {
            sample,
            head: next_head,
            heads: query_heads,
            first: next_first,
        };
        if next.head < end {
            let other = 1 - stage;
            load::<F, N>(
                query,
                gradient,
                log_sum_exp,
                along,
                &places,
                &problem,
                &next,
                &mut blocks,
                other,
                tile,
            );
        }
        commit_copies();
        weigh_block::<F, N, P>(
            &keys,
            &values,
            &blocks,
            stage,
            &problem,
            &ranges,
            &bias,
            &dropped,
            &block,
            &common,
            first_key,
            &mut weights,
            &mut of_scores,
            of_bias,
            tile,
        );
        // What each plane has computed is there for all.
        sync_cube();
        let at = stage * comptime!(tile.queries * tile.vectors());
        add_to_keys::<F, N, P>(&weights, &blocks.gradients, at, &mut of_values, tile);
        add_to_keys::<F, N, P>(&of_scores, &blocks.queries, at, &mut of_keys, tile);
        #[comptime]
        if let ComptimeOption::Some(sums) = query_sums {
            add_to_queries::<F, N, P>(&of_scores, &keys, sums, &block, problem.queries, tile);
        }
        head = next_head;
        first = next_first;
        stage = 1 - stage;
    }

    let row = first_key + share_row(kept);
    let element = share_column(kept);
    let to = places.of_key.rows(sample, key_head, problem.keys, problem.d_head);
    store_rows::<F, O, P>(&of_keys, problem.scale, of_key, &to, row, element, kept);
    let to = places.of_value.rows(sample, key_head, problem.keys, problem.d_head);
    store_rows::<F, O, P>(&of_values, 1.0f32, of_value, &to, row, element, kept);
}

/// The first row of this plane's share.
#[cube]
fn share_row(#[comptime] share: Share) -> usize {
    UNIT_POS as usize / PLANE % share.row_planes * comptime!(share.rows * SIDE)
}

/// The first column of this plane's share.
#[cube]
fn share_column(#[comptime] share: Share) -> usize {
    UNIT_POS as usize / PLANE / share.row_planes * comptime!(share.columns * COLUMNS)
}

/// Starts the copies of a block of queries.
#[cube]
#[allow(clippy::too_many_arguments)]
fn load<F: Float, N: Size>(
    query: &[Vector<F, N>],
    gradient: &[Vector<F, N>],
    log_sum_exp: &[f32],
    along: &[f32],
    places: &BackwardPlaces,
    problem: &Problem,
    block: &QueryBlock,
    to: &mut Blocks<F, N>,
    stage: usize,
    #[comptime] tile: KeysTile,
) {
    let rows = comptime!(tile.rows());
    let count = problem.queries;
    let first = block.first;
    let at = stage * comptime!(tile.queries * tile.vectors());
    let from = places.query.rows(block.sample, block.head, count, problem.d_head);
    copy::<F, N>(query, &from, first, &mut to.queries, at, tile.queries, rows);
    let from = places.gradient.rows(block.sample, block.head, count, problem.d_head);
    copy::<F, N>(gradient, &from, first, &mut to.gradients, at, tile.queries, rows);
    let numbers = (block.sample * block.heads + block.head) * count;
    let at = stage * tile.queries;
    copy_numbers(
        log_sum_exp,
        numbers,
        count,
        first,
        &mut to.log_sum_exp,
        at,
        tile.queries,
    );
    copy_numbers(along, numbers, count, first, &mut to.along, at, tile.queries);
}

/// Computes a plane's share of a block's weights and of the gradients of its scores, and writes them for the others.
#[cube]
#[allow(clippy::too_many_arguments)]
fn weigh_block<F: Float, N: Size, P: Size>(
    keys: &Shared<[Vector<F, N>]>,
    values: &Shared<[Vector<F, N>]>,
    blocks: &Blocks<F, N>,
    stage: usize,
    problem: &Problem,
    ranges: &ComptimeOption<KeyRanges>,
    bias: &ComptimeOption<RelativeBias>,
    dropped: &ComptimeOption<DroppedRows>,
    block: &QueryBlock,
    common: &Span,
    first_key: usize,
    weights: &mut Shared<[Vector<F, N>]>,
    of_scores: &mut Shared<[Vector<F, N>]>,
    of_bias: ComptimeOption<&[Atomic<f32>]>,
    #[comptime] tile: KeysTile,
) {
    let share = comptime!(tile.scores());
    let rows = comptime!(tile.rows());
    let row = share_row(share);
    let column = share_column(share);
    let origin = opaque(0u32) as usize;
    let stage_row = origin + stage * tile.queries + row;
    let mut scores = zeros::<P>(comptime!(share.accumulators()));
    let mut of_weights = zeros::<P>(comptime!(share.accumulators()));
    #[unroll]
    for step in 0..share.steps {
        let vector = step * comptime!(SIDE / LOAD);
        let queries = left_tiles::<F, N, P>(&blocks.queries, stage_row, vector, share.rows, rows);
        let gradients = left_tiles::<F, N, P>(&blocks.gradients, stage_row, vector, share.rows, rows);
        add_scores::<F, N, P>(
            &queries,
            &gradients,
            keys,
            values,
            origin + column,
            vector,
            &mut scores,
            &mut of_weights,
            share,
            rows,
        );
    }

    let mut statistics = Array::<f32>::new(comptime!(share.rows * 2));
    let mut products = Array::<f32>::new(comptime!(share.rows * 2));
    #[unroll]
    for half in 0..comptime!(share.rows * 2) {
        let place = stage_row + half * 8 + lane() / 4;
        statistics[half] = statistic(blocks.log_sum_exp[place], problem.nothing);
        products[half] = blocks.along[place];
    }
    let place = ScorePlace {
        query: block.first + row,
        key: first_key + column,
        head: block.head,
        sample: block.sample,
    };
    weigh::<P>(
        &mut scores,
        &mut of_weights,
        &statistics,
        &products,
        problem,
        bias,
        dropped,
        &place,
        share,
        tile.has_dropout,
    );
    let query_end = place.query + comptime!(share.rows * SIDE);
    if is_edge(&place, problem, share) || is_outside(ranges, common, place.query, query_end) {
        hide::<P>(&mut scores, &mut of_weights, problem, ranges, &place, share);
    }
    #[comptime]
    if let ComptimeOption::Some(of_bias) = of_bias {
        add_to_bias::<P>(
            &of_weights,
            of_bias,
            problem,
            place.head,
            place.query,
            place.key,
            share.rows,
            share.columns,
        );
    }
    exchange::<F, N, P>(&scores, weights, row, column, share, comptime!(tile.weights()));
    exchange::<F, N, P>(&of_weights, of_scores, row, column, share, comptime!(tile.weights()));
}

/// Writes a plane's accumulators, from `row` and `column` on, where other planes load them as factors.
#[cube]
fn exchange<F: Float, N: Size, P: Size>(
    from: &Array<Vector<f32, P>>,
    to: &mut Shared<[Vector<F, N>]>,
    row: usize,
    column: usize,
    #[comptime] share: Share,
    #[comptime] tile: Tile,
) {
    let lane = lane();
    #[unroll]
    for index in 0..comptime!(share.rows * 2) {
        #[unroll]
        for tile_column in 0..share.columns {
            // Eight elements are one load.
            let vector = column / LOAD + tile_column;
            let place = fragment_place(0usize, row + index * 8, lane / 4, vector, 0usize, tile);
            let pairs = to.slice_mut(place, place + 1).with_vector_size_mut::<P>();
            let pair = from[(index / 2 * share.columns + tile_column) * 2 + index % 2];
            pairs[lane % 4] = Vector::cast_from(pair);
        }
    }
}

/// Adds a block's part of the gradients of keys, or of values: the product of what there is for each query and key,
/// transposed, with rows of the queries.
#[cube]
fn add_to_keys<F: Float, N: Size, P: Size>(
    weights: &Shared<[Vector<F, N>]>,
    rows: &Shared<[Vector<F, N>]>,
    at: usize,
    sums: &mut Array<Vector<f32, P>>,
    #[comptime] tile: KeysTile,
) {
    let share = comptime!(tile.key_gradients());
    let key = share_row(share) / LOAD;
    let element = share_column(share) / LOAD;
    let origin = opaque(0u32) as usize;
    #[unroll]
    for step in 0..share.steps {
        let mut factors = Array::<Vector<F, P>>::new(comptime!(share.rows * 4));
        #[unroll]
        for row in 0..share.rows {
            let vector = key + row * comptime!(SIDE / LOAD);
            let loaded = left_of_columns::<F, N, P>(weights, origin + step * SIDE, vector, comptime!(tile.weights()));
            #[unroll]
            for register in 0..4usize {
                factors[row * 4 + register] = loaded[register];
            }
        }
        #[unroll]
        for pair in 0..comptime!(share.columns / 2) {
            let vector = element + pair * 2;
            let columns = right_of_columns::<F, N, P>(rows, at, origin + step * SIDE, vector, comptime!(tile.rows()));
            multiply_tiles::<F, P>(&factors, &columns, sums, pair * 2, share);
        }
    }
}

/// Adds a block's part of the gradients of its queries to those of all cubes.
#[cube]
fn add_to_queries<F: Float, N: Size, P: Size>(
    of_scores: &Shared<[Vector<F, N>]>,
    keys: &Shared<[Vector<F, N>]>,
    sums: &[Atomic<f32>],
    block: &QueryBlock,
    queries: usize,
    #[comptime] tile: KeysTile,
) {
    let share = comptime!(tile.query_gradients());
    let row = share_row(share);
    let element = share_column(share);
    let origin = opaque(0u32) as usize;
    let mut part = zeros::<P>(comptime!(share.accumulators()));
    #[unroll]
    for step in 0..share.steps {
        let vector = step * comptime!(SIDE / LOAD);
        let factors = left_tiles::<F, N, P>(of_scores, origin + row, vector, share.rows, comptime!(tile.weights()));
        #[unroll]
        for pair in 0..comptime!(share.columns / 2) {
            let vector = element / LOAD + pair * 2;
            let columns =
                right_of_columns::<F, N, P>(keys, 0usize, origin + step * SIDE, vector, comptime!(tile.rows()));
            multiply_tiles::<F, P>(&factors, &columns, &mut part, pair * 2, share);
        }
    }
    let head_rows = queries.div_ceil(tile.queries) * tile.queries;
    let head = block.sample * block.heads + block.head;
    let at = (head * head_rows + block.first + row) * tile.width + element * SIDE + lane();
    #[unroll]
    for row in 0..share.rows {
        #[unroll]
        for index in 0..comptime!(share.columns * 4) {
            let pair = part[row * comptime!(share.columns * 2) + index / 2];
            let place = at + comptime!(row * SIDE * tile.width + index * PLANE);
            sums[place].fetch_add(pair.extract(index % 2));
        }
    }
}
