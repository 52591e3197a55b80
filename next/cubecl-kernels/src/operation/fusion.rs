//! Operations on CubeCL: each a custom operation of burn's stream, whose kernels are launched when the stream runs.

use std::fmt;

use burn::backend::{BackendTensor, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind, TensorMetadata};
use burn_cubecl::CubeBackend;
use burn_cubecl::fusion::FusionCubeRuntime;
use burn_cubecl::tensor::CubeTensor;
use burn_fusion::stream::{Operation as StreamOperation, StreamId};
use burn_fusion::{ExecutionError, FusionRuntime, FusionTensor};
use burn_ir::{CustomOpIr, HandleContainer, OperationIr, TensorIr};

use super::{Operation, Spec};
use crate::cube::launch::is_supported;

type Lazy = FusionTensor<FusionCubeRuntime>;
type Handles = HandleContainer<<FusionCubeRuntime as FusionRuntime>::FusionHandle>;

/// Returns whether kernels run for these tensors: they take the types, and CUDA has no launch for no elements.
pub(super) fn runs(inputs: &[DispatchTensor]) -> bool {
    inputs.iter().all(|tensor| {
        let (shape, dtype) = spec(tensor);
        let is_taken = match &tensor.kind {
            DispatchTensorKind::Cube(tensor) => is_supported(&tensor.device().client(), dtype),
            _ => false,
        };
        is_taken && shape.num_elements() > 0
    })
}

/// Registers an operation in the stream of its inputs; returns what it will have computed.
///
/// The inputs are given up, so that kernels may write over those that nothing else holds.
pub(super) fn register<O: Operation<I, R>, const I: usize, const R: usize>(
    operation: O,
    inputs: [DispatchTensor; I],
) -> [DispatchTensor; R] {
    let results = operation.outputs(inputs.each_ref().map(spec));
    let inputs = inputs.map(lazy::<O, I, R>);
    let client = inputs[0].client.clone();
    let inputs = inputs.map(FusionTensor::into_ir);
    let outputs = results.map(|(shape, dtype)| TensorIr::uninit(client.create_empty_handle(), shape, dtype));
    let description = OperationIr::Custom(CustomOpIr::new(O::NAME, &inputs, &outputs));
    let registered = Registered {
        operation,
        inputs,
        outputs,
    };
    let mut outputs = client
        .register(StreamId::current(), description, registered)
        .into_iter();
    std::array::from_fn(|_| dispatched(outputs.next().expect("an output for each result")))
}

/// Returns a tensor of the stream.
fn lazy<O: Operation<I, R>, const I: usize, const R: usize>(tensor: DispatchTensor) -> Lazy {
    match tensor.kind {
        DispatchTensorKind::Cube(
            BackendTensor::Float(tensor) | BackendTensor::Int(tensor) | BackendTensor::Bool(tensor),
        ) => tensor,
        other => panic!("{}: {other:?} is not of CubeCL, as another input is", O::NAME),
    }
}

fn dispatched(tensor: Lazy) -> DispatchTensor {
    let tensor = if tensor.dtype.is_float() {
        BackendTensor::Float(tensor)
    } else if tensor.dtype.is_bool() {
        BackendTensor::Bool(tensor)
    } else {
        BackendTensor::Int(tensor)
    };
    DispatchTensor {
        kind: DispatchTensorKind::Cube(tensor),
        autodiff: DispatchAutodiffContext::Disabled,
    }
}

/// An operation of the stream.
struct Registered<O, const I: usize, const R: usize> {
    operation: O,
    inputs: [TensorIr; I],
    outputs: [TensorIr; R],
}

impl<O: fmt::Debug, const I: usize, const R: usize> fmt::Debug for Registered<O, I, R> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operation.fmt(formatter)
    }
}

impl<O: Operation<I, R>, const I: usize, const R: usize> StreamOperation<FusionCubeRuntime> for Registered<O, I, R> {
    fn execute(&self, handles: &mut Handles) -> Result<(), ExecutionError> {
        // Tensors of CubeCL are of one type, whatever they hold.
        let inputs = self
            .inputs
            .each_ref()
            .map(|input| handles.get_float_tensor::<CubeBackend>(input));
        let outputs: [CubeTensor; R] = self.operation.cube(inputs);
        for (description, output) in self.outputs.iter().zip(outputs) {
            handles.register_float_tensor::<CubeBackend>(&description.id, output);
        }
        Ok(())
    }
}

fn spec(tensor: &DispatchTensor) -> Spec {
    (tensor.shape(), tensor.dtype())
}
