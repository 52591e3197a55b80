//! Operations on CubeCL: each a custom operation of burn's stream, whose kernels are launched when the stream runs.

use std::fmt;

use burn::backend::{BackendTensor, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind, TensorMetadata};
use burn::tensor::DType;
use burn_cubecl::CubeBackend;
use burn_cubecl::fusion::FusionCubeRuntime;
use burn_fusion::stream::{Operation as StreamOperation, StreamId};
use burn_fusion::{ExecutionError, FusionRuntime, FusionTensor};
use burn_ir::{CustomOpIr, HandleContainer, OperationIr, TensorIr};
use cubecl::client::Client;

use super::{Of, Operation, Tensors, spec};
use crate::cube::launch::is_supported;

type Lazy = FusionTensor<FusionCubeRuntime>;
type Handles = HandleContainer<<FusionCubeRuntime as FusionRuntime>::FusionHandle>;

/// Returns whether kernels run for these inputs. CUDA has no launch for no elements.
pub(super) fn is_taken<O: Operation>(operation: &O, inputs: &Of<O::Inputs, DispatchTensor>) -> bool {
    let (mut are_read, mut client) = (true, None);
    let specs = O::Inputs::map(O::Inputs::by_ref(inputs), &mut |tensor| {
        are_read = are_read && has_kernels(tensor);
        client = client.take().or_else(|| client_of(tensor));
        spec(tensor)
    });
    are_read && client.is_some_and(|client| operation.is_taken(&client, specs))
}

/// Returns whether kernels read a tensor, which has elements.
pub(super) fn has_kernels(tensor: &DispatchTensor) -> bool {
    let Some(client) = client_of(tensor) else {
        return false;
    };
    let (shape, dtype) = spec(tensor);
    let is_read = match dtype {
        DType::I32 | DType::I64 | DType::U32 | DType::U64 | DType::Bool(_) => true,
        dtype => is_supported(&client, dtype),
    };
    is_read && shape.num_elements() > 0
}

fn client_of(tensor: &DispatchTensor) -> Option<Client> {
    match &tensor.kind {
        DispatchTensorKind::Cube(tensor) => Some(tensor.device().client()),
        _ => None,
    }
}

/// Registers an operation in the stream of its inputs; returns what it will have computed.
///
/// The inputs are given up, so that kernels may write over those that nothing else holds.
pub(super) fn register<O: Operation>(
    operation: O,
    inputs: Of<O::Inputs, DispatchTensor>,
) -> Of<O::Outputs, DispatchTensor> {
    let results = operation.outputs(O::Inputs::map(O::Inputs::by_ref(&inputs), &mut spec));
    let (mut client, mut taken, mut given) = (None, Vec::new(), Vec::new());
    let inputs = O::Inputs::map(inputs, &mut |tensor| {
        let tensor = lazy(tensor);
        client.get_or_insert_with(|| tensor.client.clone());
        let tensor = tensor.into_ir();
        taken.push(tensor.clone());
        tensor
    });
    let client = client.expect("an operation has inputs");
    let outputs = O::Outputs::map(results, &mut |(shape, dtype)| {
        let tensor = TensorIr::uninit(client.create_empty_handle(), shape, dtype);
        given.push(tensor.clone());
        tensor
    });
    let description = OperationIr::Custom(CustomOpIr::new(O::NAME, &taken, &given));
    let by_id = O::Outputs::map(O::Outputs::by_ref(&outputs), &mut |_: &TensorIr| ());
    let registered = Registered {
        operation,
        inputs,
        outputs,
    };
    let mut computed = client
        .register(StreamId::current(), description, registered)
        .into_iter();
    O::Outputs::map(by_id, &mut |()| {
        dispatched(computed.next().expect("an output for each result"))
    })
}

/// Returns a tensor of the stream.
fn lazy(tensor: DispatchTensor) -> Lazy {
    match tensor.kind {
        DispatchTensorKind::Cube(
            BackendTensor::Float(tensor) | BackendTensor::Int(tensor) | BackendTensor::Bool(tensor),
        ) => tensor,
        other => panic!("{other:?} is not of CubeCL, as another input is"),
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
struct Registered<O: Operation> {
    operation: O,
    inputs: Of<O::Inputs, TensorIr>,
    outputs: Of<O::Outputs, TensorIr>,
}

impl<O: Operation> fmt::Debug for Registered<O> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.operation.fmt(formatter)
    }
}

impl<O: Operation> StreamOperation<FusionCubeRuntime> for Registered<O> {
    fn execute(&self, handles: &mut Handles) -> Result<(), ExecutionError> {
        // Tensors of CubeCL are of one type, whatever they hold.
        let inputs = O::Inputs::map(O::Inputs::by_ref(&self.inputs), &mut |input| {
            handles.get_float_tensor::<CubeBackend>(input)
        });
        let mut descriptions = Vec::new();
        O::Outputs::map(O::Outputs::by_ref(&self.outputs), &mut |output: &TensorIr| {
            descriptions.push(output.id)
        });
        let mut descriptions = descriptions.into_iter();
        O::Outputs::map(self.operation.cube(inputs), &mut |output| {
            let id = descriptions.next().expect("an output for each result");
            handles.register_float_tensor::<CubeBackend>(&id, output);
        });
        Ok(())
    }
}
