//! Flags of the device.

use std::panic::AssertUnwindSafe;

use anyhow::{Context as _, ensure};
use burn::tensor::{DType, Device, FloatDType, IntDType};
#[cfg(feature = "cuda")]
use burn_megatron::collectives::{GroupConfig, takes_shared_gpus};
use burn_megatron::context::{ParallelContext, ParallelContextConfig};
#[cfg(feature = "cuda")]
use burn_megatron::cuda::{self, CudaError, Sharing};
use burn_megatron::launch::World;
use clap::Args;
use cubecl_kernels::{Kernels, set_kernels};

use super::Dtype;
use crate::device::DeviceKind;

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
    /// Compute with burn's own operations instead of fused ones: slower, to compare with
    #[arg(long)]
    pub no_fused_kernels: bool,
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
            ensure!(
                !is_given || self.kind == DeviceKind::Cuda,
                "{flag} is for --device cuda"
            );
        }
        self.kind.validate(dtype)
    }

    /// Returns this rank's device. From now on all of its tensors that are not given another type are in `dtype`, and
    /// operations run in the form that the flags ask for. Call it before the first tensor is made, on the thread that
    /// computes.
    ///
    /// # Errors
    /// When there is no such device, it does not compute in this type, or tensors have been made already.
    pub fn start(&self, dtype: Dtype, world: &World) -> anyhow::Result<Device> {
        self.kind.validate(dtype)?;
        set_kernels(if self.no_fused_kernels {
            Kernels::Plain
        } else {
            Kernels::Fused
        });
        let mut device = self.device(world)?;
        // A device is looked for at the first question, which panics where there is none.
        let is_computed = std::panic::catch_unwind(AssertUnwindSafe(|| device.supports_dtype(DType::from(dtype))));
        let is_computed = is_computed.ok().context("there is no such device on this machine")?;
        ensure!(is_computed, "{device:?} does not compute in {dtype:?}");
        let configured = device.configure((FloatDType::from(dtype), IntDType::I32));
        configured.map_err(|error| anyhow::anyhow!("cannot set the element type: {error:?}"))?;
        Ok(device)
    }

    /// The device, as it is before it is asked for anything.
    fn device(&self, world: &World) -> anyhow::Result<Device> {
        // Only CUDA has a choice.
        let _ = world;
        match self.kind {
            DeviceKind::Cpu => Ok(Device::flex()),
            #[cfg(feature = "cuda")]
            DeviceKind::Cuda => {
                let gpu = cuda::choose(world.local_rank(), self.sharing())?;
                cuda::end_process_on_lost_work();
                if !self.no_cublaslt {
                    use_cublaslt(gpu)?;
                }
                Ok(Device::cuda(gpu))
            }
            #[cfg(feature = "vulkan")]
            DeviceKind::Vulkan => Ok(Device::vulkan(burn::prelude::DeviceKind::DefaultDevice)),
            #[cfg(feature = "wgpu")]
            DeviceKind::Wgpu => Ok(Device::wgpu(burn::prelude::DeviceKind::DefaultDevice)),
            #[cfg(not(all(feature = "cuda", feature = "vulkan", feature = "wgpu")))]
            other => unreachable!("{other:?} was refused"),
        }
    }

    /// Connects this rank's groups in a layout: over NCCL too where it is there and each rank has a GPU of its own,
    /// which the ranks compare, as they do what multiplies their matrices; or where NCCL takes ranks that share one.
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
    fn sharing(&self) -> Sharing {
        if self.share_gpu {
            Sharing::Allowed
        } else {
            Sharing::Refused
        }
    }

    #[cfg(feature = "cuda")]
    fn connect_gpus(&self, world: &World, config: ParallelContextConfig) -> anyhow::Result<ParallelContext> {
        let gpu = cuda::choose(world.local_rank(), self.sharing())?;
        let config = if !self.share_gpu || all_take_shared_gpus(world)? {
            config.with_groups(GroupConfig::new().with_nccl_gpu(Some(gpu)))
        } else {
            config
        };
        let context = config.init(world)?;
        if !self.share_gpu {
            cuda::check_shared(gpu, context.world_group())?;
            if !self.no_cpu_binding {
                bind_cores(gpu, world, &context)?;
            }
        }
        cuda::check_same_matmuls(context.world_group())?;
        Ok(context)
    }
}

/// Multiplies with cuBLASLt from now on, or says that burn's own kernels do, where it is missing.
#[cfg(feature = "cuda")]
fn use_cublaslt(gpu: usize) -> anyhow::Result<()> {
    match cuda::enable_cublaslt(gpu) {
        Err(missing @ CudaError::Missing { .. }) => {
            tracing::warn!(
                "{missing}; burn's own kernels multiply instead, which are slower, and round the factors of f32 to TF32"
            );
            Ok(())
        }
        enabled => Ok(enabled?),
    }
}

/// Returns whether NCCL takes ranks that share a GPU, on all ranks alike.
#[cfg(feature = "cuda")]
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
    ensure!(
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
fn bind_cores(gpu: usize, world: &World, context: &ParallelContext) -> anyhow::Result<()> {
    let rank = world.rank();
    let Some(bound) = cuda::bind_cores(gpu, world, context.world_group())? else {
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
