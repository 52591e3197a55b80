//! Flags of the device.

use burn_megatron::collectives::GroupOptions;
use burn_megatron::context::ParallelContext;
use burn_megatron::launch::World;
use burn_megatron::topology::ParallelConfig;
use clap::Args;

use super::Dtype;
use crate::device::{DeviceKind, Program};

/// Where a rank computes.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Device")]
pub struct DeviceArguments {
    /// What every rank computes on
    #[arg(long = "device", value_enum, value_name = "DEVICE", default_value_t)]
    pub kind: DeviceKind,
    /// Let ranks compute on the same GPU where there are fewer GPUs than ranks: for tests
    #[arg(long)]
    pub share_gpu: bool,
}

impl DeviceArguments {
    /// Finds what is wrong with the flags before any rank is started.
    ///
    /// # Errors
    /// As [`DeviceKind::validate`]; `--share-gpu` without GPUs.
    pub fn validate(&self, dtype: Dtype) -> anyhow::Result<()> {
        anyhow::ensure!(
            !self.share_gpu || self.kind == DeviceKind::Cuda,
            "--share-gpu is for --device cuda"
        );
        self.kind.validate(dtype)
    }

    /// Runs a program on this rank's device, all tensors that are not given another type in `dtype`. Call it before the first
    /// tensor is made.
    ///
    /// # Errors
    /// When there is no such device, it does not compute in this type, or tensors have been made already; the program's
    /// own.
    pub fn run<P: Program>(&self, dtype: Dtype, world: &World, program: P) -> anyhow::Result<P::Output> {
        self.kind.run(dtype, self.share_gpu, world, program)
    }

    /// Connects this rank's groups in a layout: over NCCL too where the program has it and each rank has a GPU of its own, which
    /// the ranks compare.
    ///
    /// # Errors
    /// When the ranks do not agree, there is no GPU for this rank, or another computes on it.
    pub fn connect(&self, world: &World, layout: &ParallelConfig, seed: u64) -> anyhow::Result<ParallelContext> {
        let options = GroupOptions::default();
        #[cfg(feature = "cuda")]
        if self.kind == DeviceKind::Cuda && !self.share_gpu {
            use burn_megatron::cuda;
            let gpu = cuda::choose(world.local_rank(), cuda::Sharing::Refused)?;
            #[cfg(feature = "nccl")]
            let options = options.with_nccl(gpu.clone());
            let context = ParallelContext::connect(world, layout, &options, seed)?;
            cuda::check_shared(&gpu, context.world_group())?;
            return Ok(context);
        }
        Ok(ParallelContext::connect(world, layout, &options, seed)?)
    }
}
