//! AdamW over flat buffers, in one pass: parameters, moments and gradients are read once and written once.

pub(crate) mod flex;
pub mod host;
#[cfg(feature = "cubecl")]
mod kernel;
#[cfg(feature = "cubecl")]
pub(crate) mod launch;
pub mod reference;

use std::ops::Range;

use burn::tensor::{DType, Tensor, backend::Backend};

use crate::KernelBackend;
use crate::error::{Check, KernelError};

/// What one step reads and writes, `[elements]` each. Given up by the caller, so that it can be written in place.
#[derive(Clone, Debug)]
pub struct AdamWBuffers<B: Backend> {
    /// The main parameters: f32, or f64.
    pub parameter: Tensor<B, 1>,
    /// The mean of the gradients, in the main parameters' type.
    pub moment_1: Tensor<B, 1>,
    /// The mean of their squares, likewise.
    pub moment_2: Tensor<B, 1>,
}

impl<B: Backend> AdamWBuffers<B> {
    /// Returns parameters and moments.
    pub fn into_array(self) -> [Tensor<B, 1>; 3] {
        [self.parameter, self.moment_1, self.moment_2]
    }

    /// Returns the buffers of parameters and moments.
    pub fn from_array([parameter, moment_1, moment_2]: [Tensor<B, 1>; 3]) -> Self {
        Self {
            parameter,
            moment_1,
            moment_2,
        }
    }
}

/// The numbers of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdamWStep {
    /// The learning rate.
    pub learning_rate: f64,
    /// How much of the first moment is kept.
    pub beta_1: f64,
    /// How much of the second moment is kept.
    pub beta_2: f64,
    /// What is added to the denominator.
    pub epsilon: f64,
    /// Decoupled weight decay.
    pub weight_decay: f64,
    /// What gradients are multiplied by first: the reciprocal of a loss scale, a clipping factor.
    pub gradient_scale: f64,
    /// Which update of these buffers this is; 1 for the first.
    pub time: u64,
}

impl AdamWStep {
    /// `1 − β^time` for both moments.
    pub fn corrections(&self) -> [f64; 2] {
        // Steps beyond 2^31 change no power of a number below 1.
        let exponent = i32::try_from(self.time).unwrap_or(i32::MAX);
        [self.beta_1, self.beta_2].map(|beta| 1.0 - beta.powi(exponent))
    }

    fn check(&self, check: Check) -> Result<(), KernelError> {
        for (what, beta) in [("beta_1", self.beta_1), ("beta_2", self.beta_2)] {
            check.value(what, beta, (0.0..1.0).contains(&beta), || "in [0, 1)".to_owned())?;
        }
        let is_epsilon = self.epsilon.is_finite() && self.epsilon >= 0.0;
        check.value("epsilon", self.epsilon, is_epsilon, || {
            "finite and 0 or more".to_owned()
        })?;
        for (what, number) in [
            ("the learning rate", self.learning_rate),
            ("the weight decay", self.weight_decay),
            ("the gradients' scale", self.gradient_scale),
        ] {
            check.value(what, number, number.is_finite(), || "finite".to_owned())?;
        }
        check.value("the step's time", self.time as f64, self.time > 0, || {
            "1 or more".to_owned()
        })
    }
}

/// The elements of flat buffers that a step is for.
#[derive(Clone, Debug, PartialEq)]
pub struct AdamWRanges {
    /// The numbers of the step.
    pub step: AdamWStep,
    /// Ranges of elements, apart from each other and from those of other steps.
    pub ranges: Vec<Range<usize>>,
}

/// Updates parameters and moments, and returns them; also returns the new parameters in the type `copy`, if given.
///
/// With `g` the scaled gradient: `m = β₁ m + (1 − β₁) g`, `v = β₂ v + (1 − β₂) g²`,
/// `p = p (1 − lr · decay) − lr / (1 − β₁ᵗ) · m / (√v / √(1 − β₂ᵗ) + ε)`.
///
/// # Shapes
/// - buffers: see [`AdamWBuffers`]
/// - `gradient`: `[elements]`, of any type
///
/// # Errors
/// When the buffers' lengths or types differ, they are of 16 bits, or one of the step's numbers is not what it may be:
/// β in `[0, 1)`, ε not below 0, the time above 0, all of them finite.
///
/// # Reference
/// Loshchilov and Hutter 2019, arXiv:1711.05101, algorithm 2.
pub fn adamw<B: KernelBackend>(
    buffers: AdamWBuffers<B>,
    gradient: Tensor<B, 1>,
    step: &AdamWStep,
    copy: Option<DType>,
) -> Result<(AdamWBuffers<B>, Option<Tensor<B, 1>>), KernelError> {
    let check = Check("adamw");
    check_buffers(check, &buffers, &gradient, copy)?;
    step.check(check)?;
    Ok(B::adamw(buffers, gradient, step, copy))
}

/// Updates a parameter of any shape and its moments, in this order, and returns them: see [`adamw()`].
///
/// # Errors
/// As [`adamw()`].
pub fn adamw_elements<B: KernelBackend, const D: usize>(
    tensors: [Tensor<B, D>; 3],
    gradient: Tensor<B, D>,
    step: &AdamWStep,
) -> Result<[Tensor<B, D>; 3], KernelError> {
    let check = Check("adamw_elements");
    check_tensors(check, &tensors, &gradient, None)?;
    step.check(check)?;
    Ok(B::adamw_elements(tensors, gradient, step))
}

/// Computes [`KernelBackend::adamw_elements`] on flat buffers.
pub(crate) fn as_buffers<B: KernelBackend, const D: usize>(
    tensors: [Tensor<B, D>; 3],
    gradient: Tensor<B, D>,
    step: &AdamWStep,
) -> [Tensor<B, D>; 3] {
    let shape = gradient.dims();
    let length: usize = shape.iter().product();
    let buffers = AdamWBuffers::from_array(tensors.map(|tensor| tensor.reshape([length])));
    let (buffers, _) = B::adamw(buffers, gradient.reshape([length]), step, None);
    buffers.into_array().map(|buffer| buffer.reshape(shape))
}

/// Updates ranges of flat buffers that many parameters share, each range by the numbers of its step: see [`adamw()`].
///
/// One pass over the ranges of each step, however many there are; elements outside of them stay. Also returns the new
/// parameters in the type `copy`, `[elements]`, where only those of the ranges say something.
///
/// # Errors
/// As [`adamw()`], and when a range ends outside of the buffers.
pub fn adamw_ranges<B: KernelBackend>(
    buffers: AdamWBuffers<B>,
    gradient: Tensor<B, 1>,
    steps: &[AdamWRanges],
    copy: DType,
) -> Result<(AdamWBuffers<B>, Tensor<B, 1>), KernelError> {
    let check = Check("adamw_ranges");
    check_buffers(check, &buffers, &gradient, Some(copy))?;
    let [elements] = gradient.dims();
    for AdamWRanges { step, ranges } in steps {
        step.check(check)?;
        for range in ranges {
            let is_inside = range.start <= range.end && range.end <= elements;
            check.value("a range's end", range.end as f64, is_inside, || {
                format!("{} at least and {elements} at most", range.start)
            })?;
        }
    }
    Ok(B::adamw_ranges(buffers, gradient, steps, copy))
}

fn check_buffers<B: KernelBackend>(
    check: Check,
    buffers: &AdamWBuffers<B>,
    gradient: &Tensor<B, 1>,
    copy: Option<DType>,
) -> Result<(), KernelError> {
    check_tensors(check, &buffers.clone().into_array(), gradient, copy)
}

fn check_tensors<B: KernelBackend, const D: usize>(
    check: Check,
    [parameter, moment_1, moment_2]: &[Tensor<B, D>; 3],
    gradient: &Tensor<B, D>,
    copy: Option<DType>,
) -> Result<(), KernelError> {
    const MAIN: &[DType] = &[DType::F32, DType::F64];
    let (shape, dtype) = (parameter.dims(), parameter.dtype());
    if !MAIN.contains(&dtype) {
        return Err(KernelError::Type {
            operation: check.0,
            what: "the main parameters".into(),
            actual: dtype,
            valid: MAIN,
        });
    }
    for (what, moment) in [("the first moment", moment_1), ("the second moment", moment_2)] {
        check.shape(what, &moment.dims(), &shape)?;
        check.same_type(what, moment.dtype(), dtype)?;
    }
    check.shape("the gradient", &gradient.dims(), &shape)?;
    let device = gradient.device();
    check.float::<B>("the gradient", gradient.dtype(), &device)?;
    check.float::<B>("the main parameters", dtype, &device)?;
    match copy {
        Some(copy) => check.float::<B>("the copy", copy, &device),
        None => Ok(()),
    }
}
