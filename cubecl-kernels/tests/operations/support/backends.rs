//! The backends on which operations are tried, and the trials of a claim on all of them.

use std::sync::OnceLock;

use burn::backend::Autodiff;
use burn::tensor::{DType, Int, Tensor, TensorData, backend::Backend};
use burn_flex::Flex;
use burn_ndarray::NdArray;
use burn_wgpu::{CubeBackend, WgpuDevice, WgpuRuntime};
use cubecl_kernels::KernelBackend;
use cubecl_kernels::precision::compute_type;
use cuda_source::{CudaSource, CudaSourceDevice, Host};
use kernel_tests::takes_all;
use libtest_mimic::Trial;

/// CubeCL's kernels as they are.
pub type Vulkan = CubeBackend<WgpuRuntime, f32, i32, u8>;
/// The same with burn's fusion.
pub type FusedVulkan = burn_wgpu::Vulkan;

/// CubeCL's kernels as they are for CUDA, their source run on the CPU.
pub type SourceOfCuda = CubeBackend<CudaSource, f32, i32, u8>;

/// A claim about an operation, to be tried on a backend in a type.
///
/// Implemented by a type of no size for each claim, because a closure cannot be generic.
pub trait Claim: 'static {
    /// The trial's name: what is claimed.
    const NAME: &'static str;

    /// Tries it. `B` differentiates.
    fn check<B: KernelBackend>(setting: &Setting<Autodiff<B>>) -> anyhow::Result<()>;
}

/// Where a claim is tried.
#[derive(Clone, Debug)]
pub struct Setting<B: Backend> {
    pub device: B::Device,
    /// The type of the inputs.
    pub dtype: DType,
}

impl<B: Backend> Setting<B> {
    /// Returns a tensor of the type, rounded from f64.
    pub fn tensor<const D: usize>(&self, values: &[f64], shape: [usize; D]) -> Tensor<B, D> {
        if values.is_empty() {
            // CubeCL copies nothing to CUDA where a dimension other than the first is 0.
            return Tensor::empty(shape, (&self.device, self.dtype));
        }
        let data = TensorData::new(values.to_vec(), shape).convert_dtype(self.dtype);
        Tensor::from_data(data, (&self.device, self.dtype))
    }

    /// As [`tensor`](Self::tensor), but a view of a larger tensor whose other elements are NaN.
    pub fn view<const D: usize>(&self, values: &[f64], shape: [usize; D]) -> Tensor<B, D> {
        let (before, columns, after) = (2, shape[D - 1], 3);
        let mut around = shape;
        around[D - 1] += before + after;
        let pad = |count| std::iter::repeat_n(f64::NAN, count);
        let rows = values.chunks_exact(columns);
        let padded: Vec<f64> = rows
            .flat_map(|row| pad(before).chain(row.iter().copied()).chain(pad(after)))
            .collect();
        self.tensor(&padded, around).narrow(D - 1, before, columns)
    }

    /// Returns whole numbers.
    pub fn integers(&self, values: &[i64]) -> Tensor<B, 1, Int> {
        Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), &self.device)
    }

    /// The same for the type that this one is computed in.
    pub fn computed(&self) -> Self {
        Self {
            device: self.device.clone(),
            dtype: compute_type(self.dtype),
        }
    }

    /// Returns values as they are when rounded to the type.
    pub fn rounded(&self, values: &[f64]) -> Vec<f64> {
        let data = TensorData::new(values.to_vec(), [values.len()]).convert_dtype(self.dtype);
        data.iter::<f64>().collect()
    }
}

impl<B: Backend> Setting<Autodiff<B>> {
    /// The same without autodiff, for a type.
    pub fn inner(&self, dtype: DType) -> Setting<B> {
        Setting {
            device: self.device.clone(),
            dtype,
        }
    }
}

/// The trial of a claim that is for no setting.
pub fn plain(name: impl Into<String>, claim: fn() -> anyhow::Result<()>) -> Trial {
    Trial::test(name, move || Ok(claim()?))
}

/// The types in which a kind of device is tried, the sharpest first: by default that alone.
fn taken<const N: usize>(dtypes: [DType; N]) -> impl Iterator<Item = DType> {
    dtypes.into_iter().take(if takes_all() { N } else { 1 })
}

/// The trial of a claim on a backend in a type; a failure has the whole chain of contexts.
pub fn trial<C: Claim, B: KernelBackend>(
    backend: &str,
    dtype: DType,
    device: impl FnOnce() -> B::Device + Send + 'static,
) -> Trial {
    Trial::test(format!("{backend}_{}::{}", type_name(dtype), C::NAME), move || {
        let device = device();
        C::check::<B>(&Setting { device, dtype }).map_err(|error| format!("{error:#}").into())
    })
}

pub fn trials_of<C: Claim>() -> Vec<Trial> {
    let mut trials = Vec::new();
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        trials.push(trial::<C, Flex>("flex", dtype, Default::default));
    }
    // A backend of which nothing is overridden, so that the references run, forward and backward.
    for dtype in taken([DType::F32, DType::F64]) {
        trials.push(trial::<C, NdArray>("reference", dtype, Default::default));
    }
    for dtype in taken([DType::F32, DType::F16]) {
        let (is_missing, device) = (!has_vulkan(dtype), || WgpuDevice::DefaultDevice);
        trials.push(trial::<C, Vulkan>("vulkan", dtype, device).with_ignored_flag(is_missing));
        // Fusion passes the kernels on, in whichever type.
        trials.push(trial::<C, FusedVulkan>("fusion", dtype, device).with_ignored_flag(is_missing));
    }
    for dtype in taken([DType::BF16, DType::F32, DType::F16]) {
        let device = || CudaSourceDevice::default().of_this_thread();
        let trial = trial::<C, SourceOfCuda>("cuda_source", dtype, device);
        trials.push(trial.with_ignored_flag(!has_host_compiler()));
    }
    #[cfg(feature = "cuda")]
    trials.extend(crate::support::cuda::trials_of::<C>());
    trials
}

/// Whether a claim is to take few of its shapes: where its kernels are compiled for the CPU, which takes minutes,
/// CUDA's source and those of a Vulkan driver without a GPU. On the matrix units, in bf16, there is most to try.
/// `BURN_MEGATRON_ALL_TESTS=1` takes all, everywhere.
pub fn takes_few<B: Backend>() -> bool {
    let compiles = |runtime| std::any::type_name::<B>().contains(runtime);
    (compiles("CudaSource") || compiles("Wgpu")) && !takes_all()
}

/// Whether the backend's products round factors in f32 to TF32, which has 13 bits less: burn's on CUDA do, cuBLASLt's
/// do not.
pub fn multiplies_in_tf32<B: Backend>(dtype: DType) -> bool {
    let is_cuda = std::any::type_name::<B>().contains("CudaRuntime");
    dtype == DType::F32 && is_cuda && !uses_cublaslt()
}

/// Whether linear layers on CUDA are to multiply with cuBLASLt.
pub fn uses_cublaslt() -> bool {
    std::env::var("KERNEL_TESTS_CUBLASLT").is_ok_and(|value| value == "1")
}

/// Returns the trials of a claim about tensors of no elements, without those on a CUDA device: CubeCL 0.10 neither
/// allocates nothing there, nor copies it where a dimension other than the first is 0.
pub fn trials_of_nothing<C: Claim>() -> Vec<Trial> {
    let mut trials = trials_of::<C>();
    trials.retain(|trial| !trial.name().starts_with("cuda_") || trial.name().starts_with("cuda_source_"));
    trials
}

/// Whether a trial's backend says what comes of numbers that are none.
pub fn is_sure_of_not_numbers(trial: &Trial) -> bool {
    trial.name().starts_with("flex") || trial.name().starts_with("cuda_source")
}

/// Large numbers of a type, up to about the largest.
pub fn largest(dtype: DType) -> Vec<f64> {
    match dtype {
        DType::F16 => vec![1e3, 6e4],
        _ => vec![1e3, 1e30, 3e38],
    }
}

/// Whether the source of CUDA kernels can run here; says so once where it cannot.
fn has_host_compiler() -> bool {
    static HAS: OnceLock<bool> = OnceLock::new();
    let look = || {
        Host::find()
            .inspect_err(|error| eprintln!("trials are ignored: {error}"))
            .is_ok()
    };
    *HAS.get_or_init(look)
}

/// A type's name in trials.
pub fn type_name(dtype: DType) -> String {
    format!("{dtype:?}").to_lowercase()
}

/// Whether there is a Vulkan device that computes with the type; says so once where there is none.
pub fn has_vulkan(dtype: DType) -> bool {
    static HAS: OnceLock<[bool; 2]> = OnceLock::new();
    let [has_device, has_f16] = *HAS.get_or_init(|| {
        let probe = |dtype| {
            let found = std::panic::catch_unwind(|| Vulkan::supports_dtype(&WgpuDevice::DefaultDevice, dtype));
            found.unwrap_or(false)
        };
        let has_device = probe(DType::F32);
        if !has_device {
            eprintln!("no Vulkan device: its trials are ignored (on Debian: apt-get install mesa-vulkan-drivers)");
        }
        [has_device, has_device && probe(DType::F16)]
    });
    match dtype {
        DType::F32 => has_device,
        _ => has_f16,
    }
}
