//! The relative bias of a block of scores, and the sums of the scores' gradients that are its gradient.
//!
//! Each head's numbers are turned round, so that what adjacent queries take for a key is adjacent, as their scores are:
//! of query `q` and key `k` it is the number at `keys - 1 - k + q`. They are divided by the scale, and the products of
//! queries and keys are added to them; so nothing is different where scores are weighed.

use std::ops::Range;

use super::block::{LANES, Queries};
use crate::flex::blocks::add_up;
use crate::flex::math::{Real, vectorised};

/// A relative bias, turned round and divided by the scale.
pub(super) struct Bias<R> {
    values: Vec<R>,
    layout: Layout,
}

/// Where the numbers of heads are.
#[derive(Clone, Copy)]
struct Layout {
    keys: usize,
    /// Distances between keys and queries.
    distances: usize,
}

impl Layout {
    /// Of each head, with what is read past the last query of a vector.
    fn row(self) -> usize {
        self.distances + LANES
    }

    /// Where that of a key and of the first query is.
    fn place(self, head: usize, key: usize, query: usize) -> usize {
        head * self.row() + self.keys - 1 - key + query
    }
}

impl<R: Real> Bias<R> {
    /// That of a table `[heads, distances]`.
    pub fn new(table: &[R], distances: usize, keys: usize, scale: R) -> Self {
        let layout = Layout { keys, distances };
        let mut values = Vec::with_capacity(table.len() / distances.max(1) * layout.row());
        for of_head in table.chunks_exact(distances.max(1)) {
            values.extend(of_head.iter().rev().map(|&value| value / scale));
            values.extend([R::ZERO; LANES]);
        }
        Self { values, layout }
    }

    /// Writes that of a block of scores.
    pub fn write(&self, scores: &mut [R], head: usize, block: &Queries<'_>, keys: Range<usize>) {
        let width = block.width();
        for (key, scores) in keys.zip(scores.chunks_exact_mut(width)) {
            let first = self.layout.place(head, key, block.range.start);
            scores.copy_from_slice(&self.values[first..first + width]);
        }
    }

    /// Zeros for the gradients of some heads.
    pub fn sums(&self, heads: usize) -> BiasSums<R> {
        BiasSums {
            values: vec![R::ZERO; heads * self.layout.row()],
            layout: self.layout,
        }
    }
}

/// The sums along diagonals of the gradients of some heads' scores, turned round and before they are divided by the
/// scale.
pub(super) struct BiasSums<R> {
    values: Vec<R>,
    layout: Layout,
}

impl<R: Real> BiasSums<R> {
    /// Adds a block's gradients; `head` is its number among the heads of the sums.
    pub fn add(&mut self, gradients: &[R], head: usize, block: &Queries<'_>, keys: Range<usize>) {
        let width = block.width();
        let layout = self.layout;
        vectorised(
            #[inline(always)]
            || {
                for (key, gradients) in keys.clone().zip(gradients.chunks_exact(width)) {
                    let first = layout.place(head, key, block.range.start);
                    // Past the last query there are zeros.
                    for (sum, gradient) in self.values[first..first + width].iter_mut().zip(gradients) {
                        *sum = *sum + *gradient;
                    }
                }
            },
        );
    }

    /// Returns the gradient `[heads, distances]` of the bias: the sum over the samples, each of which has the sums of
    /// `parts` tasks, one after the other.
    pub fn gradient(tasks: &[Self], parts: usize, distances: usize, scale: R) -> Vec<R> {
        let mut gradient = Vec::new();
        for part in 0..parts {
            let of_samples = tasks.iter().skip(part).step_by(parts);
            let row = distances + LANES;
            let length = tasks.first().map_or(0, |sums| sums.values.len());
            let sums = add_up(of_samples.map(|sums| sums.values.as_slice()), length);
            for of_head in sums.chunks_exact(row) {
                let turned = of_head[..distances].iter().rev();
                gradient.extend(turned.map(|&sum| sum / scale));
            }
        }
        gradient
    }
}
