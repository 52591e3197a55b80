//! [`Operation`]: a fused operation as one type, which [`apply`] gives to the backend of its inputs.
//!
//! An operation has a form for Flex and one for CubeCL, which ranks run on their [parts] of tensors, if it has a rule
//! for that; on every other backend, for what its kernels do not take, and where [`set_kernels`] says so, its reference
//! runs, in burn's own operations. It has no backward pass: a function
//! whose forward and backward passes are operations makes them a node of burn's graph by [`tape`](crate::tape).

#[cfg(feature = "cubecl")]
mod fusion;
mod kernels;
pub mod parts;
mod tensors;

use std::fmt;

#[cfg(any(feature = "cubecl", feature = "slot"))]
use burn::backend::TensorMetadata;
use burn::backend::{BackendTensor, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind};
#[cfg(feature = "slot")]
use burn::tensor::Device;
use burn::tensor::{DType, Shape};
#[cfg(feature = "cubecl")]
use burn_cubecl::tensor::CubeTensor;
use burn_flex::FlexTensor;
#[cfg(feature = "cubecl")]
use cubecl::client::Client;

use self::parts::{Part, PartRule};
pub use kernels::{Kernels, kernels, set_kernels};
pub use tensors::{Of, Tensors};

/// Shape and type of a tensor.
pub type Spec = (Shape, DType);

/// A fused operation with its settings.
pub trait Operation: Clone + fmt::Debug + Send + Sync + 'static {
    /// Tensors in.
    type Inputs: Tensors;
    /// Tensors out.
    type Outputs: Tensors;

    /// Name in burn's stream of operations.
    const NAME: &'static str;

    /// Returns the outputs' shapes and types.
    fn outputs(&self, inputs: Of<Self::Inputs, Spec>) -> Of<Self::Outputs, Spec>;

    /// Runs it in burn's operations.
    fn reference(&self, inputs: Self::Inputs) -> Self::Outputs;

    /// Runs it on the CPU: its reference, if it has no form of its own.
    fn flex(&self, inputs: Of<Self::Inputs, FlexTensor>) -> Of<Self::Outputs, FlexTensor> {
        let inputs = Self::Inputs::from_dispatch(Self::Inputs::map(inputs, &mut of_flex));
        Self::Outputs::map(self.reference(inputs).into_dispatch(), &mut to_flex)
    }

    /// Returns whether its kernels take inputs all of which have elements, and types that kernels read.
    #[cfg(feature = "cubecl")]
    fn is_taken(&self, _client: &Client, _inputs: Of<Self::Inputs, Spec>) -> bool {
        true
    }

    /// Runs its kernels, for what they take.
    ///
    /// # Panics
    /// When it has none, and so takes nothing.
    #[cfg(feature = "cubecl")]
    fn cube(&self, _inputs: Of<Self::Inputs, CubeTensor>) -> Of<Self::Outputs, CubeTensor> {
        unreachable!("{} has no kernels", Self::NAME)
    }

    /// Returns the rule by which ranks run it on their parts of tensors; `None` if its reference is run instead, by the
    /// rules of burn's operations.
    fn part_rule(&self, _inputs: Of<Self::Inputs, Spec>) -> Option<PartRule> {
        None
    }

    /// Runs it on a rank's part of the inputs: itself, if its settings do not depend on the part.
    fn run_part(&self, inputs: Self::Inputs, _part: &dyn Part) -> Self::Outputs {
        apply(self, inputs)
    }
}

/// Returns the outputs of an operation whose inputs are not tracked.
///
/// # Panics
/// When an input is tracked, the inputs are of different backends, or there are none.
pub fn apply<O: Operation>(operation: &O, inputs: O::Inputs) -> O::Outputs {
    let inputs = inputs.into_dispatch();
    let mut first = None;
    O::Inputs::map(O::Inputs::by_ref(&inputs), &mut |tensor| {
        assert!(!is_tracked(tensor), "{} is given a tracked tensor", O::NAME);
        first.get_or_insert(&tensor.kind);
    });
    let runs_kernels = kernels() == Kernels::Fused;
    match first.expect("an operation has inputs") {
        DispatchTensorKind::Flex(_) if runs_kernels => {
            let outputs = operation.flex(O::Inputs::map(inputs, &mut to_flex));
            O::Outputs::from_dispatch(O::Outputs::map(outputs, &mut of_flex))
        }
        #[cfg(feature = "cubecl")]
        DispatchTensorKind::Cube(_) if runs_kernels && fusion::is_taken(operation, &inputs) => {
            O::Outputs::from_dispatch(fusion::register(operation.clone(), inputs))
        }
        #[cfg(feature = "slot")]
        DispatchTensorKind::NdArray(tensor) if runs_kernels => {
            let device = Device::new(tensor.device());
            match parts::run(operation, inputs, &device) {
                Ok(outputs) => O::Outputs::from_dispatch(outputs),
                Err(inputs) => operation.reference(O::Inputs::from_dispatch(inputs)),
            }
        }
        _ => operation.reference(O::Inputs::from_dispatch(inputs)),
    }
}

/// Returns a tensor's shape and type.
#[cfg(any(feature = "cubecl", feature = "slot"))]
fn spec(tensor: &DispatchTensor) -> Spec {
    (tensor.shape(), tensor.dtype())
}

fn is_tracked(tensor: &DispatchTensor) -> bool {
    matches!(tensor.kind, DispatchTensorKind::Autodiff(_)) || tensor.autodiff != DispatchAutodiffContext::Disabled
}

fn to_flex(tensor: DispatchTensor) -> FlexTensor {
    match tensor.kind {
        DispatchTensorKind::Flex(
            BackendTensor::Float(tensor) | BackendTensor::Int(tensor) | BackendTensor::Bool(tensor),
        ) => tensor,
        other => panic!("{other:?} is not of Flex, as another input is"),
    }
}

fn of_flex(tensor: FlexTensor) -> DispatchTensor {
    let dtype = tensor.dtype();
    let tensor = if dtype.is_float() {
        BackendTensor::Float(tensor)
    } else if dtype.is_bool() {
        BackendTensor::Bool(tensor)
    } else {
        BackendTensor::Int(tensor)
    };
    DispatchTensor {
        kind: DispatchTensorKind::Flex(tensor),
        autodiff: DispatchAutodiffContext::Disabled,
    }
}

/// Returns whether kernels run for a tensor that is not tracked, and not the references.
#[cfg(feature = "cubecl")]
pub fn runs_kernels<const D: usize>(tensor: burn::tensor::Tensor<D>) -> bool {
    kernels() == Kernels::Fused && fusion::has_kernels(&tensor.into_dispatch())
}
