//! Scores of a block, its weights, and the gradients of the scores: both forms compute them first.
//!
//! Rows are queries, columns keys. A plane has its share of both in accumulators.

use cubecl::prelude::*;

use super::super::super::device::{KeyRanges, Problem, RelativeBias, fragment_factors, is_outside, keys_of};
use super::super::bias::add_bias;
use super::super::tile::{COLUMNS, LOG2_E, SIDE, Tile, exp2, lane, left, multiply, right_of_rows};
use super::split::Share;
use crate::cube::dropout::DroppedRows;

/// Where a plane's share of a block's scores is.
#[derive(CubeType, Clone, Copy)]
pub struct ScorePlace {
    /// First query.
    pub query: usize,
    /// First key.
    pub key: usize,
    /// The queries' head.
    pub head: usize,
    pub sample: usize,
}

/// Accumulators, all 0.
#[cube]
pub fn zeros<P: Size>(#[comptime] count: usize) -> Array<Vector<f32, P>> {
    let mut sums = Array::<Vector<f32, P>>::new(count);
    #[unroll]
    for index in 0..count {
        sums[index] = Vector::new(0.0f32);
    }
    sums
}

/// Loads left fragments of tiles of 16 rows one below the other.
#[cube]
pub fn left_tiles<F: Float, N: Size, P: Size>(
    from: &Shared<[Vector<F, N>]>,
    row: usize,
    vector: usize,
    #[comptime] rows: usize,
    #[comptime] tile: Tile,
) -> Array<Vector<F, P>> {
    let mut factors = Array::<Vector<F, P>>::new(comptime!(rows * 4));
    #[unroll]
    for index in 0..rows {
        let loaded = left::<F, N, P>(from, row + index * SIDE, vector, tile);
        #[unroll]
        for register in 0..4usize {
            factors[index * 4 + register] = loaded[register];
        }
    }
    factors
}

/// Adds the products of a plane's left fragments with two right ones, whose columns begin at tile `column`.
#[cube]
pub fn multiply_tiles<F: Float, P: Size>(
    factors: &Array<Vector<F, P>>,
    right: &Array<Vector<F, P>>,
    sums: &mut Array<Vector<f32, P>>,
    column: usize,
    #[comptime] share: Share,
) {
    #[unroll]
    for row in 0..share.rows {
        let mut factor = Array::<Vector<F, P>>::new(4usize);
        #[unroll]
        for register in 0..4usize {
            factor[register] = factors[row * 4 + register];
        }
        #[unroll]
        for which in 0..2usize {
            multiply::<F, P>(&factor, right, which, sums, row * share.columns + column + which);
        }
    }
}

/// Adds 16 elements' part of the scores, and of the gradients of the weights: from fragments of queries and of the
/// gradients of the output, with keys from row `row` on and values.
#[cube]
#[allow(clippy::too_many_arguments)]
pub fn add_scores<F: Float, N: Size, P: Size>(
    queries: &Array<Vector<F, P>>,
    gradients: &Array<Vector<F, P>>,
    keys: &Shared<[Vector<F, N>]>,
    values: &Shared<[Vector<F, N>]>,
    row: usize,
    vector: usize,
    scores: &mut Array<Vector<f32, P>>,
    of_weights: &mut Array<Vector<f32, P>>,
    #[comptime] share: Share,
    #[comptime] tile: Tile,
) {
    #[unroll]
    for pair in 0..comptime!(share.columns / 2) {
        let columns = right_of_rows::<F, N, P>(keys, 0usize, row + pair * SIDE, vector, tile);
        multiply_tiles::<F, P>(queries, &columns, scores, pair * 2, share);
        let columns = right_of_rows::<F, N, P>(values, 0usize, row + pair * SIDE, vector, tile);
        multiply_tiles::<F, P>(gradients, &columns, of_weights, pair * 2, share);
    }
}

/// Makes weights of scores, and gradients of the scores of those of the weights; where weights are dropped, what is
/// left of them. `statistics` and `products` are those of each query, of the tiles' rows `lane / 4` and eight below.
#[cube]
#[allow(clippy::too_many_arguments)]
pub fn weigh<P: Size>(
    scores: &mut Array<Vector<f32, P>>,
    of_weights: &mut Array<Vector<f32, P>>,
    statistics: &Array<f32>,
    products: &Array<f32>,
    problem: &Problem,
    bias: &ComptimeOption<RelativeBias>,
    dropped: &ComptimeOption<DroppedRows>,
    place: &ScorePlace,
    #[comptime] share: Share,
    #[comptime] has_dropout: bool,
) {
    if comptime!(bias.is_some()) {
        add_bias::<P>(
            scores,
            bias,
            problem,
            place.head,
            place.query,
            place.key,
            share.rows,
            share.columns,
        );
    }
    let sharpness = problem.scale * LOG2_E;
    #[unroll]
    for row in 0..share.rows {
        #[unroll]
        for column in 0..share.columns {
            let mut factors = Array::<f32>::new(4usize);
            if comptime!(has_dropout) {
                let query = place.query + row * SIDE;
                let drawn = fragment_factors(dropped, problem, query, place.head, place.key + column * COLUMNS);
                #[unroll]
                for index in 0..4usize {
                    factors[index] = drawn[index];
                }
            }
            #[unroll]
            for half in 0..2usize {
                let index = (row * share.columns + column) * 2 + half;
                let shift = Vector::new(statistics[row * 2 + half]);
                let weight = exp2(scores[index] * Vector::new(sharpness) - shift);
                let mut kept = weight;
                let mut gradient = of_weights[index];
                if comptime!(has_dropout) {
                    #[unroll]
                    for element in 0..2usize {
                        kept.insert(element, weight.extract(element) * factors[half * 2 + element]);
                        gradient.insert(element, gradient.extract(element) * factors[half * 2 + element]);
                    }
                }
                scores[index] = kept;
                of_weights[index] = weight * (gradient - Vector::new(products[row * 2 + half]));
            }
        }
    }
}

/// Returns whether a plane's share of a block has pairs of which the query does not see the key, or of which there is
/// none.
#[cube]
pub fn is_edge(place: &ScorePlace, problem: &Problem, #[comptime] share: Share) -> bool {
    let end = place.key + comptime!(share.columns * COLUMNS);
    let queries_end = place.query + comptime!(share.rows * SIDE);
    end > problem.keys || queries_end > problem.queries || (problem.is_causal != 0 && end > place.query + 1)
}

/// Makes weights, and gradients of scores, 0 where the query does not see the key, or there is no such query.
#[cube]
pub fn hide<P: Size>(
    weights: &mut Array<Vector<f32, P>>,
    of_scores: &mut Array<Vector<f32, P>>,
    problem: &Problem,
    ranges: &ComptimeOption<KeyRanges>,
    place: &ScorePlace,
    #[comptime] share: Share,
) {
    let lane = lane();
    #[unroll]
    for row in 0..share.rows {
        #[unroll]
        for column in 0..share.columns {
            #[unroll]
            for half in 0..2usize {
                let index = (row * share.columns + column) * 2 + half;
                let query = place.query + row * SIDE + half * 8 + lane / 4;
                let is_beyond = query >= problem.queries;
                let own = keys_of(ranges, problem, place.sample, query);
                let mut weight = weights[index];
                let mut of_score = of_scores[index];
                #[unroll]
                for element in 0..2usize {
                    let key = place.key + column * COLUMNS + lane % 4 * 2 + element;
                    let is_hidden = is_beyond
                        || key >= problem.keys
                        || (problem.is_causal != 0 && key > query)
                        || is_outside(ranges, &own, key, key + 1);
                    weight.insert(element, select(is_hidden, 0.0f32, weight.extract(element)));
                    of_score.insert(element, select(is_hidden, 0.0f32, of_score.extract(element)));
                }
                weights[index] = weight;
                of_scores[index] = of_score;
            }
        }
    }
}

/// Returns a query's `log Σ exp` among exponents of 2; where it sees nothing, what makes its weights 0.
#[cube]
pub fn statistic(log_sum_exp: f32, nothing: f32) -> f32 {
    let value = select(log_sum_exp == nothing, 0.0f32 - nothing, log_sum_exp);
    value * LOG2_E
}
