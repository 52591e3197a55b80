//! AdamW over flat buffers, in one pass: parameters, moments and gradients are read once and written once.

mod flex;
pub mod host;
#[cfg(feature = "cuda")]
mod kernel;
#[cfg(feature = "cuda")]
mod launch;
mod reference;

use burn::backend::{DispatchTensor, TensorMetadata};
use burn::tensor::{DType, Tensor};
#[cfg(feature = "cuda")]
use burn_cubecl::tensor::CubeTensor;
use burn_flex::FlexTensor;

use crate::error::{Check, KernelError};
use crate::operation::{Operation, Spec, apply};

/// What one step reads and writes, `[elements]` each. Given up by the caller, so that it can be written in place.
#[derive(Clone, Debug)]
pub struct AdamWBuffers {
    /// The main parameters: f32, or f64.
    pub parameter: Tensor<1>,
    /// The mean of the gradients, in the main parameters' type.
    pub moment_1: Tensor<1>,
    /// The mean of their squares, likewise.
    pub moment_2: Tensor<1>,
}

impl AdamWBuffers {
    fn into_dispatch(self) -> [DispatchTensor; 3] {
        [self.parameter, self.moment_1, self.moment_2].map(Tensor::into_dispatch)
    }

    fn from_dispatch(tensors: [DispatchTensor; 3]) -> Self {
        let [parameter, moment_1, moment_2] = tensors.map(Tensor::from_dispatch);
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
pub fn adamw(
    buffers: AdamWBuffers,
    gradient: Tensor<1>,
    step: &AdamWStep,
    copy: Option<DType>,
) -> Result<(AdamWBuffers, Option<Tensor<1>>), KernelError> {
    let check = Check("adamw");
    check_buffers(check, &buffers, &gradient, copy)?;
    step.check(check)?;
    let operation = Step { numbers: *step, copy };
    let [parameter, moment_1, moment_2] = buffers.into_dispatch();
    let inputs = [parameter, moment_1, moment_2, gradient.into_dispatch()];
    Ok(match copy {
        None => (AdamWBuffers::from_dispatch(apply(&operation, inputs)), None),
        Some(_) => {
            let [parameter, moment_1, moment_2, copy] = apply(&operation, inputs);
            let buffers = AdamWBuffers::from_dispatch([parameter, moment_1, moment_2]);
            (buffers, Some(Tensor::from_dispatch(copy)))
        }
    })
}

/// Parameters, moments and gradient to new parameters and moments, and a copy where one is asked for.
#[derive(Clone, Debug)]
struct Step {
    numbers: AdamWStep,
    copy: Option<DType>,
}

impl Step {
    fn reference(
        &self,
        [parameter, moment_1, moment_2, gradient]: [DispatchTensor; 4],
    ) -> ([DispatchTensor; 3], Option<DispatchTensor>) {
        let buffers = AdamWBuffers::from_dispatch([parameter, moment_1, moment_2]);
        let (buffers, copy) = reference::step(buffers, Tensor::from_dispatch(gradient), &self.numbers, self.copy);
        (buffers.into_dispatch(), copy.map(Tensor::into_dispatch))
    }

    fn flex(
        &self,
        [parameter, moment_1, moment_2, gradient]: [FlexTensor; 4],
    ) -> ([FlexTensor; 3], Option<FlexTensor>) {
        flex::step([parameter, moment_1, moment_2], gradient, &self.numbers, self.copy)
    }

    #[cfg(feature = "cuda")]
    fn cube(
        &self,
        [parameter, moment_1, moment_2, gradient]: [CubeTensor; 4],
    ) -> ([CubeTensor; 3], Option<CubeTensor>) {
        launch::step([parameter, moment_1, moment_2], gradient, &self.numbers, self.copy)
    }
}

impl Operation<4, 3> for Step {
    const NAME: &'static str = "adamw";

    fn outputs(&self, [parameter, moment_1, moment_2, _]: [Spec; 4]) -> [Spec; 3] {
        [parameter, moment_1, moment_2]
    }

    fn reference(&self, inputs: [DispatchTensor; 4]) -> [DispatchTensor; 3] {
        self.reference(inputs).0
    }

    fn flex(&self, inputs: [FlexTensor; 4]) -> [FlexTensor; 3] {
        self.flex(inputs).0
    }

    #[cfg(feature = "cuda")]
    fn cube(&self, inputs: [CubeTensor; 4]) -> [CubeTensor; 3] {
        self.cube(inputs).0
    }
}

impl Operation<4, 4> for Step {
    const NAME: &'static str = "adamw_with_copy";

    fn outputs(&self, [parameter, moment_1, moment_2, _]: [Spec; 4]) -> [Spec; 4] {
        let copy = (parameter.0.clone(), self.copy.expect("a copy is asked for"));
        [parameter, moment_1, moment_2, copy]
    }

    fn reference(&self, inputs: [DispatchTensor; 4]) -> [DispatchTensor; 4] {
        with_copy(self.reference(inputs))
    }

    fn flex(&self, inputs: [FlexTensor; 4]) -> [FlexTensor; 4] {
        with_copy(self.flex(inputs))
    }

    #[cfg(feature = "cuda")]
    fn cube(&self, inputs: [CubeTensor; 4]) -> [CubeTensor; 4] {
        with_copy(self.cube(inputs))
    }
}

fn with_copy<T>(([parameter, moment_1, moment_2], copy): ([T; 3], Option<T>)) -> [T; 4] {
    [parameter, moment_1, moment_2, copy.expect("a copy is asked for")]
}

fn check_buffers(
    check: Check,
    buffers: &AdamWBuffers,
    gradient: &Tensor<1>,
    copy: Option<DType>,
) -> Result<(), KernelError> {
    let AdamWBuffers {
        parameter,
        moment_1,
        moment_2,
    } = buffers;
    let (shape, dtype) = (parameter.dims(), parameter.dtype());
    check.one_of("the main parameters", dtype, &[DType::F32, DType::F64])?;
    for (what, moment) in [("the first moment", moment_1), ("the second moment", moment_2)] {
        check.shape(what, &moment.dims(), &shape)?;
        check.same_type(what, moment.dtype(), dtype)?;
    }
    check.shape("the gradient", &gradient.dims(), &shape)?;
    let device = gradient.clone().into_dispatch().device();
    check.float("the gradient", gradient.dtype(), &device)?;
    check.float("the main parameters", dtype, &device)?;
    copy.map_or(Ok(()), |copy| check.float("the copy", copy, &device))
}
