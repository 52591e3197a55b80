//! Collectives on tensors through host memory, for any backend: read, communicate, write back.
//!
//! The default of [`CollectiveBackend`](super::CollectiveBackend)'s methods, for backends that have nothing better. On
//! Flex, tensors are in host memory already: one that is not shared is reduced in place.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, DType, Shape, TensorData, TensorMetadata, try_read_sync};
use half::{bf16, f16};

use super::{CallMode, PendingTensor, TensorCall};
use crate::collectives::{CollectiveElement, CollectiveError, Pending, ProcessGroup};

/// Calls `$body` with `$T` bound to the Rust type of a float `DType`.
macro_rules! with_float {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            DType::F64 => {
                type $T = f64;
                $body
            }
            DType::F32 => {
                type $T = f32;
                $body
            }
            DType::F16 => {
                type $T = f16;
                $body
            }
            DType::BF16 => {
                type $T = bf16;
                $body
            }
            other => panic!("collectives carry f64, f32, f16 and bf16 tensors, got {other:?}"),
        }
    };
}

#[cfg(feature = "cuda")]
pub(super) use with_float;

const MATCHED: &str = "matched on the element type";

/// Makes a collective on a tensor's elements; a group of one has none.
#[track_caller]
pub(super) fn collective<B: Backend>(
    tensor: FloatTensor<B>,
    call: TensorCall,
    mode: CallMode,
    group: &ProcessGroup,
) -> PendingTensor<B> {
    if group.size() == 1 {
        return PendingTensor::ready(Ok(tensor));
    }
    let device = tensor.device();
    let shape = call.result_shape(tensor.shape(), group);
    let data = read::<B>(tensor);
    with_float!(data.dtype(), T => match mode {
        CallMode::Started => PendingTensor::new(start::<T>(data, call, group), shape, device),
        CallMode::Blocking => {
            let result = run::<T>(data, shape, call, group);
            PendingTensor::ready(result.map(|data| B::float_from_data(data, &device)))
        }
    })
}

#[track_caller]
fn start<T: CollectiveElement + burn_backend::Element>(
    data: TensorData,
    call: TensorCall,
    group: &ProcessGroup,
) -> Pending<Vec<T>> {
    let elements = owned_elements::<T>(data);
    match call {
        TensorCall::AllReduce(op) => group.all_reduce_start(elements, op),
        TensorCall::ReduceScatter(op) => group.reduce_scatter_start(elements, op),
        TensorCall::AllGather => group.all_gather_start(elements),
        TensorCall::Broadcast { root } => group.broadcast_start(elements, root),
    }
}

/// In place where the result has the shape of the input.
#[track_caller]
fn run<T: CollectiveElement + burn_backend::Element>(
    mut data: TensorData,
    shape: Shape,
    call: TensorCall,
    group: &ProcessGroup,
) -> Result<TensorData, CollectiveError> {
    let output = || vec![T::zeroed(); shape.num_elements()];
    let result = match call {
        TensorCall::AllReduce(op) => {
            group.all_reduce(data.as_mut_slice::<T>().expect(MATCHED), op)?;
            return Ok(data);
        }
        TensorCall::Broadcast { root } => {
            group.broadcast(data.as_mut_slice::<T>().expect(MATCHED), root)?;
            return Ok(data);
        }
        TensorCall::ReduceScatter(op) => {
            let mut part = output();
            group.reduce_scatter(data.as_slice::<T>().expect(MATCHED), &mut part, op)?;
            part
        }
        TensorCall::AllGather => {
            let mut whole = output();
            group.all_gather(data.as_slice::<T>().expect(MATCHED), &mut whole)?;
            whole
        }
    };
    Ok(TensorData::new(result, shape))
}

/// Starts to send a tensor's elements to the rank with index `to`.
#[track_caller]
pub(super) fn send_start<B: Backend>(tensor: FloatTensor<B>, to: usize, group: &ProcessGroup) -> Pending<()> {
    let data = read::<B>(tensor);
    with_float!(data.dtype(), T => group.send_owned_start(owned_elements::<T>(data), to))
}

/// Starts to receive a tensor of a shape and a type from the rank with index `from`.
#[track_caller]
pub(super) fn recv_start<B: Backend>(
    shape: Shape,
    dtype: DType,
    device: &B::Device,
    from: usize,
    group: &ProcessGroup,
) -> PendingTensor<B> {
    with_float!(dtype, T => {
        let pending = group.recv_start::<T>(shape.num_elements(), from);
        PendingTensor::new(pending, shape, device.clone())
    })
}

fn read<B: Backend>(tensor: FloatTensor<B>) -> TensorData {
    try_read_sync(B::float_into_data(tensor))
        .expect("a native backend reads without an executor")
        .expect("the tensor was computed")
}

fn owned_elements<T: CollectiveElement + burn_backend::Element>(data: TensorData) -> Vec<T> {
    data.try_into_vec().expect(MATCHED)
}
