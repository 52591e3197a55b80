//! The groups of a layout of 32 ranks, whose communicators are all made in one round.

use burn::tensor::Device;
use burn_megatron::collectives::GroupConfig;
use burn_megatron::context::ParallelContextConfig;
use burn_megatron::cuda::{self, Sharing};
use burn_megatron::launch::World;
use burn_megatron::topology::ParallelConfig;
use burn_megatron::training::preflight;

use crate::devices::nccl::ranks::Outcome;

/// Ranks: tensor 4, pipeline 2, data 4.
pub const RANKS: usize = 32;
/// Each rank is in a tensor-parallel group, a data-parallel one, and one of the first and the last stage.
pub const COMMUNICATORS: usize = 3 * RANKS;

/// Connects them and adds up over each.
pub fn all_groups(world: &World) -> Outcome {
    let gpu = cuda::choose(world.local_rank(), Sharing::Refused)?;
    let layout = ParallelConfig::new()
        .with_tensor_parallel_size(4)
        .with_pipeline_parallel_size(2);
    let groups = GroupConfig::new().with_nccl_gpu(Some(gpu));
    let context = ParallelContextConfig::new(layout).with_groups(groups).init(world)?;
    preflight::check(&context, &[], &Device::cuda(gpu))?;
    Ok(())
}
