//! `ReducedGradients`: a step's gradients after reduction, on their way to the optimizer.
//!
//! Finalisation has one order: data-parallel reduction (done before this is made, but for that over the instances of
//! the optimizer), sum over the tensor group of the partial ones, sum over some of its ranks of what these share, sum
//! of tied copies over the embedding group, unscaling, norm over unique owners, clipping. Where they are sharded, each
//! data-parallel rank does all that with its own shard of every bucket.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{Device, FloatDType, Tensor};

use super::finalisation::Finalisation;
use crate::collectives::{CollectiveError, ProcessGroup, ReduceOp};
use crate::context::ParallelContext;
use crate::data_parallel::buckets::bucket::{BucketLayout, BucketSlot};
use crate::data_parallel::buckets::flat::{BucketRange, FlatBuffer, NonFinite};
use crate::data_parallel::buckets::gradient_entry::GradientEntry;
use crate::data_parallel::buckets::reducer::{Reduced, Reducer};
use crate::data_parallel::buckets::summing_ranks::SummingRanks;
use crate::data_parallel::sharding_strategy::ShardingStrategy;
use crate::parameters::Distribution;

/// The gradients of one step, averaged over the data-parallel group: complete on every rank or, where they are sharded,
/// each rank's own [`pieces`](Self::owned) only.
///
/// `Debug` writes how many there are.
pub struct ReducedGradients {
    pub(in crate::data_parallel) entries: Arc<[GradientEntry]>,
    pub(in crate::data_parallel) layout: BucketLayout,
    pub(in crate::data_parallel) buckets: Vec<FlatBuffer>,
    present: Vec<bool>,
    non_finite: NonFinite,
    pub(in crate::data_parallel) sharding: ShardingStrategy,
    /// Of every bucket, the one shard that is complete here; none where all are.
    shard: Option<usize>,
    /// `true` if the others have been fetched.
    is_gathered: bool,
    pub(in crate::data_parallel) shard_group: ProcessGroup,
    pub(in crate::data_parallel) finalisation: Finalisation,
    pub(in crate::data_parallel) reducer: Arc<Reducer>,
    /// Buckets whose memory parameters have taken, which give it back to the reducer.
    lent: HashSet<usize>,
}

impl fmt::Debug for ReducedGradients {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("ReducedGradients")
            .field("parameters", &self.entries.len())
            .field(
                "with_gradient",
                &self.present.iter().filter(|&&present| present).count(),
            )
            .field("buckets", &self.layout.lengths())
            .field("shard", &self.shard)
            .field("is_gathered", &self.is_gathered)
            .field("shard_group", &self.shard_group)
            .finish_non_exhaustive()
    }
}

/// How many elements of a gradient are out of the ordinary, each of the whole model counted once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GradientCounts {
    /// Elements that are zero.
    pub zeros: u64,
    /// Elements that are infinite or not a number.
    pub non_finite: u64,
}

impl ReducedGradients {
    /// Takes what the data-parallel reduction gave, sums the partial gradients over the tensor group, those that some
    /// of its ranks share over these, and those of tied copies over the embedding group.
    ///
    /// # Communication
    /// Where there are several instances of the optimizer, one all-reduce of each bucket's shard over the replica
    /// group. One all-reduce of all partial gradients over the tensor group, one of what its ranks share (the whole of
    /// it, of which each rank has a part), and one of all tied ones over the embedding group, where there are any;
    /// where gradients are sharded, of this rank's pieces of them.
    pub(in crate::data_parallel) fn new(
        entries: Arc<[GradientEntry]>,
        reduced: Reduced,
        reducer: Arc<Reducer>,
        finalisation: Finalisation,
        context: &ParallelContext,
    ) -> Result<Self, CollectiveError> {
        let (layout, sharding) = reducer.layout();
        let shard_group = context.shard_group().clone();
        let mut gradients = Self {
            entries,
            layout,
            buckets: reduced.buckets,
            present: reduced.present,
            non_finite: reduced.non_finite,
            shard: sharding.shards_optimizer().then(|| shard_group.rank()),
            sharding,
            is_gathered: false,
            shard_group,
            finalisation,
            reducer,
            lent: HashSet::new(),
        };
        gradients.average_over_replicas(context.replica_group())?;
        gradients.sum_over(SummingRanks::all(context.tensor_group()), |entry| {
            entry.distribution == Distribution::PartialOverTensor
        })?;
        for copies in gradients.numbers_of_copies() {
            gradients.sum_over(SummingRanks::each(copies, context.tensor_group()), |entry| {
                entry.distribution == Distribution::Shared { copies }
            })?;
        }
        if let Some(group) = context.embedding_group() {
            gradients.sum_over(SummingRanks::all(group), |entry| entry.is_tied)?;
        }
        Ok(gradients)
    }

    /// The parameters, in the module's order.
    pub fn entries(&self) -> &[GradientEntry] {
        &self.entries
    }

    /// Returns whether each data-parallel rank has its own piece of each gradient only.
    pub fn is_sharded(&self) -> bool {
        self.shard.is_some()
    }

    /// Returns which elements of a parameter's gradient are complete on this rank, row-major: all, unless they are
    /// sharded.
    pub fn owned(&self, entry: &GradientEntry) -> Range<usize> {
        match self.shard {
            None => 0..entry.slot.len,
            Some(shard) => self.layout.piece(entry.number, shard),
        }
    }

    /// Returns a parameter's gradient as f64, row-major, exact.
    ///
    /// # Panics
    /// When gradients are sharded and have not been [gathered](Self::gather).
    pub fn values(&self, entry: &GradientEntry) -> Vec<f64> {
        assert!(
            self.shard.is_none() || self.is_gathered,
            "each data-parallel rank has a piece of the gradient of {}: gather the gradients first",
            entry.name
        );
        self.buckets[entry.slot.bucket]
            .data(entry.slot.range())
            .iter::<f64>()
            .collect()
    }

    /// Returns the elements of a parameter's gradient that are complete on this rank, `[owned]`, f32 or f64.
    pub(crate) fn owned_values(&self, entry: &GradientEntry, device: &Device) -> Tensor<1> {
        let BucketRange { bucket, range } = self.bucket_range(entry, self.owned(entry));
        self.buckets[bucket].tensor(range, device)
    }

    /// Fetches the pieces of the other data-parallel ranks, for those who want to look at whole gradients.
    ///
    /// # Communication
    /// Where gradients are sharded, one all-gather per bucket over the data-parallel group.
    ///
    /// # Errors
    /// When that fails.
    pub fn gather(&mut self) -> Result<(), CollectiveError> {
        if self.shard.is_none() || self.is_gathered {
            return Ok(());
        }
        for bucket in &mut self.buckets {
            *bucket = std::mem::take(bucket).all_gather_start(&self.shard_group).wait()?;
        }
        self.is_gathered = true;
        Ok(())
    }

    /// Returns the L2 norm of the gradient of the whole model, each parameter counted once, summed in f64; on a device
    /// the sum of each shard is in the gradients' type.
    ///
    /// It is the sum over the shards of the sums of each, whether or not gradients are sharded: the bits are the same.
    ///
    /// # Communication
    /// One all-reduce of one number per shard over the model group; where gradients are sharded, one all-gather of one
    /// number over the data-parallel group.
    ///
    /// # Errors
    /// When that fails.
    pub fn global_norm(&self, context: &ParallelContext) -> Result<f64, CollectiveError> {
        Ok(self.global_norm_and(Vec::new(), context)?.0)
    }

    /// Returns the [global norm](Self::global_norm), and the elements of other tensors one after the other. A device is
    /// read once.
    pub(crate) fn global_norm_and(
        &self,
        others: Vec<Tensor<1>>,
        context: &ParallelContext,
    ) -> Result<(f64, Vec<f64>), CollectiveError> {
        let of_shard = |shard| {
            let counted = self.entries.iter().filter(|entry| self.finalisation.counts(entry));
            counted
                .map(|entry| self.bucket_range(entry, self.layout.piece(entry.number, shard)))
                .collect()
        };
        let shards: Vec<Vec<BucketRange>> = self.own_shards().map(of_shard).collect();
        let (mut squares, others) = FlatBuffer::sums_of_squares_and(&self.buckets, &shards, others);
        context.model_group().all_reduce(&mut squares, ReduceOp::Sum)?;
        if self.is_sharded() {
            let mut all = vec![0.0; self.shard_group.size()];
            self.shard_group.all_gather(&squares, &mut all)?;
            squares = all;
        }
        Ok((squares.iter().sum::<f64>().sqrt(), others))
    }

    /// Counts the elements of the gradient of the whole model that are zero, and those that are not finite.
    ///
    /// # Communication
    /// One all-reduce of two numbers over the model group, and where gradients are sharded one over the data-parallel
    /// group.
    ///
    /// # Errors
    /// When that fails.
    pub fn counts(&self, context: &ParallelContext) -> Result<GradientCounts, CollectiveError> {
        let mut counts = [0i64; 2];
        for shard in self.own_shards() {
            for entry in self.entries.iter().filter(|entry| self.finalisation.counts(entry)) {
                let ranges: Vec<Range<usize>> = self.unpadded(entry, shard).collect();
                let (zeros, non_finite) = self.buckets[entry.slot.bucket].count(&ranges);
                counts[0] += zeros as i64;
                counts[1] += non_finite as i64;
            }
        }
        context.model_group().all_reduce(&mut counts, ReduceOp::Sum)?;
        if self.is_sharded() {
            self.shard_group.all_reduce(&mut counts, ReduceOp::Sum)?;
        }
        Ok(GradientCounts {
            zeros: counts[0] as u64,
            non_finite: counts[1] as u64,
        })
    }

    /// Returns the memory of a bucket, which is lost to these gradients: it is to be given back to the reducer.
    pub(in crate::data_parallel) fn lend(&mut self, bucket: usize) -> FlatBuffer {
        self.lent.insert(bucket);
        std::mem::take(&mut self.buckets[bucket])
    }

    /// The elements of a bucket on all ranks, with padding.
    pub(crate) fn padded_length(&self, bucket: usize) -> usize {
        self.layout.padded_length(bucket)
    }

    pub(in crate::data_parallel) fn shard_length(&self, bucket: usize) -> usize {
        self.layout.shard_length(bucket)
    }

    /// The shards of the buckets that are complete here.
    pub(in crate::data_parallel) fn own_shards(&self) -> Range<usize> {
        match self.shard {
            None => 0..self.layout.num_shards(),
            Some(shard) => shard..shard + 1,
        }
    }

    /// Returns where in its bucket a range of a parameter's elements is.
    pub(in crate::data_parallel) fn bucket_range(&self, entry: &GradientEntry, range: Range<usize>) -> BucketRange {
        let BucketSlot { bucket, offset, .. } = entry.slot;
        BucketRange {
            bucket,
            range: offset + range.start..offset + range.end,
        }
    }

    /// Returns where in their bucket the elements of a parameter's piece of a shard are that are no padding.
    pub(in crate::data_parallel) fn unpadded(
        &self,
        entry: &GradientEntry,
        shard: usize,
    ) -> impl Iterator<Item = Range<usize>> {
        let (piece, offset) = (self.layout.piece(entry.number, shard), entry.slot.offset);
        entry.placement.runs().into_iter().filter_map(move |run| {
            let range = run.local.max(piece.start)..(run.local + run.length).min(piece.end);
            (!range.is_empty()).then(|| offset + range.start..offset + range.end)
        })
    }

    /// Returns the name of the first parameter that received a gradient on this rank which is not finite, before any
    /// reduction.
    pub fn first_non_finite_received(&self) -> Option<&str> {
        let first = self.non_finite.first()?;
        Some(self.entries[first].name.as_str())
    }

    /// Returns the name of the first parameter of this rank whose reduced gradient is not finite.
    pub fn first_non_finite(&self) -> Option<&str> {
        let is_finite = |entry: &GradientEntry| {
            let mut own = self.own_shards();
            own.all(|shard| {
                let BucketRange { bucket, range } = self.bucket_range(entry, self.layout.piece(entry.number, shard));
                range.is_empty() || self.buckets[bucket].count(&[range]).1 == 0
            })
        };
        self.entries
            .iter()
            .find(|entry| !is_finite(entry))
            .map(|entry| entry.name.as_str())
    }

    /// Multiplies every gradient.
    pub fn scale(&mut self, factor: f64) {
        for bucket in 0..self.buckets.len() {
            let length = self.layout.shard_length(bucket);
            let own = self.own_shards();
            self.buckets[bucket].scale(own.start * length..own.end * length, factor);
        }
    }

    /// Scales all gradients by one [`clip_coefficient`], given their global norm. What burn's optimizers call clipping
    /// is [`clip_each`](Self::clip_each).
    pub fn clip(&mut self, norm: f64, max_norm: f64) {
        let coefficient = clip_coefficient(norm, max_norm);
        if coefficient < 1.0 {
            self.scale(coefficient);
        }
    }

    /// Returns whether some data-parallel rank has received a gradient of the parameter; it is zero otherwise.
    pub fn is_present(&self, entry: &GradientEntry) -> bool {
        self.present[entry.number]
    }

    /// Returns whether there are parameters, and none has received a gradient on any data-parallel rank.
    pub(in crate::data_parallel) fn is_empty(&self) -> bool {
        !self.entries.is_empty() && !self.entries.iter().any(|entry| self.is_present(entry))
    }

    /// Returns the gradients for burn's own optimizers.
    ///
    /// A parameter that no data-parallel rank used is left out, as burn leaves it out: it neither decays nor moves.
    ///
    /// # Panics
    /// When gradients are sharded, or the module has not the parameters that it was wrapped with.
    pub(crate) fn into_params<M>(self, module: &M) -> GradientsParams
    where
        M: Module,
    {
        assert!(
            !self.is_sharded(),
            "each data-parallel rank has pieces of gradients, which ShardedOptimizer can use"
        );
        let by_id: HashMap<ParamId, &GradientEntry> = self
            .entries
            .iter()
            .filter(|entry| self.is_present(entry))
            .map(|entry| (entry.id, entry))
            .collect();
        let mut collector = Collector {
            buckets: &self.buckets,
            by_id,
            params: GradientsParams::new(),
        };
        module.visit(&mut collector);
        let missed: Vec<&str> = collector.by_id.values().map(|entry| entry.name.as_str()).collect();
        assert!(
            missed.is_empty(),
            "the module has no parameters {missed:?}, which have gradients"
        );
        collector.params
    }

    /// Averages the shards over the instances of the optimizer, bucket by bucket.
    fn average_over_replicas(&mut self, group: &ProcessGroup) -> Result<(), CollectiveError> {
        if group.size() == 1 {
            return Ok(());
        }
        for bucket in 0..self.buckets.len() {
            self.sum_over(SummingRanks::all(group), |entry| entry.bucket() == bucket)?;
        }
        self.scale(1.0 / group.size() as f64);
        Ok(())
    }

    /// Returns how many tensor ranks share a parameter, each number once, ascending: the same on every rank.
    fn numbers_of_copies(&self) -> BTreeSet<usize> {
        let shared = self.entries.iter().filter_map(|entry| match entry.distribution {
            Distribution::Shared { copies } => Some(copies),
            _ => None,
        });
        shared.collect()
    }

    /// Sums the gradients of the selected parameters over the ranks that hold the same, all in one call.
    fn sum_over(
        &mut self,
        ranks: SummingRanks<'_>,
        is_selected: impl Fn(&GradientEntry) -> bool,
    ) -> Result<(), CollectiveError> {
        let selected: Vec<GradientEntry> = self.entries.iter().filter(|e| is_selected(e)).cloned().collect();
        if ranks.is_alone() || selected.is_empty() {
            return Ok(());
        }
        let ranges: Vec<BucketRange> = selected
            .iter()
            .map(|entry| self.bucket_range(entry, self.owned(entry)))
            .collect();
        // A copy that got none moves with one that did.
        let present: Vec<bool> = selected.iter().map(|entry| self.is_present(entry)).collect();
        let present = FlatBuffer::sum_over(&mut self.buckets, &ranges, &present, ranks)?;
        for (entry, is_present) in selected.iter().zip(present) {
            self.present[entry.number] = is_present;
        }
        Ok(())
    }
}

/// Returns what gradients of a global norm are multiplied by so that it is at most `max_norm`:
/// `max_norm / (norm + 1e-6)`, and 1 if that is above it.
///
/// # Reference
/// Pascanu, Mikolov and Bengio 2013, arXiv:1211.5063, section 3.2.
pub fn clip_coefficient(norm: f64, max_norm: f64) -> f64 {
    let coefficient = max_norm / (norm + 1e-6);
    if coefficient < 1.0 { coefficient } else { 1.0 }
}

impl Drop for ReducedGradients {
    /// Makes the buckets ready for the next step, whether or not the gradients were used.
    fn drop(&mut self) {
        let buckets = std::mem::take(&mut self.buckets).into_iter().enumerate();
        let own = buckets.map(|(number, bucket)| (!self.lent.contains(&number)).then_some(bucket));
        self.reducer.restart(own.collect());
    }
}

/// Makes a tensor of each parameter's slice.
struct Collector<'a> {
    buckets: &'a [FlatBuffer],
    by_id: HashMap<ParamId, &'a GradientEntry>,
    params: GradientsParams,
}

impl ModuleVisitor for Collector<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let Some(entry) = self.by_id.remove(&param.id) else {
            return;
        };
        let value = param.val();
        let gradient = self.buckets[entry.slot.bucket].tensor(entry.slot.range(), &value.device().inner());
        let gradient = gradient.reshape(value.shape()).cast(FloatDType::from(value.dtype()));
        self.params.register::<D>(param.id, gradient);
    }
}
