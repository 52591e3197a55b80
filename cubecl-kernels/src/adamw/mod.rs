//! AdamW over flat buffers, in one pass: parameters, moments and gradients are read once and written once.

mod flex;
pub mod host;
#[cfg(feature = "cubecl")]
mod kernel;
#[cfg(feature = "cubecl")]
mod launch;
mod reference;

use std::ops::Range;

use burn::backend::DispatchTensor;
use burn::tensor::{DType, Tensor};
#[cfg(feature = "cubecl")]
use burn_cubecl::tensor::CubeTensor;
use burn_flex::FlexTensor;
#[cfg(feature = "cubecl")]
use cubecl::client::Client;

#[cfg(feature = "cubecl")]
use crate::cube::launch::is_supported;
use crate::error::{Check, KernelError};
use crate::operation::parts::PartRule;
use crate::operation::{Operation, Spec, Tensors, apply};

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
    /// The buffers in the order of their fields.
    pub fn into_array(self) -> [Tensor<1>; 3] {
        [self.parameter, self.moment_1, self.moment_2]
    }

    /// The buffers of this order.
    pub fn from_array([parameter, moment_1, moment_2]: [Tensor<1>; 3]) -> Self {
        Self {
            parameter,
            moment_1,
            moment_2,
        }
    }
}

impl Tensors for AdamWBuffers {
    type Of<T: Send + Sync> = [T; 3];

    fn into_dispatch(self) -> [DispatchTensor; 3] {
        self.into_array().map(Tensor::into_dispatch)
    }

    fn from_dispatch(tensors: [DispatchTensor; 3]) -> Self {
        Self::from_array(tensors.map(Tensor::from_dispatch))
    }

    fn map<T: Send + Sync, U: Send + Sync>(of: [T; 3], each: &mut impl FnMut(T) -> U) -> [U; 3] {
        of.map(each)
    }

    fn by_ref<T: Send + Sync>(of: &[T; 3]) -> [&T; 3] {
        of.each_ref()
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
pub fn adamw(
    buffers: AdamWBuffers,
    gradient: Tensor<1>,
    step: &AdamWStep,
    copy: Option<DType>,
) -> Result<(AdamWBuffers, Option<Tensor<1>>), KernelError> {
    let check = Check("adamw");
    check_buffers(check, &buffers, &gradient, copy)?;
    step.check(check)?;
    Ok(apply(&Step { numbers: *step, copy }, (buffers, gradient)))
}

/// Updates a parameter of any shape and its moments, in this order, and returns them: see [`adamw()`].
///
/// # Errors
/// As [`adamw()`].
pub fn adamw_elements<const D: usize>(
    tensors: [Tensor<D>; 3],
    gradient: Tensor<D>,
    step: &AdamWStep,
) -> Result<[Tensor<D>; 3], KernelError> {
    let check = Check("adamw_elements");
    check_tensors(check, &tensors, &gradient, None)?;
    step.check(check)?;
    Ok(apply(&StepElements::<D>(*step), (tensors, gradient)))
}

/// Updates ranges of flat buffers that many parameters share, each range by the numbers of its step: see [`adamw()`].
///
/// One pass over the ranges of each step, however many there are; elements outside of them stay. Also returns the new
/// parameters in the type `copy`, `[elements]`, where only those of the ranges say something.
///
/// # Errors
/// As [`adamw()`], and when a range ends outside of the buffers.
pub fn adamw_ranges(
    buffers: AdamWBuffers,
    gradient: Tensor<1>,
    steps: &[AdamWRanges],
    copy: DType,
) -> Result<(AdamWBuffers, Tensor<1>), KernelError> {
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
    let steps = steps.to_vec();
    Ok(apply(&StepRanges { steps, copy }, (buffers, gradient)))
}

/// Parameters, moments and gradient to new parameters and moments, and a copy where one is asked for.
#[derive(Clone, Debug)]
struct Step {
    numbers: AdamWStep,
    copy: Option<DType>,
}

impl Operation for Step {
    type Inputs = (AdamWBuffers, Tensor<1>);
    type Outputs = (AdamWBuffers, Option<Tensor<1>>);

    const NAME: &'static str = "adamw";

    fn outputs(&self, (buffers, gradient): ([Spec; 3], Spec)) -> ([Spec; 3], Option<Spec>) {
        (buffers, self.copy.map(|dtype| (gradient.0, dtype)))
    }

    fn reference(&self, (buffers, gradient): Self::Inputs) -> Self::Outputs {
        reference::step(buffers, gradient, &self.numbers, self.copy)
    }

    fn flex(&self, (buffers, gradient): ([FlexTensor; 3], FlexTensor)) -> ([FlexTensor; 3], Option<FlexTensor>) {
        flex::step(buffers, gradient, &self.numbers, self.copy)
    }

    #[cfg(feature = "cubecl")]
    fn is_taken(&self, client: &Client, _inputs: ([Spec; 3], Spec)) -> bool {
        self.copy.is_none_or(|dtype| is_supported(client, dtype))
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, (buffers, gradient): ([CubeTensor; 3], CubeTensor)) -> ([CubeTensor; 3], Option<CubeTensor>) {
        launch::step(buffers, gradient, &self.numbers, self.copy)
    }
}

/// [`Step`] of tensors of any shape.
#[derive(Clone, Copy, Debug)]
struct StepElements<const D: usize>(AdamWStep);

impl<const D: usize> Operation for StepElements<D> {
    type Inputs = ([Tensor<D>; 3], Tensor<D>);
    type Outputs = [Tensor<D>; 3];

    const NAME: &'static str = "adamw_elements";

    fn outputs(&self, (tensors, _): ([Spec; 3], Spec)) -> [Spec; 3] {
        tensors
    }

    fn reference(&self, (tensors, gradient): Self::Inputs) -> Self::Outputs {
        let shape = gradient.dims();
        let length: usize = shape.iter().product();
        let buffers = AdamWBuffers::from_array(tensors.map(|tensor| tensor.reshape([length])));
        let step = Step {
            numbers: self.0,
            copy: None,
        };
        let (buffers, _) = apply(&step, (buffers, gradient.reshape([length])));
        buffers.into_array().map(|buffer| buffer.reshape(shape))
    }

    #[cfg(feature = "cubecl")]
    fn is_taken(&self, _client: &Client, _inputs: ([Spec; 3], Spec)) -> bool {
        false
    }

    fn part_rule(&self, _inputs: ([Spec; 3], Spec)) -> Option<PartRule> {
        Some(PartRule::Each(3))
    }
}

/// Parameters, moments and gradient to those with ranges updated, and a copy of the parameters.
#[derive(Clone, Debug)]
struct StepRanges {
    steps: Vec<AdamWRanges>,
    copy: DType,
}

impl Operation for StepRanges {
    type Inputs = (AdamWBuffers, Tensor<1>);
    type Outputs = (AdamWBuffers, Tensor<1>);

    const NAME: &'static str = "adamw_ranges";

    fn outputs(&self, (buffers, gradient): ([Spec; 3], Spec)) -> ([Spec; 3], Spec) {
        (buffers, (gradient.0, self.copy))
    }

    fn reference(&self, (buffers, gradient): Self::Inputs) -> Self::Outputs {
        reference::step_ranges(buffers, gradient, &self.steps, self.copy)
    }

    #[cfg(feature = "cubecl")]
    fn is_taken(&self, client: &Client, _inputs: ([Spec; 3], Spec)) -> bool {
        is_supported(client, self.copy)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, (buffers, gradient): ([CubeTensor; 3], CubeTensor)) -> ([CubeTensor; 3], CubeTensor) {
        launch::step_ranges(buffers, gradient, &self.steps, self.copy)
    }
}

fn check_buffers(
    check: Check,
    buffers: &AdamWBuffers,
    gradient: &Tensor<1>,
    copy: Option<DType>,
) -> Result<(), KernelError> {
    check_tensors(check, &buffers.clone().into_array(), gradient, copy)
}

fn check_tensors<const D: usize>(
    check: Check,
    [parameter, moment_1, moment_2]: &[Tensor<D>; 3],
    gradient: &Tensor<D>,
    copy: Option<DType>,
) -> Result<(), KernelError> {
    let (shape, dtype) = (parameter.dims(), parameter.dtype());
    check.one_of("the main parameters", dtype, &[DType::F32, DType::F64])?;
    for (what, moment) in [("the first moment", moment_1), ("the second moment", moment_2)] {
        check.shape(what, &moment.dims(), &shape)?;
        check.same_type(what, moment.dtype(), dtype)?;
    }
    check.shape("the gradient", &gradient.dims(), &shape)?;
    let device = gradient.device();
    check.float("the gradient", gradient.dtype(), &device)?;
    check.float("the main parameters", dtype, &device)?;
    copy.map_or(Ok(()), |copy| check.float("the copy", copy, &device))
}
