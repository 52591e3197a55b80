//! Tensors of the slot as the primitives of the backend that runs their device.

use burn_backend::TensorMetadata;
use burn_ir::{BackendIr, HandleKind};
use burn_router::{RouterTensor, TensorInterpreter, get_client};

use super::{NdArrayDevice, Slot, SlotClient};

/// Takes a tensor out of the slot. The backend's operations on it then run outside the device's lock.
///
/// # Panics
/// When another backend runs the tensor's device.
pub fn take<B: BackendIr>(tensor: RouterTensor<SlotClient>) -> HandleKind<B> {
    let client = tensor.client.clone();
    let tensor = tensor.into_ir();
    client.with_interpreter(|interpreter: &mut TensorInterpreter<B>| interpreter.get_tensor(&tensor))
}

/// Puts a primitive into the slot.
///
/// # Panics
/// When another backend runs the device.
pub fn put<B: BackendIr>(tensor: HandleKind<B>, device: &NdArrayDevice) -> RouterTensor<SlotClient> {
    macro_rules! put {
        ($tensor:expr, $handle:ident) => {{
            let (shape, dtype) = ($tensor.shape(), $tensor.dtype());
            let (handle, client) = (B::$handle($tensor), get_client::<Slot>(device));
            client.with_interpreter(|interpreter: &mut TensorInterpreter<B>| {
                interpreter.register_tensor(handle, shape, dtype, client.clone())
            })
        }};
    }
    match tensor {
        HandleKind::Float(tensor) => put!(tensor, float_tensor_handle),
        HandleKind::Int(tensor) => put!(tensor, int_tensor_handle),
        HandleKind::Bool(tensor) => put!(tensor, bool_tensor_handle),
        HandleKind::Quantized(tensor) => put!(tensor, quantized_tensor_handle),
    }
}
