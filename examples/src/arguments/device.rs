//! Flags of the device.

#[cfg(feature = "nccl")]
use burn_megatron::collectives::{GroupConfig, takes_shared_gpus};
use burn_megatron::context::{ParallelContext, ParallelContextConfig};
use burn_megatron::launch::World;
use clap::Args;

use super::Dtype;
use crate::device::{DeviceKind, GpuOptions, Program};

/// Where a rank computes.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Device")]
pub struct DeviceArguments {
    /// What every rank computes on
    #[arg(long = "device", value_enum, value_name = "DEVICE", default_value_t)]
    pub kind: DeviceKind,
    /// Let ranks compute on the same GPU where there are fewer GPUs than ranks: for tests; over NCCL where that takes
    /// them (2.30, with NCCL_MULTI_RANK_GPU_ENABLE=1)
    #[arg(long)]
    pub share_gpu: bool,
    /// Multiply matrices on CUDA with burn's own kernels, not with cuBLASLt
    #[arg(long)]
    pub no_cublaslt: bool,
    /// Let the ranks run on all cores, not each on its share of those next to its GPU
    #[arg(long)]
    pub no_cpu_binding: bool,
}

impl DeviceArguments {
    /// Finds what is wrong with the flags before any rank is started.
    ///
    /// # Errors
    /// As [`DeviceKind::validate`]; flags of GPUs for another device.
    pub fn validate(&self, dtype: Dtype) -> anyhow::Result<()> {
        for (flag, is_given) in [
            ("--share-gpu", self.share_gpu),
            ("--no-cublaslt", self.no_cublaslt),
            ("--no-cpu-binding", self.no_cpu_binding),
        ] {
            anyhow::ensure!(
                !is_given || self.kind == DeviceKind::Cuda,
                "{flag} is for --device cuda"
            );
        }
        self.kind.validate(dtype)
    }

    /// Runs a program on this rank's device, all tensors that are not given another type in `dtype`. Call it before the
    /// first tensor is made.
    ///
    /// # Errors
    /// When there is no such device, it does not compute in this type, or tensors have been made already; the program's
    /// own.
    pub fn run<P: Program>(&self, dtype: Dtype, world: &World, program: P) -> anyhow::Result<P::Output> {
        let gpu = GpuOptions {
            may_share: self.share_gpu,
            uses_cublaslt: !self.no_cublaslt,
        };
        self.kind.run(dtype, gpu, world, program)
    }

    /// Connects this rank's groups in a layout: over NCCL too where the program has it and each rank has a GPU of its
    /// own, which the ranks compare, as they do what multiplies their matrices; or where NCCL takes ranks that share
    /// one.
    ///
    /// # Errors
    /// When the ranks do not agree, there is no GPU for this rank, another computes on it, or multiplies in another
    /// way.
    pub fn connect(&self, world: &World, config: ParallelContextConfig) -> anyhow::Result<ParallelContext> {
        #[cfg(feature = "cuda")]
        if self.kind == DeviceKind::Cuda {
            return self.connect_gpus(world, config);
        }
        Ok(config.init(world)?)
    }

    #[cfg(feature = "cuda")]
    fn connect_gpus(&self, world: &World, config: ParallelContextConfig) -> anyhow::Result<ParallelContext> {
        use burn_megatron::cuda::{self, Sharing};
        let sharing = if self.share_gpu {
            Sharing::Allowed
        } else {
            Sharing::Refused
        };
        let gpu = cuda::choose(world.local_rank(), sharing)?;
        #[cfg(feature = "nccl")]
        let config = if !self.share_gpu || all_take_shared_gpus(world)? {
            config.with_groups(GroupConfig::new().with_nccl_gpu(Some(gpu.index)))
        } else {
            config
        };
        let context = config.init(world)?;
        if !self.share_gpu {
            cuda::check_shared(&gpu, context.world_group())?;
            if !self.no_cpu_binding {
                bind_cores(&gpu, world, &context)?;
            }
        }
        cuda::check_same_matmuls(context.world_group())?;
        Ok(context)
    }
}

/// Returns whether NCCL takes ranks that share a GPU, on all ranks alike.
#[cfg(feature = "nccl")]
fn all_take_shared_gpus(world: &World) -> anyhow::Result<bool> {
    const KEY: &str = "NCCL takes ranks that share a GPU";
    let own = takes_shared_gpus();
    if world.world_size() == 1 {
        return Ok(own);
    }
    if world.rank() == 0 {
        world.store().set(KEY, &[own.into()])?;
    }
    let first = world.store().wait(KEY, world.timeout())? == [1];
    anyhow::ensure!(
        own == first,
        "NCCL takes ranks that share a GPU on rank {} and not on rank {}: set NCCL_MULTI_RANK_GPU_ENABLE on all or \
         none, with the same NCCL",
        if own { world.rank() } else { 0 },
        if own { 0 } else { world.rank() }
    );
    Ok(own)
}

/// Binds this rank to cores, and prints on the first host which.
#[cfg(feature = "cuda")]
fn bind_cores(gpu: &burn_cuda::CudaDevice, world: &World, context: &ParallelContext) -> anyhow::Result<()> {
    let rank = world.rank();
    let Some(bound) = burn_megatron::cuda::bind_cores(gpu, world, context.world_group())? else {
        tracing::info!(
            rank,
            "runs on all cores that it may use: the system does not say which are next to its GPU"
        );
        return Ok(());
    };
    tracing::info!(rank, "runs on {bound}");
    if world.node_of(rank) == world.node_of(0) {
        println!("rank {rank} runs on {bound}");
    }
    Ok(())
}
