//! [`Operation`]: a fused operation as one type; [`apply`] and [`apply_tracked`] give it to the backend of its inputs.
//!
//! Tensors are burn's dispatch tensors, whose device says which backend they are of. An operation has a form for Flex
//! and one for CubeCL; on every other backend, and for what its kernels do not take, its reference runs, in burn's own
//! operations. A [`Differentiable`] one becomes a node of burn's graph, with a rule of its own.

mod autodiff;
#[cfg(feature = "cuda")]
mod fusion;

use std::fmt;

use burn::backend::{BackendTensor, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind};
use burn::tensor::{DType, Shape};
#[cfg(feature = "cuda")]
use burn_cubecl::tensor::CubeTensor;
use burn_flex::FlexTensor;

pub use autodiff::apply_tracked;

/// Shape and type of a tensor.
pub type Spec = (Shape, DType);

/// A fused operation with its settings: `I` tensors in, `R` out.
pub trait Operation<const I: usize, const R: usize>: Clone + fmt::Debug + Send + Sync + 'static {
    /// Name in burn's stream of operations.
    const NAME: &'static str;

    /// Returns the outputs' shapes and types.
    fn outputs(&self, inputs: [Spec; I]) -> [Spec; R];

    /// Runs it in burn's operations.
    fn reference(&self, inputs: [DispatchTensor; I]) -> [DispatchTensor; R];

    /// Runs it on the CPU.
    fn flex(&self, inputs: [FlexTensor; I]) -> [FlexTensor; R];

    /// Runs its kernels, for tensors that have elements.
    #[cfg(feature = "cuda")]
    fn cube(&self, inputs: [CubeTensor; I]) -> [CubeTensor; R];
}

/// From the output's gradient, and which inputs want one, the inputs' gradients.
pub type Rule<const I: usize> = Box<dyn FnOnce(DispatchTensor, [bool; I]) -> [Option<DispatchTensor>; I] + Send>;

/// An operation with a backward rule.
pub trait Differentiable<const I: usize>: Operation<I, 1> {
    /// Returns the rule, which keeps what it needs of inputs and output. None of these is tracked.
    fn rule(&self, inputs: [DispatchTensor; I], output: DispatchTensor) -> Rule<I>;
}

/// Returns the outputs of an operation whose inputs are not tracked.
///
/// # Panics
/// When an input is tracked, or the inputs are of different backends.
pub fn apply<O: Operation<I, R>, const I: usize, const R: usize>(
    operation: &O,
    inputs: [DispatchTensor; I],
) -> [DispatchTensor; R] {
    let is_tracked = |tensor: &DispatchTensor| tensor.autodiff != DispatchAutodiffContext::Disabled;
    let name = O::NAME;
    assert!(
        !inputs.iter().any(is_tracked),
        "{name} has no backward rule for its inputs"
    );
    match &inputs[0].kind {
        DispatchTensorKind::Flex(_) => {
            let outputs = operation.flex(inputs.map(|tensor| match tensor.kind {
                DispatchTensorKind::Flex(
                    BackendTensor::Float(tensor) | BackendTensor::Int(tensor) | BackendTensor::Bool(tensor),
                ) => tensor,
                other => panic!("{name}: {other:?} is not of Flex, as another input is"),
            }));
            outputs.map(of_flex)
        }
        #[cfg(feature = "cuda")]
        DispatchTensorKind::Cube(_) if fusion::runs(&inputs) => fusion::register(operation.clone(), inputs),
        #[allow(unreachable_patterns, reason = "of other backends, if burn has them")]
        _ => operation.reference(inputs),
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
#[cfg(feature = "cuda")]
pub fn runs_kernels<const D: usize>(tensor: burn::tensor::Tensor<D>) -> bool {
    fusion::runs(&[tensor.into_dispatch()])
}
