//! How much memory parameters, gradients and the optimizer's state take, and what is held for a while to communicate
//! them. Pure.

use burn::tensor::DType;

use crate::data_parallel::{
    BucketClass, BucketLayout, BucketParameter, ShardingStrategy, default_bucket_size, main_type,
};
use crate::precision::is_half;

#[cfg(test)]
mod tests;

/// Returns the bytes that a parameter of this type costs a rank: itself, its main gradient, its main value where it has
/// 16 bits, and the tensors of the optimizer's state, of which `num_shards` data-parallel ranks share out what the
/// strategy says.
///
/// With the two tensors of Adam on d ranks, in the order of ZeRO's stages: in f32 16, 8 + 8/d, 4 + 12/d and 16/d; in 16
/// bits 18, 6 + 12/d, 2 + 16/d and 18/d; in f64 twice that of f32. [`Sgd`](super::Sgd) has one such tensor, and none
/// without momentum; [`Adafactor`](super::Adafactor) has none, and numbers of rows and columns, which are not in this
/// figure. What is held while it is gathered or reduced comes on top.
///
/// # Reference
/// Rajbhandari et al. 2020, arXiv:1910.02054, section 3.1; main gradients are in f32, as Megatron-LM's.
pub fn bytes_per_parameter(
    dtype: DType,
    num_state_tensors: usize,
    sharding: ShardingStrategy,
    num_shards: usize,
) -> f64 {
    parts_per_parameter(dtype, num_state_tensors, sharding, num_shards).total()
}

/// Returns how many of the [`bytes_per_parameter`] are the optimizer's state, main values included: what is not in
/// memory where the optimizer is [offloaded](super::OptimizerOffload) to files.
pub fn state_bytes_per_parameter(
    dtype: DType,
    num_state_tensors: usize,
    sharding: ShardingStrategy,
    num_shards: usize,
) -> f64 {
    let parts = parts_per_parameter(dtype, num_state_tensors, sharding, num_shards);
    parts.main + parts.moments
}

fn parts_per_parameter(
    dtype: DType,
    num_state_tensors: usize,
    sharding: ShardingStrategy,
    num_shards: usize,
) -> MemoryParts {
    let shard = 1.0 / num_shards as f64;
    let one = ElementCounts {
        parameters: 1.0,
        buckets: 1.0,
        shards: shard,
    };
    MemoryParts::of_elements(dtype, num_state_tensors, sharding, &one)
}

/// The bytes of a rank that stay from step to step, by what they are for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MemoryParts {
    /// Parameters, in the type that the model computes in.
    pub parameters: f64,
    /// Main gradients.
    pub gradients: f64,
    /// Main values of parameters of 16 bits.
    pub main: f64,
    /// The tensors of the optimizer's state, such as Adam's two moments.
    pub moments: f64,
}

impl MemoryParts {
    /// Returns their sum.
    pub fn total(&self) -> f64 {
        self.parameters + self.gradients + self.main + self.moments
    }

    fn of_elements(dtype: DType, num_state_tensors: usize, sharding: ShardingStrategy, counts: &ElementCounts) -> Self {
        let main = main_bytes(dtype);
        let held = |is_shared: bool, whole: f64| if is_shared { counts.shards } else { whole };
        let state = held(sharding.shards_optimizer(), counts.parameters);
        Self {
            parameters: held(sharding.shards_parameters(), counts.parameters) * dtype.size() as f64,
            gradients: held(sharding.shards_gradients(), counts.buckets) * main,
            main: if is_half(dtype) { state * main } else { 0.0 },
            moments: state * num_state_tensors as f64 * main,
        }
    }
}

/// How many elements there are of what a rank may hold.
struct ElementCounts {
    parameters: f64,
    /// Those of the buckets, with what aligns parameters and shards.
    buckets: f64,
    /// Those of one shard of each bucket.
    shards: f64,
}

/// The bytes of an element of gradients and state.
fn main_bytes(dtype: DType) -> f64 {
    main_type(dtype).size() as f64
}

/// What the memory of a rank's training state depends on, in addition to its parameters and to what is shared out.
#[derive(Clone, Copy, Debug)]
pub struct StateMemoryConfig {
    /// The type of the parameters.
    pub dtype: DType,
    /// The tensors of the optimizer's state.
    pub num_state_tensors: usize,
    /// Whether its state has a number for each row and column of a matrix, whole on each rank, and one for each element
    /// of what is none, as [`Adafactor`](super::Adafactor)'s, in addition.
    pub has_factored_state: bool,
    /// The elements of a bucket, about; [`default_bucket_size`] if not given.
    pub bucket_size: Option<usize>,
    /// The groups of data-parallel ranks, each of which shares out a whole: what the default bucket's size depends on.
    pub num_instances: usize,
    /// Whether a bucket of gradients is reduced while the next is filled.
    pub overlap_grad_reduce: bool,
    /// Whether a layer's parameters are gathered while those of the one before it are in use.
    pub overlap_param_gather: bool,
}

/// The most bytes of a rank's training state at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StateMemory {
    /// What stays from step to step.
    pub parts: MemoryParts,
    /// Whole buckets in flight, in addition: where gradients are sharded one that is filled, one that is reduced and
    /// those of tied embeddings, where only the optimizer's state is one of updated parameters that are gathered.
    pub buffers: f64,
    /// Parameters that are whole for a while where each rank keeps shards of them: those of a layer, and of the next.
    pub gathered: f64,
}

impl StateMemory {
    /// Returns the sum of all.
    pub fn total(&self) -> f64 {
        self.parts.total() + self.buffers + self.gathered
    }
}

impl StateMemoryConfig {
    /// Returns what `num_shards` data-parallel ranks of these trained parameters hold each: the first, whose shards are
    /// full. The counts are those of the [`BucketLayout`] that the ranks allocate.
    pub fn of_parameters(
        &self,
        parameters: &[BucketParameter],
        sharding: ShardingStrategy,
        num_shards: usize,
    ) -> StateMemory {
        let bucket_size = (self.bucket_size).unwrap_or_else(|| default_bucket_size(num_shards * self.num_instances));
        let layout = BucketLayout::of_parameters(parameters, bucket_size, num_shards, sharding);
        let buckets: Vec<usize> = (0..layout.lengths().len())
            .map(|bucket| layout.padded_length(bucket))
            .collect();
        let counts = ElementCounts {
            parameters: parameters.iter().map(|parameter| parameter.len as f64).sum(),
            buckets: buckets.iter().sum::<usize>() as f64,
            shards: (0..buckets.len())
                .map(|bucket| layout.shard_length(bucket) as f64)
                .sum(),
        };
        let (parameter, main) = (self.dtype.size() as f64, main_bytes(self.dtype));
        let updated = largest_run(&buckets, 1) * parameter;
        // A gradient that a pass reaches several times is complete at its end.
        let mut is_late = vec![false; buckets.len()];
        for (slot, of) in layout.slots().iter().zip(parameters) {
            is_late[slot.bucket] |= of.class != BucketClass::Early;
        }
        let buckets_that = |are_late: bool| -> Vec<usize> {
            let found = buckets
                .iter()
                .zip(&is_late)
                .filter(|(_, is_late)| **is_late == are_late);
            found.map(|(&length, _)| length).collect()
        };
        let late: usize = buckets_that(true).iter().sum();
        let in_turn = largest_run(&buckets_that(false), 1 + usize::from(self.overlap_grad_reduce));
        let reduced = (late as f64 + in_turn) * main;
        let buffers = match sharding {
            ShardingStrategy::NoShard => 0.0,
            ShardingStrategy::Optim => updated,
            ShardingStrategy::OptimGrads => updated.max(reduced),
            ShardingStrategy::OptimGradsParams => reduced,
        };
        // Each unit is a bucket, and a tied embedding one of its own.
        let gathered = if sharding.shards_parameters() {
            largest_run(&buckets, 1 + usize::from(self.overlap_param_gather)) * parameter
        } else {
            0.0
        };
        let mut parts = MemoryParts::of_elements(self.dtype, self.num_state_tensors, sharding, &counts);
        if self.has_factored_state {
            parts.moments += factored_elements(parameters, sharding, num_shards) * main;
        }
        StateMemory {
            parts,
            buffers,
            gathered,
        }
    }
}

/// The numbers of a state in factors: at most, since a rank has those of the matrices that it holds elements of.
fn factored_elements(parameters: &[BucketParameter], sharding: ShardingStrategy, num_shards: usize) -> f64 {
    let shards = if sharding.shards_optimizer() { num_shards } else { 1 };
    let of_parameter = |parameter: &BucketParameter| match parameter.factored_len {
        Some(length) => length as f64,
        None => parameter.len as f64 / shards as f64,
    };
    parameters.iter().map(of_parameter).sum()
}

/// The most elements of this many lengths next to each other. The last is next to the first: a tied embedding, whose
/// bucket is the last, is used after the final norm, too.
fn largest_run(lengths: &[usize], count: usize) -> f64 {
    let count = count.min(lengths.len());
    let from = |start: usize| {
        (start..start + count)
            .map(|at| lengths[at % lengths.len()])
            .sum::<usize>()
    };
    (0..lengths.len()).map(from).max().unwrap_or(0) as f64
}
