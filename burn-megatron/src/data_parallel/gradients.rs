//! `ReducedGradients`: a step's gradients after reduction, on their way to the optimizer.
//!
//! Finalisation has one order: data-parallel reduction (done before this is made), sum over the tensor group of the
//! partial ones, sum of tied copies over the embedding group, norm over unique owners, clipping. Called by [`DistributedDataParallel`](super::DistributedDataParallel)
//! and by the trainer.

use std::collections::HashMap;
use std::sync::Arc;

use burn::module::{AutodiffModule, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::{
    DType, Tensor,
    backend::{AutodiffBackend, Backend},
};

use super::bucket::BucketSlot;
use super::flat::FlatBuffer;
use super::reducer::Reducer;
use crate::collectives::{CollectiveError, ProcessGroup, ReduceOp};
use crate::context::ParallelContext;
use crate::mutants::{self, Mutant};
use crate::parameters::{Distribution, Placement};

/// Where the gradient of one parameter lies, and what is known of the parameter.
#[derive(Clone, Debug)]
pub struct GradientEntry {
    /// burn's identifier of the parameter, on this rank.
    pub id: ParamId,
    /// Its global name.
    pub name: String,
    /// Its shape on this rank.
    pub shape: Vec<usize>,
    /// Which part of the logical parameter this is.
    pub placement: Placement,
    /// Who else holds it.
    pub distribution: Distribution,
    /// Whether the first and the last pipeline stage each have a copy.
    pub is_tied: bool,
    pub(super) slot: BucketSlot,
}

impl GradientEntry {
    /// The number of dimensions of the logical parameter as its layer sees it: weight decay looks at it.
    pub fn dimensions(&self) -> usize {
        self.shape.len()
    }
}

/// The gradients of one step, averaged over the data-parallel group and complete on every rank.
#[derive(Debug)]
pub struct ReducedGradients {
    entries: Arc<[GradientEntry]>,
    buckets: Vec<FlatBuffer>,
    reducer: Arc<Reducer>,
}

impl ReducedGradients {
    /// Takes the reduced buckets, sums the partial gradients over the tensor group, and those of tied copies over the
    /// embedding group.
    ///
    /// # Communication
    /// One all-reduce of all partial gradients over the tensor group, and one of all tied ones over the embedding group,
    /// where there are any.
    pub(super) fn new(
        entries: Arc<[GradientEntry]>,
        buckets: Vec<FlatBuffer>,
        reducer: Arc<Reducer>,
        context: &ParallelContext,
        dtype: DType,
    ) -> Result<Self, CollectiveError> {
        let mut gradients = Self {
            entries,
            buckets,
            reducer,
        };
        if !mutants::is_active(Mutant::SequenceParallelSumMissing) {
            gradients.sum_over(context.tensor_group(), dtype, |entry| {
                entry.distribution == Distribution::PartialOverTensor
            })?;
        }
        if let Some(group) = context.embedding_group()
            && !mutants::is_active(Mutant::NoTiedStageSum)
        {
            gradients.sum_over(group, dtype, |entry| entry.is_tied)?;
        }
        Ok(gradients)
    }

    /// The parameters, in the module's order.
    pub fn entries(&self) -> &[GradientEntry] {
        &self.entries
    }

    /// Returns a parameter's gradient as f64, row-major, exact.
    pub fn values(&self, entry: &GradientEntry) -> Vec<f64> {
        self.buckets[entry.slot.bucket]
            .tensor_data(entry.slot.offset, entry.shape.clone())
            .iter::<f64>()
            .collect()
    }

    /// Returns the L2 norm of the gradient of the whole model, each parameter counted once, summed in f64.
    ///
    /// # Communication
    /// One all-reduce of one number over the model group.
    ///
    /// # Errors
    /// When that fails.
    pub fn global_norm(&self, context: &ParallelContext) -> Result<f64, CollectiveError> {
        let is_first_tensor_rank = context.tensor_group().rank() == 0;
        let is_first_stage = context.coordinates().pipeline == 0;
        let is_owner = |entry: &GradientEntry| {
            let owns_replica = entry.distribution == Distribution::Sharded || is_first_tensor_rank;
            let owns_copy = !entry.is_tied || is_first_stage;
            (owns_replica || mutants::is_active(Mutant::ReplicaCountedTwice))
                && (owns_copy || mutants::is_active(Mutant::TiedCopyCountedTwice))
        };
        let squares: f64 = self
            .entries
            .iter()
            .filter(|entry| is_owner(entry))
            .map(|entry| self.buckets[entry.slot.bucket].sum_of_squares(entry.slot.offset, entry.slot.len))
            .sum();
        let mut total = [squares];
        context.model_group().all_reduce(&mut total, ReduceOp::Sum)?;
        Ok(total[0].sqrt())
    }

    /// Returns the name of the first parameter of this rank with a gradient that is not finite.
    pub fn first_non_finite(&self) -> Option<&str> {
        self.entries
            .iter()
            .find(|entry| {
                let slot = entry.slot;
                !self.buckets[slot.bucket]
                    .sum_of_squares(slot.offset, slot.len)
                    .is_finite()
            })
            .map(|entry| entry.name.as_str())
    }

    /// Scales the gradients so that their global norm is at most `max_norm`, given what it is.
    ///
    /// The coefficient is `max_norm / (norm + 1e-6)`, applied if below 1.
    ///
    /// # Reference
    /// Pascanu, Mikolov and Bengio 2013, arXiv:1211.5063, section 3.2.
    pub fn clip(&mut self, norm: f64, max_norm: f64) {
        let coefficient = max_norm / (norm + 1e-6);
        if coefficient < 1.0 {
            for bucket in &mut self.buckets {
                bucket.scale(coefficient);
            }
        }
    }

    /// Whether some data-parallel rank has received a gradient of the parameter; it is zero otherwise.
    pub fn is_present(&self, entry: &GradientEntry) -> bool {
        self.buckets[entry.slot.bucket].is_positive(entry.slot.flag)
    }

    /// Whether there are parameters, and none has received a gradient on any data-parallel rank.
    pub(super) fn is_empty(&self) -> bool {
        !self.entries.is_empty() && !self.entries.iter().any(|entry| self.is_present(entry))
    }

    /// Returns the gradients for burn's own optimizers.
    ///
    /// A parameter that no data-parallel rank used is left out, as burn leaves it out: it neither decays nor moves.
    ///
    /// # Panics
    /// When the module has not the parameters that it was wrapped with.
    pub fn into_params<B: AutodiffBackend, M: AutodiffModule<B>>(self, module: &M) -> GradientsParams {
        let [all, _] = self.into_split_params(module, |_| true);
        all
    }

    /// Returns the gradients of the parameters that `belongs` says yes to, and those of the others, as for two groups
    /// of weight decay.
    ///
    /// # Panics
    /// When the module has not the parameters that it was wrapped with.
    pub fn into_split_params<B: AutodiffBackend, M: AutodiffModule<B>>(
        self,
        module: &M,
        belongs: impl Fn(&GradientEntry) -> bool,
    ) -> [GradientsParams; 2] {
        let by_id: HashMap<ParamId, (&GradientEntry, usize)> = self
            .entries
            .iter()
            .filter(|entry| self.is_present(entry))
            .map(|entry| (entry.id, (entry, usize::from(!belongs(entry)))))
            .collect();
        let mut collector = Collector {
            buckets: &self.buckets,
            by_id,
            params: [GradientsParams::new(), GradientsParams::new()],
        };
        module.visit(&mut collector);
        let missed: Vec<&str> = collector.by_id.values().map(|(entry, _)| entry.name.as_str()).collect();
        assert!(
            missed.is_empty(),
            "the module has no parameters {missed:?}, which have gradients"
        );
        collector.params
    }

    /// Sums the gradients of the selected parameters over a group, all in one call.
    fn sum_over(
        &mut self,
        group: &ProcessGroup,
        dtype: DType,
        is_selected: impl Fn(&GradientEntry) -> bool,
    ) -> Result<(), CollectiveError> {
        let selected = self.entries.iter().filter(|entry| is_selected(entry));
        let slots: Vec<BucketSlot> = selected.map(|entry| entry.slot).collect();
        if group.size() == 1 || slots.is_empty() {
            return Ok(());
        }
        // Each gradient, and the flag that says whether there is one: a copy that got none moves with one that did.
        let mut together = FlatBuffer::zeros(slots.iter().map(|slot| slot.len + 1).sum(), dtype);
        let mut to = 0;
        for slot in &slots {
            together.copy_from(to, &self.buckets[slot.bucket], slot.offset, slot.len);
            together.copy_from(to + slot.len, &self.buckets[slot.bucket], slot.flag, 1);
            to += slot.len + 1;
        }
        together.all_reduce(ReduceOp::Sum, group)?;
        let mut from = 0;
        for slot in &slots {
            self.buckets[slot.bucket].copy_from(slot.offset, &together, from, slot.len);
            self.buckets[slot.bucket].copy_from(slot.flag, &together, from + slot.len, 1);
            from += slot.len + 1;
        }
        Ok(())
    }
}

impl Drop for ReducedGradients {
    /// Makes the buckets ready for the next step, whether or not the gradients were used.
    fn drop(&mut self) {
        self.reducer.restart(std::mem::take(&mut self.buckets));
    }
}

/// Makes a tensor of each parameter's slice.
struct Collector<'a> {
    buckets: &'a [FlatBuffer],
    by_id: HashMap<ParamId, (&'a GradientEntry, usize)>,
    params: [GradientsParams; 2],
}

impl<B: AutodiffBackend> ModuleVisitor<B> for Collector<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
        let Some((entry, group)) = self.by_id.remove(&param.id) else {
            return;
        };
        let value = param.val();
        let (device, dtype) = (value.device(), value.dtype());
        let data = self.buckets[entry.slot.bucket].tensor_data(entry.slot.offset, entry.shape.clone());
        let gradient = from_data::<B::InnerBackend, D>(data, &device, dtype);
        self.params[group].register(param.id, gradient);
    }
}

fn from_data<B: Backend, const D: usize>(
    data: burn::tensor::TensorData,
    device: &B::Device,
    dtype: DType,
) -> Tensor<B, D> {
    Tensor::from_data(data, (device, dtype))
}
