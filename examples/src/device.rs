//! On which device a program trains, and so on which of burn's backends.
//!
//! Programs are generic over [`TrainingBackend`], and [`DeviceArguments::run`](crate::arguments::DeviceArguments::run)
//! runs them on the one that was asked for.

use std::panic::AssertUnwindSafe;

use anyhow::{Context as _, ensure};
use burn::backend::Autodiff;
use burn::tensor::{DType, FloatDType, IntDType, backend::Backend, set_default_dtypes};
use burn_flex::{Flex, FlexDevice};
use burn_megatron::launch::World;
use clap::ValueEnum;

pub use burn_megatron::autodiff::TrainingBackend;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum DeviceKind {
    /// The processor.
    #[default]
    Cpu,
    /// NVIDIA's GPUs, each rank on the one of its local rank; in a build with the feature `cuda`.
    Cuda,
    /// A GPU that speaks Vulkan, or Mesa's lavapipe, which needs none; in a build with the feature `vulkan`.
    Vulkan,
    /// A GPU through `wgpu`, with kernels in WGSL, or in SPIR-V in a build with the feature `vulkan`; in a build with
    /// the feature `wgpu`.
    Wgpu,
    /// The processor, by burn's backend of `ndarray`; in a build with the feature `ndarray`.
    #[value(name = "ndarray")]
    NdArray,
}

/// An element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dtype {
    /// 32-bit floats.
    F32,
    /// 64-bit floats, the sharpest comparison.
    F64,
    /// 16-bit floats with the range of 32-bit ones.
    Bf16,
    /// 16-bit floats of IEEE 754, with a scaled loss in training.
    F16,
}

impl From<Dtype> for DType {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F32 => DType::F32,
            Dtype::F64 => DType::F64,
            Dtype::Bf16 => DType::BF16,
            Dtype::F16 => DType::F16,
        }
    }
}

impl From<Dtype> for FloatDType {
    fn from(dtype: Dtype) -> Self {
        DType::from(dtype).into()
    }
}

/// What there is to choose on GPUs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuOptions {
    /// Ranks may compute on the same.
    pub may_share: bool,
    /// Matrices are multiplied with cuBLASLt, where it is.
    pub uses_cublaslt: bool,
}

/// What runs on a device.
pub trait Program {
    type Output;

    fn run<B: TrainingBackend>(self, device: B::Device) -> anyhow::Result<Self::Output>;
}

impl DeviceKind {
    /// Finds what is wrong with the device before any rank is started.
    ///
    /// # Errors
    /// When this program was built without it, a library that it needs is missing, or it does not compute in this type.
    pub fn validate(self, dtype: Dtype) -> anyhow::Result<()> {
        let of_wgpu = (&[Dtype::F32, Dtype::F16][..], "f32 or f16");
        let (is_built, name, (types, listed)) = match self {
            DeviceKind::Cpu => return Ok(()),
            DeviceKind::Cuda => {
                let types = &[Dtype::F32, Dtype::F16, Dtype::Bf16][..];
                (cfg!(feature = "cuda"), "cuda", (types, "f32, f16 or bf16"))
            }
            DeviceKind::Vulkan => (cfg!(feature = "vulkan"), "vulkan", of_wgpu),
            DeviceKind::Wgpu => (cfg!(feature = "wgpu"), "wgpu", of_wgpu),
            DeviceKind::NdArray => {
                let types = &[Dtype::F32, Dtype::F64][..];
                (cfg!(feature = "ndarray"), "ndarray", (types, "f32 or f64"))
            }
        };
        ensure!(
            is_built,
            "--device {name}: this program was built without it; build it with --features {name}"
        );
        ensure!(
            types.contains(&dtype),
            "--device {name} does not compute in {}: {listed}, or another device",
            DType::from(dtype).name()
        );
        #[cfg(feature = "cuda")]
        if self == DeviceKind::Cuda {
            burn_megatron::cuda::libraries::check().context("--device cuda")?;
        }
        Ok(())
    }

    /// Returns whether its memory is the host's.
    pub fn has_host_memory(self) -> bool {
        matches!(self, DeviceKind::Cpu | DeviceKind::NdArray)
    }

    pub(crate) fn run<P: Program>(
        self,
        dtype: Dtype,
        gpu: GpuOptions,
        world: &World,
        program: P,
    ) -> anyhow::Result<P::Output> {
        self.validate(dtype)?;
        // Only CUDA has a choice.
        let _ = (gpu.may_share, gpu.uses_cublaslt, world);
        match self {
            DeviceKind::Cpu => start::<Flex, P>(FlexDevice, dtype, program),
            #[cfg(feature = "cuda")]
            DeviceKind::Cuda => {
                use burn_megatron::cuda::{self, Sharing};
                let sharing = if gpu.may_share {
                    Sharing::Allowed
                } else {
                    Sharing::Refused
                };
                let device = cuda::choose(world.local_rank(), sharing)?;
                cuda::end_process_on_lost_work();
                if gpu.uses_cublaslt {
                    use_cublaslt(&device)?;
                }
                start::<burn_cuda::Cuda, P>(device, dtype, program)
            }
            #[cfg(feature = "vulkan")]
            DeviceKind::Vulkan => start::<burn_wgpu::Vulkan, P>(burn_wgpu::WgpuDevice::DefaultDevice, dtype, program),
            #[cfg(feature = "wgpu")]
            DeviceKind::Wgpu => start::<burn_wgpu::Wgpu, P>(burn_wgpu::WgpuDevice::DefaultDevice, dtype, program),
            #[cfg(feature = "ndarray")]
            DeviceKind::NdArray => {
                use burn_ndarray::{NdArray, NdArrayDevice};
                match dtype {
                    Dtype::F64 => start::<NdArray<f64>, P>(NdArrayDevice::Cpu, dtype, program),
                    _ => start::<NdArray<f32>, P>(NdArrayDevice::Cpu, dtype, program),
                }
            }
            #[cfg(not(all(feature = "cuda", feature = "ndarray", feature = "vulkan", feature = "wgpu")))]
            other => unreachable!("{other:?} was refused"),
        }
    }
}

/// Multiplies with cuBLASLt from now on, or says that burn's own kernels do, where it is missing.
#[cfg(feature = "cuda")]
fn use_cublaslt(device: &burn_cuda::CudaDevice) -> anyhow::Result<()> {
    use burn_megatron::cuda::{CudaError, enable_cublaslt};
    match enable_cublaslt(device) {
        Err(missing @ CudaError::Missing { .. }) => {
            tracing::warn!(
                "{missing}; burn's own kernels multiply instead, which are slower, and round the factors of f32 to TF32"
            );
            Ok(())
        }
        enabled => Ok(enabled?),
    }
}

/// Returns how many bytes the pools of a CUDA device have reserved; none of other devices.
pub(crate) fn reserved_bytes<B: Backend>(device: &B::Device) -> Option<u64> {
    #[cfg(feature = "cuda")]
    {
        let gpu = (device as &dyn std::any::Any).downcast_ref()?;
        burn_megatron::cuda::reserved_bytes(gpu)
    }
    #[cfg(not(feature = "cuda"))]
    {
        let _ = device;
        None
    }
}

/// Returns the name that the driver gives a CUDA device; none of other devices.
pub(crate) fn device_name<B: Backend>(device: &B::Device) -> Option<String> {
    #[cfg(feature = "cuda")]
    {
        let gpu = (device as &dyn std::any::Any).downcast_ref()?;
        let name = burn_megatron::cuda::device_name(gpu);
        // The driver has just computed on it.
        Some(name.unwrap_or_else(|error| error.to_string()))
    }
    #[cfg(not(feature = "cuda"))]
    {
        let _ = device;
        None
    }
}

fn start<B, P>(device: B::Device, dtype: Dtype, program: P) -> anyhow::Result<P::Output>
where
    B: Backend,
    Autodiff<B>: TrainingBackend<Device = B::Device>,
    P: Program,
{
    // A backend looks for its device at the first question, and panics where there is none.
    let is_computed = std::panic::catch_unwind(AssertUnwindSafe(|| B::supports_dtype(&device, DType::from(dtype))));
    let is_computed = is_computed.ok().context("there is no such device on this machine")?;
    ensure!(is_computed, "{device:?} does not compute in {dtype:?}");
    set_default_dtypes::<B>(&device, FloatDType::from(dtype), IntDType::I32)
        .map_err(|error| anyhow::anyhow!("cannot set the element type: {error:?}"))?;
    program.run::<Autodiff<B>>(device)
}
