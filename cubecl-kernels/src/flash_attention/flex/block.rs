//! The passes over a block of scores, `[keys, width]` with its queries side by side.

use std::ops::Range;

use super::{KEYS, QUERIES};
use crate::flash_attention::AttentionOptions;
use crate::flex::math::Real;
use crate::random::philox::philox4x32_10;
use crate::random::{BLOCK_BITS, RowDropout};

/// Queries that are computed with at once: a vector of f32 in AVX-512.
pub(super) const LANES: usize = 16;

/// A block's queries, with what the passes need to know of each. Made once for each block of queries.
pub(super) struct Queries<'a> {
    /// Their numbers in the sample.
    pub range: Range<usize>,
    /// The first key that each of them sees, and how many it sees.
    first_keys: [u32; QUERIES],
    seen_keys: [u32; QUERIES],
    dropout: Option<&'a RowDropout>,
    /// The first word of the counters, without the number of the block of four columns.
    head: u32,
    positions: [u32; QUERIES],
    samples: [u32; QUERIES],
}

impl<'a> Queries<'a> {
    /// The block of a sample and head from a query on; `queries` and `keys` are the numbers of the sample's.
    pub fn new([sample, head, first]: [usize; 3], [queries, keys]: [usize; 2], options: &'a AttentionOptions) -> Self {
        let range = first..queries.min(first + QUERIES);
        let (mut first_keys, mut seen_keys) = ([0; QUERIES], [0; QUERIES]);
        for (lane, query) in range.clone().enumerate() {
            let seen = options.keys_seen(sample, query, keys);
            [first_keys[lane], seen_keys[lane]] = [seen.start, seen.len()].map(|number| number as u32);
        }
        let (mut positions, mut samples) = ([0; QUERIES], [0; QUERIES]);
        let mut head_word = 0;
        if let Some(dropout) = &options.dropout {
            for (lane, query) in range.clone().enumerate() {
                [positions[lane], samples[lane], _] = dropout.row_words(sample * queries + query);
            }
            head_word = (dropout.first_head + head as u32) << BLOCK_BITS;
        }
        Self {
            range,
            first_keys,
            seen_keys,
            dropout: options.dropout.as_ref(),
            head: head_word,
            positions,
            samples,
        }
    }

    /// How many scores of a key are adjacent: the queries, and what fills the last vector.
    pub fn width(&self) -> usize {
        self.range.len().next_multiple_of(LANES)
    }

    /// The keys that one of the queries sees, in blocks; the first number is divisible by 4.
    pub fn key_blocks(&self) -> impl Iterator<Item = Range<usize>> {
        let last = self.range.len() - 1;
        let start = self.first_keys[0] as usize / 4 * 4;
        let end = (self.first_keys[last] + self.seen_keys[last]) as usize;
        (start..end)
            .step_by(KEYS)
            .map(move |first| first..end.min(first + KEYS))
    }

    /// Which of a vector of queries see a key.
    #[inline(always)]
    fn see(&self, key: usize, first_lane: usize) -> [bool; LANES] {
        let first_keys: &[u32; LANES] = (&self.first_keys[first_lane..][..LANES]).try_into().expect("a vector");
        let seen_keys: &[u32; LANES] = (&self.seen_keys[first_lane..][..LANES]).try_into().expect("a vector");
        let mut see = [false; LANES];
        for lane in 0..LANES {
            // Of an earlier key the difference is a large number.
            see[lane] = (key as u32).wrapping_sub(first_keys[lane]) < seen_keys[lane];
        }
        see
    }

    /// The random words of four keys, from one with a number divisible by 4 on, and of a vector of queries.
    #[inline(always)]
    fn words(&self, dropout: &RowDropout, key: usize, first_lane: usize) -> [[u32; LANES]; 4] {
        let positions: &[u32; LANES] = (&self.positions[first_lane..][..LANES]).try_into().expect("a vector");
        let samples: &[u32; LANES] = (&self.samples[first_lane..][..LANES]).try_into().expect("a vector");
        let first = (key / 4) as u32 | self.head;
        let mut words = [[0; LANES]; 4];
        for lane in 0..LANES {
            let counter = [first, positions[lane], samples[lane], dropout.iteration];
            let of_lane = philox4x32_10(counter, dropout.key);
            for column in 0..4 {
                words[column][lane] = of_lane[column];
            }
        }
        words
    }

    /// What dropout multiplies the weights by of four keys and a vector of queries.
    #[inline(always)]
    fn factors<R: Real>(&self, key: usize, first_lane: usize) -> [[R; LANES]; 4] {
        let mut factors = [[R::ONE; LANES]; 4];
        if let Some(dropout) = self.dropout {
            let (threshold, kept) = (dropout.threshold(), R::of(dropout.scale()));
            let words = self.words(dropout, key, first_lane);
            for column in 0..4 {
                for lane in 0..LANES {
                    factors[column][lane] = if words[column][lane] >= threshold {
                        kept
                    } else {
                        R::ZERO
                    };
                }
            }
        }
        factors
    }
}

/// What the forward pass knows of the queries after some blocks of keys.
pub(super) struct Running<R> {
    /// The largest score, scaled.
    pub maximum: [R; QUERIES],
    /// `Σ exp(score − maximum)`, before dropout.
    pub sum: [R; QUERIES],
    /// What the sums of the blocks before are multiplied by, because the maximum has changed.
    pub rescale: [R; QUERIES],
}

impl<R: Real> Running<R> {
    pub fn new() -> Self {
        Self {
            maximum: [R::NEG_INFINITY; QUERIES],
            sum: [R::ZERO; QUERIES],
            rescale: [R::ONE; QUERIES],
        }
    }

    /// Makes weights of a block of scores: `exp(scale * score − maximum)`, 0 where dropout lets them fall.
    ///
    /// To be called inside [`vectorised`](crate::flex::math::vectorised).
    #[inline(always)]
    pub fn weigh(&mut self, scores: &mut [R], queries: &Queries<'_>, keys: Range<usize>, scale: R) {
        let width = queries.width();
        for first_lane in (0..width).step_by(LANES) {
            let before: [R; LANES] = vector(&self.maximum, first_lane);
            let mut maximum = before;
            for (key, scores) in keys.clone().zip(scores.chunks_exact_mut(width)) {
                let see = queries.see(key, first_lane);
                let scores = vector_mut(scores, first_lane);
                for lane in 0..LANES {
                    let score = if see[lane] {
                        scores[lane] * scale
                    } else {
                        R::NEG_INFINITY
                    };
                    scores[lane] = score;
                    maximum[lane] = score.larger(maximum[lane]);
                }
            }
            let mut shift = maximum;
            let mut sum: [R; LANES] = vector(&self.sum, first_lane);
            for lane in 0..LANES {
                // A query that has seen nothing, or −∞ alone, weighs nothing.
                if shift[lane] == R::NEG_INFINITY {
                    shift[lane] = R::ZERO;
                }
                let rescale = (before[lane] - shift[lane]).exp();
                self.rescale[first_lane + lane] = rescale;
                sum[lane] = sum[lane] * rescale;
            }
            for scores in scores.chunks_exact_mut(width) {
                let scores = vector_mut(scores, first_lane);
                for lane in 0..LANES {
                    let weight = (scores[lane] - shift[lane]).exp();
                    scores[lane] = weight;
                    sum[lane] = sum[lane] + weight;
                }
            }
            *vector_mut(&mut self.maximum, first_lane) = maximum;
            *vector_mut(&mut self.sum, first_lane) = sum;
            if let Some(dropout) = queries.dropout {
                let threshold = dropout.threshold();
                for (key, scores) in keys.clone().step_by(4).zip(scores.chunks_mut(4 * width)) {
                    let words = queries.words(dropout, key, first_lane);
                    for (scores, words) in scores.chunks_exact_mut(width).zip(words) {
                        let scores = vector_mut(scores, first_lane);
                        for lane in 0..LANES {
                            scores[lane] = if words[lane] >= threshold {
                                scores[lane]
                            } else {
                                R::ZERO
                            };
                        }
                    }
                }
            }
        }
    }

    /// `log Σ exp` of a query's scores.
    pub fn log_sum_exp(&self, lane: usize) -> R {
        let maximum = self.maximum[lane];
        let shift = if maximum == R::NEG_INFINITY { R::ZERO } else { maximum };
        R::of(self.sum[lane].to_f64().ln()) + shift
    }
}

/// What the backward pass knows of the queries.
pub(super) struct Known<R> {
    /// `log Σ exp` of the scores, 0 where a query sees nothing.
    pub log_sum_exp: [R; QUERIES],
    /// The products of the outputs and their gradients, which are the sums of those of weights and theirs.
    pub along: [R; QUERIES],
    /// What `exp(score − log_sum_exp)` is multiplied by, 1 but for the rounding of large scores.
    pub share: [R; QUERIES],
}

impl<R: Real> Known<R> {
    pub fn new() -> Self {
        Self {
            log_sum_exp: [R::ZERO; QUERIES],
            along: [R::ZERO; QUERIES],
            share: [R::ONE; QUERIES],
        }
    }

    /// Finds [`along`](Self::along) and [`share`](Self::share) by [`add`](Self::add) over all blocks of keys, and
    /// [`finish`](Self::finish).
    pub fn start(&mut self) {
        self.along = [R::ZERO; QUERIES];
        self.share = [R::ZERO; QUERIES];
    }

    /// Sums have been added up.
    pub fn finish(&mut self) {
        for (along, share) in self.along.iter_mut().zip(&mut self.share) {
            // Nothing, where a query sees nothing.
            *share = if *share > R::ZERO { R::ONE / *share } else { R::ONE };
            *along = *along * *share;
        }
    }

    /// Adds what a block contributes: `Σ weight * factor * gradient`, and `Σ weight`.
    ///
    /// To be called inside [`vectorised`](crate::flex::math::vectorised).
    #[inline(always)]
    pub fn add(&mut self, [scores, gradients]: [&[R]; 2], queries: &Queries<'_>, keys: Range<usize>, scale: R) {
        let width = queries.width();
        for first_lane in (0..width).step_by(LANES) {
            let log_sum_exp: [R; LANES] = vector(&self.log_sum_exp, first_lane);
            let mut along: [R; LANES] = vector(&self.along, first_lane);
            let mut sum: [R; LANES] = vector(&self.share, first_lane);
            let blocks = scores.chunks(4 * width).zip(gradients.chunks(4 * width));
            for (first_key, (scores, gradients)) in keys.clone().step_by(4).zip(blocks) {
                let factors = queries.factors::<R>(first_key, first_lane);
                let rows = scores.chunks_exact(width).zip(gradients.chunks_exact(width));
                for ((key, factors), (scores, gradients)) in (first_key..).zip(factors).zip(rows) {
                    let see = queries.see(key, first_lane);
                    let (scores, gradients) = (&scores[first_lane..][..LANES], &gradients[first_lane..][..LANES]);
                    for lane in 0..LANES {
                        let weight = (scores[lane] * scale - log_sum_exp[lane]).exp();
                        let weight = if see[lane] { weight } else { R::ZERO };
                        let gradient = if see[lane] { gradients[lane] } else { R::ZERO };
                        sum[lane] = sum[lane] + weight;
                        along[lane] = along[lane] + weight * factors[lane] * gradient;
                    }
                }
            }
            *vector_mut(&mut self.along, first_lane) = along;
            *vector_mut(&mut self.share, first_lane) = sum;
        }
    }

    /// Makes of a block of scores the weights after dropout, and of these weights' gradients those of the scores before
    /// they were scaled.
    ///
    /// To be called inside [`vectorised`](crate::flex::math::vectorised).
    #[inline(always)]
    pub fn gradients(&self, [scores, gradients]: [&mut [R]; 2], queries: &Queries<'_>, keys: Range<usize>, scale: R) {
        let width = queries.width();
        for first_lane in (0..width).step_by(LANES) {
            let log_sum_exp: [R; LANES] = vector(&self.log_sum_exp, first_lane);
            let along: [R; LANES] = vector(&self.along, first_lane);
            let share: [R; LANES] = vector(&self.share, first_lane);
            let blocks = scores.chunks_mut(4 * width).zip(gradients.chunks_mut(4 * width));
            for (first_key, (scores, gradients)) in keys.clone().step_by(4).zip(blocks) {
                let factors = queries.factors::<R>(first_key, first_lane);
                let rows = scores.chunks_exact_mut(width).zip(gradients.chunks_exact_mut(width));
                for ((key, factors), (scores, gradients)) in (first_key..).zip(factors).zip(rows) {
                    let see = queries.see(key, first_lane);
                    let (scores, gradients) = (vector_mut(scores, first_lane), vector_mut(gradients, first_lane));
                    for lane in 0..LANES {
                        let weight = (scores[lane] * scale - log_sum_exp[lane]).exp() * share[lane];
                        let gradient = weight * (gradients[lane] * factors[lane] - along[lane]) * scale;
                        scores[lane] = if see[lane] { weight * factors[lane] } else { R::ZERO };
                        gradients[lane] = if see[lane] { gradient } else { R::ZERO };
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn vector<R: Real>(values: &[R; QUERIES], first_lane: usize) -> [R; LANES] {
    let mut vector = [R::ZERO; LANES];
    vector.copy_from_slice(&values[first_lane..][..LANES]);
    vector
}

#[inline(always)]
fn vector_mut<R: Real>(values: &mut [R], first_lane: usize) -> &mut [R; LANES] {
    (&mut values[first_lane..][..LANES]).try_into().expect("a vector")
}
