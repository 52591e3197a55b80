//! Devices that programs compute on, and the element types of each.

#[cfg(feature = "cuda")]
use anyhow::Context as _;
use anyhow::ensure;
#[cfg(feature = "cuda")]
use burn::backend::DispatchDevice;
use burn::tensor::{DType, Device, FloatDType};
#[cfg(feature = "cuda")]
use burn_cubecl::CubeDevice;
use clap::ValueEnum;

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
        self == DeviceKind::Cpu
    }
}

/// Returns the name that the driver gives a CUDA device; none of other devices.
#[cfg(feature = "cuda")]
pub(crate) fn device_name(device: &Device) -> Option<String> {
    let device = device.clone().inner();
    let DispatchDevice::Cube(CubeDevice::Cuda(gpu)) = device.as_dispatch() else {
        return None;
    };
    let name = burn_megatron::cuda::device_name(gpu.index);
    // The driver has just computed on it.
    Some(name.unwrap_or_else(|error| error.to_string()))
}

/// Returns none: no device has a driver that names it.
#[cfg(not(feature = "cuda"))]
pub(crate) fn device_name(_device: &Device) -> Option<String> {
    None
}
