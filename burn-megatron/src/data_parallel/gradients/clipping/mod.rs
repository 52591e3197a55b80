//! Clipping as burn's optimizers do it: each parameter by itself, by value or by the norm of the whole parameter.
//!
//! burn clips what one process holds. Here a parameter may be cut over tensor-parallel ranks, and its gradient over
//! data-parallel ones, so the squares of all pieces are added up first.

use std::collections::HashMap;

use burn::grad_clipping::GradientClipping;

use super::reduced::ReducedGradients;
use crate::collectives::{CollectiveError, ReduceOp};
use crate::context::ParallelContext;
use crate::data_parallel::buckets::flat::{BucketRange, FlatBuffer};
use crate::data_parallel::buckets::gradient_entry::GradientEntry;

impl ReducedGradients {
    /// Clips the gradient of each parameter by itself, as burn's optimizers do with
    /// [`with_grad_clipping`](burn::optim::AdamWConfig::with_grad_clipping).
    ///
    /// `Value(t)` moves every element into `-t..=t`. `Norm(t)` multiplies a parameter's gradient `g` by
    /// `min(1, t / (‖g‖ + ε))`, where `‖g‖` is the norm of the whole parameter's gradient ([`norms`](Self::norms)) and
    /// `ε` the smallest positive number. The result is that of one rank, whichever ranks hold parts of the parameter.
    ///
    /// [`DistributedDataParallel::step`](crate::data_parallel::DistributedDataParallel::step) and
    /// [`ShardedOptimizer::step`](crate::optimizer::ShardedOptimizer::step) do this by themselves with the clipping of
    /// burn's `OptimizerAdaptor`. To clip by the norm of the whole model instead, see [`clip`](Self::clip).
    ///
    /// # Communication
    /// For `Norm` as [`norms`](Self::norms), for `Value` none.
    ///
    /// # Errors
    /// When that fails.
    pub fn clip_each(&mut self, clipping: &GradientClipping, context: &ParallelContext) -> Result<(), CollectiveError> {
        self.clip_each_by(|_| Some(clipping), context)
    }

    /// The same with a clipping that depends on the parameter; on every rank that holds a part of a parameter it must
    /// be the same.
    pub(crate) fn clip_each_by<'c>(
        &mut self,
        clipping_of: impl Fn(&GradientEntry) -> Option<&'c GradientClipping>,
        context: &ParallelContext,
    ) -> Result<(), CollectiveError> {
        let clippings: Vec<Option<&GradientClipping>> = self.entries.iter().map(clipping_of).collect();
        let is_by_norm = |clipping: &Option<&GradientClipping>| matches!(clipping, Some(GradientClipping::Norm(_)));
        let norms = if clippings.iter().any(is_by_norm) {
            self.norms(context)?
        } else {
            vec![0.0; clippings.len()]
        };
        let entries = self.entries.clone();
        for ((entry, clipping), norm) in entries.iter().zip(clippings).zip(norms) {
            let BucketRange { bucket, range } = self.bucket_range(entry, self.owned(entry));
            match clipping {
                None => {}
                Some(GradientClipping::Value(threshold)) => self.buckets[bucket].clamp_range(range, *threshold),
                Some(GradientClipping::Norm(threshold)) => {
                    let coefficient = norm_coefficient(norm, *threshold);
                    // Also where it is not a number, as burn 0.22 does.
                    if coefficient.is_nan() || coefficient < 1.0 {
                        self.buckets[bucket].scale_range(range, coefficient);
                    }
                }
            }
        }
        Ok(())
    }

    /// Returns the L2 norm of the gradient of each of this rank's parameters, by its number: of the whole parameter,
    /// without padding, summed in f64; on a device the sum of each shard is in the gradients' type.
    ///
    /// It is the sum over the shards of the sums of each, whether or not gradients are sharded: the bits are the same.
    ///
    /// # Communication
    /// Where tensor ranks hold different parts, one all-reduce over their group, of one number per parameter and shard;
    /// where gradients are sharded, one all-gather of one number per parameter over the data-parallel group.
    ///
    /// # Errors
    /// When that fails.
    pub fn norms(&self, context: &ParallelContext) -> Result<Vec<f64>, CollectiveError> {
        let count = self.entries.len();
        if count == 0 {
            return Ok(Vec::new());
        }
        let of_shard = |shard| {
            let entries = self.entries.iter();
            entries.map(move |entry| self.counted_here(entry, shard))
        };
        let pieces: Vec<Vec<BucketRange>> = self.own_shards().flat_map(of_shard).collect();
        let mut squares = FlatBuffer::sums_of_squares(&self.buckets, &pieces);
        if self.finalisation.has_parts_elsewhere {
            context.tensor_group().all_reduce(&mut squares, ReduceOp::Sum)?;
            if self.is_sharded() {
                let mut all = vec![0.0; count * self.shard_group.size()];
                self.shard_group.all_gather(&squares, &mut all)?;
                squares = all;
            }
        }
        // A rank may hold several parts of a parameter, under its name.
        let mut of_whole: HashMap<&str, f64> = HashMap::with_capacity(count);
        for entry in self.entries.iter() {
            let of_part = squares.iter().skip(entry.number).step_by(count).sum::<f64>();
            *of_whole.entry(&entry.name).or_default() += of_part;
        }
        let norm = |entry: &GradientEntry| of_whole[entry.name.as_str()].sqrt();
        Ok(self.entries.iter().map(norm).collect())
    }

    /// Returns what this rank adds to the norm of a parameter: of the ranks that hold the same elements, one does.
    fn counted_here(&self, entry: &GradientEntry, shard: usize) -> Vec<BucketRange> {
        if !self.finalisation.counts_in_group(entry) {
            return Vec::new();
        }
        if !entry.placement.has_padding() {
            return vec![self.bucket_range(entry, self.layout.piece(entry.number, shard))];
        }
        let bucket = entry.bucket();
        let unpadded = self.unpadded(entry, shard);
        unpadded.map(|range| BucketRange { bucket, range }).collect()
    }
}

/// Returns what burn multiplies a gradient of this norm by, unless it is above 1.
pub(in crate::data_parallel) fn norm_coefficient(norm: f64, threshold: f32) -> f64 {
    f64::from(threshold) / (norm + f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests;
