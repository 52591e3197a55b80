//! The devices on which operations are tried, and the trials of a claim on all of them.

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use cubecl_kernels::precision::compute_type;
use libtest_mimic::Trial;

/// A claim about an operation, to be tried on a device in a type.
///
/// Implemented by a type of no size for each claim, which has its name and its check in one place.
pub trait Claim: 'static {
    /// The trial's name: what is claimed.
    const NAME: &'static str;

    /// Tries it.
    fn check(setting: &Setting) -> anyhow::Result<()>;
}

/// Where a claim is tried.
#[derive(Clone, Debug)]
pub struct Setting {
    /// A device that differentiates.
    pub device: Device,
    /// The type of the inputs.
    pub dtype: DType,
    /// Whether kernels are compiled for the CPU, which takes its time.
    is_emulated: bool,
}

impl Setting {
    /// Returns that of the CPU, for numbers of a type.
    pub fn flex(dtype: DType) -> Self {
        Self {
            device: Device::flex(),
            dtype,
            is_emulated: false,
        }
    }

    /// Returns a tensor of the type, rounded from f64.
    pub fn tensor<const D: usize>(&self, values: &[f64], shape: [usize; D]) -> Tensor<D> {
        if values.is_empty() {
            // CubeCL copies nothing to CUDA where a dimension other than the first is 0.
            return Tensor::empty(shape, (&self.device, self.dtype));
        }
        let data = TensorData::new(values.to_vec(), shape).convert_dtype(self.dtype);
        Tensor::from_data(data, (&self.device, self.dtype))
    }

    /// As [`tensor`](Self::tensor), but a view of a larger tensor whose other elements are NaN.
    pub fn view<const D: usize>(&self, values: &[f64], shape: [usize; D]) -> Tensor<D> {
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
    pub fn integers(&self, values: &[i64]) -> Tensor<1, Int> {
        Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), &self.device)
    }

    /// The same for another type.
    pub fn of(&self, dtype: DType) -> Self {
        Self { dtype, ..self.clone() }
    }

    /// The same for the type that this one is computed in.
    pub fn computed(&self) -> Self {
        self.of(compute_type(self.dtype))
    }

    /// The same without autodiff, for a type.
    pub fn inner(&self, dtype: DType) -> Self {
        Self {
            device: self.device.clone().inner(),
            ..self.of(dtype)
        }
    }

    /// Returns values as they are when rounded to the type.
    pub fn rounded(&self, values: &[f64]) -> Vec<f64> {
        let data = TensorData::new(values.to_vec(), [values.len()]).convert_dtype(self.dtype);
        data.iter::<f64>().collect()
    }

    /// Whether burn's products round factors to TF32, which has 13 bits less than f32.
    pub fn multiplies_in_tf32(&self) -> bool {
        self.runs_kernels() && self.dtype == DType::F32
    }

    /// Returns whether CubeCL's kernels run.
    pub fn runs_kernels(&self) -> bool {
        self.is_emulated
    }

    /// Whether a claim is to take few of its shapes: `BURN_MEGATRON_ALL_TESTS=1` takes all, everywhere.
    pub fn takes_few(&self) -> bool {
        self.is_emulated && !takes_all()
    }
}

/// Returns whether to try what takes minutes and differs little from what is tried anyway: `BURN_MEGATRON_ALL_TESTS=1`.
pub fn takes_all() -> bool {
    std::env::var_os("BURN_MEGATRON_ALL_TESTS").is_some()
}

/// The trial of a claim that is for no setting.
pub fn plain(name: impl Into<String>, claim: fn() -> anyhow::Result<()>) -> Trial {
    Trial::test(name, move || Ok(claim()?))
}

/// Returns the trials of a claim: on Flex, on its references, and on CUDA, by default in the sharpest types.
pub fn trials_of<C: Claim>() -> Vec<Trial> {
    let mut trials = Vec::new();
    for dtype in [DType::F32, DType::F64, DType::F16, DType::BF16] {
        trials.push(trial::<C>("flex", dtype, false, Device::flex));
        #[cfg(feature = "slot")]
        trials.push(trial::<C>("reference", dtype, false, of_references));
    }
    #[cfg(feature = "cuda")]
    for dtype in [DType::BF16, DType::F32, DType::F16] {
        if dtype == DType::BF16 || takes_all() {
            trials.push(trial::<C>("cuda", dtype, true, || Device::cuda(0)));
        }
    }
    trials
}

/// Returns the trial of a claim on a device in a type; a failure has the whole chain of contexts.
fn trial<C: Claim>(name: &str, dtype: DType, is_emulated: bool, device: fn() -> Device) -> Trial {
    let name = format!("{name}_{}::{}", type_name(dtype), C::NAME);
    Trial::test(name, move || {
        let setting = Setting {
            device: device().autodiff(),
            dtype,
            is_emulated,
        };
        C::check(&setting).map_err(|error| format!("{error:#}").into())
    })
}

/// Flex in burn's open slot: a device that no operation has a form for, so that the references run.
#[cfg(feature = "slot")]
fn of_references() -> Device {
    use burn_flex::{Flex, FlexDevice};
    use burn_ndarray::NdArrayDevice;

    static DEVICE: std::sync::OnceLock<NdArrayDevice> = std::sync::OnceLock::new();
    Device::new(*DEVICE.get_or_init(|| NdArrayDevice::serve::<Flex>(FlexDevice)))
}

/// Returns the trials of a claim about tensors of no elements, without those on a CUDA device: CubeCL neither allocates
/// nothing there, nor copies it where a dimension other than the first is 0.
pub fn trials_of_nothing<C: Claim>() -> Vec<Trial> {
    let mut trials = trials_of::<C>();
    trials.retain(|trial| !trial.name().starts_with("cuda_"));
    trials
}

/// Large numbers of a type, up to about the largest.
pub fn largest(dtype: DType) -> Vec<f64> {
    match dtype {
        DType::F16 => vec![1e3, 6e4],
        _ => vec![1e3, 1e30, 3e38],
    }
}

/// A type's name in trials.
pub fn type_name(dtype: DType) -> String {
    format!("{dtype:?}").to_lowercase()
}
