//! Sizes of tiles, loads, and the scores of a block, which the kernels share.

use cubecl::prelude::*;

use super::super::device::{HeadRows, KeyRanges, Problem, RelativeBias, bias_of, factors, is_outside, keys_of};
use super::{SIDE, UNITS};
use crate::cube::dropout::DroppedRows;

/// How large the tiles are that a cube holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tile {
    /// Queries.
    pub queries: usize,
    /// Keys.
    pub keys: usize,
    /// Elements of a head, rounded up; those beyond the head's are zeros.
    pub width: usize,
    /// True if weights are dropped.
    pub has_dropout: bool,
}

/// Which of the kernels a tile is for: they hold other tiles at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    Forward,
    KeyGradients,
    QueryGradients,
}

impl Tile {
    /// The tile for heads of `d_head` elements.
    ///
    /// It is as large as 32 KiB allow: forward the tiles of queries, keys, values and weights; backward also that of
    /// the output's gradient. Multiples of [`SIDE`], except where the widest heads leave less.
    pub fn new(pass: Pass, d_head: usize, has_dropout: bool) -> Self {
        let widths = [16, 32, 64, 96, 128, 192, 256];
        let width = widths.into_iter().find(|&width| width >= d_head);
        let width = width.expect("heads are checked to have at most 256 elements");
        // What stays in the cube, and what goes by.
        let (stays, passes) = match (pass, width) {
            (Pass::Forward, ..=64) => (32, 32),
            (Pass::Forward, ..=128) => (16, 16),
            (Pass::Forward, _) => (8, 8),
            (_, ..=32) => (32, 32),
            (_, ..=64) => (32, 16),
            (_, ..=96) => (16, 16),
            (_, ..=128) => (16, 8),
            (_, ..=192) => (8, 8),
            _ => (8, 4),
        };
        let (queries, keys) = match pass {
            Pass::KeyGradients => (passes, stays),
            _ => (stays, passes),
        };
        Self {
            queries,
            keys,
            width,
            has_dropout,
        }
    }
}

/// Loads rows into shared memory, as consecutive numbers; zeros where there is no row or no element.
#[cube]
pub fn load<F: Float, N: Size>(
    from: &[Vector<F, N>],
    rows: &HeadRows,
    first: usize,
    to: &mut Shared<[f32]>,
    #[comptime] length: usize,
    #[comptime] width: usize,
) {
    let size = N::value();
    let vectors = comptime!(width / size);
    let stride = comptime!(width + 1);
    let mut index = UNIT_POS as usize;
    while index < comptime!(length * vectors) {
        let row = index / vectors;
        let column = index % vectors * size;
        let mut numbers = Vector::<f32, N>::new(0.0f32);
        if first + row < rows.count && column < rows.d_head {
            let place = (rows.start + (first + row) * rows.stride + column) / size;
            numbers = Vector::cast_from(from[place]);
        }
        #[unroll]
        for element in 0..size {
            to[row * stride + column + element] = numbers.extract(element);
        }
        index += UNITS;
    }
}

/// Which blocks of queries and of keys are worked on.
#[derive(CubeType, Clone, Copy)]
pub struct BlockPlace {
    pub sample: usize,
    /// The queries' head.
    pub head: usize,
    /// The first query.
    pub query: usize,
    /// The first key.
    pub key: usize,
    /// Where what is known of the head's queries is.
    pub statistics: usize,
}

/// For a block of queries and one of keys: the weights as dropout leaves them, and the scores' gradients.
#[cube]
#[allow(clippy::too_many_arguments)]
pub fn gradients_of_scores(
    tiles: &Tiles,
    weights: &mut Shared<[f32]>,
    of_scores: &mut Shared<[f32]>,
    log_sum_exp: &[f32],
    along: &[f32],
    block: &BlockPlace,
    problem: &Problem,
    ranges: &ComptimeOption<KeyRanges>,
    bias: &ComptimeOption<RelativeBias>,
    dropped: &ComptimeOption<DroppedRows>,
    #[comptime] tile: Tile,
) {
    let rows = comptime!(if tile.queries < SIDE { 1 } else { tile.queries / SIDE });
    let columns = comptime!(if tile.keys < SIDE { 1 } else { tile.keys / SIDE });
    let stride = comptime!(tile.width + 1);
    let weight_stride = comptime!(tile.keys + 1);
    let unit_row = UNIT_POS as usize / SIDE;
    let unit_column = UNIT_POS as usize % SIDE;
    if unit_row * rows < tile.queries && unit_column * columns < tile.keys {
        let mut scores = Array::<f32>::new(comptime!(rows * columns));
        let mut of_weights = Array::<f32>::new(comptime!(rows * columns));
        #[unroll]
        for index in 0..comptime!(rows * columns) {
            scores[index] = 0.0f32;
            of_weights[index] = 0.0f32;
        }
        for element in 0..tile.width {
            #[unroll]
            for row in 0..rows {
                let place = (unit_row + row * SIDE) * stride + element;
                let query = tiles.query[place];
                let gradient = tiles.gradient[place];
                #[unroll]
                for column in 0..columns {
                    let place = (unit_column * columns + column) * stride + element;
                    scores[row * columns + column] += query * tiles.key[place];
                    of_weights[row * columns + column] += gradient * tiles.value[place];
                }
            }
        }
        let size!(C) = columns;
        #[unroll]
        for row in 0..rows {
            let tile_row = unit_row + row * SIDE;
            let query = block.query + tile_row;
            let mut statistic = 0.0f32;
            let mut along_row = 0.0f32;
            if query < problem.queries {
                statistic = log_sum_exp[block.statistics + query];
                along_row = along[block.statistics + query];
            }
            let own = keys_of(ranges, problem, block.sample, query);
            let key = block.key + unit_column * columns;
            let mut kept = Vector::<f32, C>::new(1.0f32);
            if comptime!(tile.has_dropout) {
                kept = factors::<C>(dropped, problem, block.sample, query, block.head, key);
            }
            #[unroll]
            for column in 0..columns {
                let index = row * columns + column;
                let seen = query < problem.queries
                    && key + column < problem.keys
                    && (problem.is_causal == 0 || key + column <= query)
                    && !is_outside(ranges, &own, key + column, key + column + 1);
                // A query that sees nothing has the statistic −∞ and weighs nothing. One that is no number differs from
                // −∞, for which not every shader language has a `!=`.
                let is_nothing = statistic == problem.nothing;
                let seen = seen && !is_nothing;
                let mut score = scores[index] * problem.scale;
                if comptime!(bias.is_some()) {
                    score += bias_of(bias, problem, block.head, query, key + column);
                }
                let weight = (score - statistic).exp();
                let mut of_weight = of_weights[index];
                let mut weight_kept = weight;
                if comptime!(tile.has_dropout) {
                    of_weight *= kept.extract(column);
                    weight_kept *= kept.extract(column);
                }
                let of_score = weight * (of_weight - along_row) * problem.scale;
                let place = tile_row * weight_stride + unit_column * columns + column;
                weights[place] = select(seen, weight_kept, 0.0f32);
                of_scores[place] = select(seen, of_score, 0.0f32);
            }
        }
    }
}

/// The tiles in shared memory that the backward pass works on.
#[derive(CubeType)]
pub struct Tiles {
    pub query: Shared<[f32]>,
    pub key: Shared<[f32]>,
    pub value: Shared<[f32]>,
    /// Gradient of the output.
    pub gradient: Shared<[f32]>,
}
