//! AdamW over flat buffers, in one pass: parameters, moments and gradients are read once and written once.

pub(crate) mod flex;
pub mod host;
#[cfg(feature = "cubecl")]
mod kernel;
#[cfg(feature = "cubecl")]
pub(crate) mod launch;
pub mod reference;

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
    const MAIN: &[DType] = &[DType::F32, DType::F64];
    let check = Check("adamw");
    let (shape, dtype) = (buffers.parameter.dims(), buffers.parameter.dtype());
    if !MAIN.contains(&dtype) {
        return Err(KernelError::Type {
            operation: "adamw",
            what: "the main parameters".into(),
            actual: dtype,
            valid: MAIN,
        });
    }
    for (what, moment) in [
        ("the first moment", &buffers.moment_1),
        ("the second moment", &buffers.moment_2),
    ] {
        check.shape(what, &moment.dims(), &shape)?;
        check.same_type(what, moment.dtype(), dtype)?;
    }
    check.shape("the gradient", &gradient.dims(), &shape)?;
    let device = gradient.device();
    check.float::<B>("the gradient", gradient.dtype(), &device)?;
    check.float::<B>("the main parameters", dtype, &device)?;
    if let Some(copy) = copy {
        check.float::<B>("the copy", copy, &device)?;
    }
    step.check(check)?;
    Ok(B::adamw(buffers, gradient, step, copy))
}
