//! [`Sharded`] by burn's descriptions of operations: what an interpreter of burn's needs of a backend.

use burn_backend::Backend;
use burn_backend::tensor::{BoolTensor, FloatTensor, IntTensor, QuantizedTensor};
use burn_ir::{BackendIr, HandleKind, TensorHandle};

use super::Sharded;
use crate::collectives::CollectiveBackend;

impl<B: CollectiveBackend> BackendIr for Sharded<B> {
    type Handle = HandleKind<Self>;

    #[track_caller]
    fn float_tensor(handle: TensorHandle<Self::Handle>) -> FloatTensor<Self> {
        match handle.handle {
            HandleKind::Float(tensor) => tensor,
            other => is_other("float", &other),
        }
    }

    #[track_caller]
    fn int_tensor(handle: TensorHandle<Self::Handle>) -> IntTensor<Self> {
        match handle.handle {
            HandleKind::Int(tensor) => tensor,
            other => is_other("int", &other),
        }
    }

    #[track_caller]
    fn bool_tensor(handle: TensorHandle<Self::Handle>) -> BoolTensor<Self> {
        match handle.handle {
            HandleKind::Bool(tensor) => tensor,
            other => is_other("bool", &other),
        }
    }

    #[track_caller]
    fn quantized_tensor(handle: TensorHandle<Self::Handle>) -> QuantizedTensor<Self> {
        match handle.handle {
            HandleKind::Quantized(tensor) => tensor,
            other => is_other("quantized", &other),
        }
    }

    fn float_tensor_handle(tensor: FloatTensor<Self>) -> Self::Handle {
        HandleKind::Float(tensor)
    }

    fn int_tensor_handle(tensor: IntTensor<Self>) -> Self::Handle {
        HandleKind::Int(tensor)
    }

    fn bool_tensor_handle(tensor: BoolTensor<Self>) -> Self::Handle {
        HandleKind::Bool(tensor)
    }

    fn quantized_tensor_handle(tensor: QuantizedTensor<Self>) -> Self::Handle {
        HandleKind::Quantized(tensor)
    }
}

#[track_caller]
fn is_other<B: Backend>(expected: &str, found: &HandleKind<B>) -> ! {
    panic!("an operation takes a {expected} tensor, got a {} tensor", found.name())
}
