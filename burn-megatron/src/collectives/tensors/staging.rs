//! Collectives on tensors through host memory, for any backend: read, communicate, write back.
//!
//! The default of [`CollectiveBackend`](super::CollectiveBackend)'s methods, for backends that have nothing better. On
//! Flex, tensors are in host memory already: one that is not shared is reduced in place.

use burn::tensor::{DType, Shape, TensorData, TensorMetadata, backend::Backend, ops::FloatTensor, try_read_sync};
use half::{bf16, f16};

use super::{Movement, PendingTensor};
use crate::collectives::{CollectiveElement, CollectiveError, Pending, ProcessGroup, ReduceOp};

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

#[cfg(feature = "nccl")]
pub(super) use with_float;

/// Returns the tensor reduced element by element over the group.
#[track_caller]
pub(super) fn all_reduce<B: Backend>(
    tensor: FloatTensor<B>,
    op: ReduceOp,
    group: &ProcessGroup,
) -> Result<FloatTensor<B>, CollectiveError> {
    in_place::<B>(
        tensor,
        group,
        |data| with_float!(data.dtype, T => group.all_reduce(elements_mut::<T>(data), op)),
    )
}

/// Returns the tensor of the rank with index `root`.
#[track_caller]
pub(super) fn broadcast<B: Backend>(
    tensor: FloatTensor<B>,
    root: usize,
    group: &ProcessGroup,
) -> Result<FloatTensor<B>, CollectiveError> {
    in_place::<B>(
        tensor,
        group,
        |data| with_float!(data.dtype, T => group.broadcast(elements_mut::<T>(data), root)),
    )
}

/// Starts to send a tensor's elements to the rank with index `to`.
#[track_caller]
pub(super) fn send_start<B: Backend>(tensor: FloatTensor<B>, to: usize, group: &ProcessGroup) -> Pending<()> {
    let data = read::<B>(tensor);
    with_float!(data.dtype, T => group.send_owned_start(owned_elements::<T>(data), to))
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

/// Starts to reduce a tensor element by element over the group.
#[track_caller]
pub(super) fn all_reduce_start<B: Backend>(
    tensor: FloatTensor<B>,
    op: ReduceOp,
    group: &ProcessGroup,
) -> PendingTensor<B> {
    let shape = tensor.shape();
    start::<B>(tensor, group, |data, device| {
        with_float!(data.dtype, T => {
            PendingTensor::new(group.all_reduce_start(owned_elements::<T>(data), op), shape, device)
        })
    })
}

/// Starts to reduce a tensor over the group; this rank gets its own of equal parts along dimension 0.
#[track_caller]
pub(super) fn reduce_scatter_start<B: Backend>(
    tensor: FloatTensor<B>,
    op: ReduceOp,
    group: &ProcessGroup,
) -> PendingTensor<B> {
    let mut shape = tensor.shape();
    shape[0] = part_length(shape[0], 0, group);
    start::<B>(tensor, group, |data, device| {
        with_float!(data.dtype, T => {
            PendingTensor::new(group.reduce_scatter_start(owned_elements::<T>(data), op), shape, device)
        })
    })
}

/// Starts to join the tensors of all ranks along dimension 0.
#[track_caller]
pub(super) fn all_gather_start<B: Backend>(tensor: FloatTensor<B>, group: &ProcessGroup) -> PendingTensor<B> {
    let mut shape = tensor.shape();
    shape[0] *= group.size();
    start::<B>(tensor, group, |data, device| {
        with_float!(data.dtype, T => {
            PendingTensor::new(group.all_gather_start(owned_elements::<T>(data)), shape, device)
        })
    })
}

/// Starts a collective on a tensor's elements; a group of one has none.
fn start<B: Backend>(
    tensor: FloatTensor<B>,
    group: &ProcessGroup,
    collective: impl FnOnce(TensorData, B::Device) -> PendingTensor<B>,
) -> PendingTensor<B> {
    if group.size() == 1 {
        return PendingTensor::ready(Ok(tensor));
    }
    let device = B::float_device(&tensor);
    collective(read::<B>(tensor), device)
}

/// Lets a collective change a tensor's elements; in a group of one there is nothing to change.
fn in_place<B: Backend>(
    tensor: FloatTensor<B>,
    group: &ProcessGroup,
    collective: impl FnOnce(&mut TensorData) -> Result<(), CollectiveError>,
) -> Result<FloatTensor<B>, CollectiveError> {
    if group.size() == 1 {
        return Ok(tensor);
    }
    let device = B::float_device(&tensor);
    let mut data = read::<B>(tensor);
    collective(&mut data)?;
    Ok(B::float_from_data(data, &device))
}

/// Returns the tensor moved over the group.
#[track_caller]
pub(super) fn move_data<B: Backend>(
    tensor: FloatTensor<B>,
    movement: Movement,
    group: &ProcessGroup,
) -> Result<FloatTensor<B>, CollectiveError> {
    if group.size() == 1 {
        return Ok(tensor);
    }
    match movement {
        Movement::Keep => Ok(tensor),
        Movement::AllReduce => all_reduce::<B>(tensor, ReduceOp::Sum, group),
        Movement::Split { dimension } => Ok(split::<B>(tensor, dimension, group)),
        Movement::AllGather { dimension: 0 } => gather_leading::<B>(tensor, group),
        Movement::AllGather { dimension } => gather_inner::<B>(tensor, dimension, group),
        Movement::ReduceScatter => reduce_scatter::<B>(tensor, group),
    }
}

/// This rank's part of a tensor along a dimension.
pub(super) fn split<B: Backend>(tensor: FloatTensor<B>, dimension: usize, group: &ProcessGroup) -> FloatTensor<B> {
    let shape = tensor.shape();
    let length = part_length(shape[dimension], dimension, group);
    let slices: Vec<burn::tensor::Slice> = (0..shape.num_dims())
        .map(|d| {
            if d == dimension {
                (group.rank() * length..(group.rank() + 1) * length).into()
            } else {
                (0..shape[d]).into()
            }
        })
        .collect();
    B::float_slice(tensor, &slices)
}

#[track_caller]
fn gather_leading<B: Backend>(tensor: FloatTensor<B>, group: &ProcessGroup) -> Result<FloatTensor<B>, CollectiveError> {
    let device = B::float_device(&tensor);
    let data = read::<B>(tensor);
    let mut shape = data.shape.clone();
    shape[0] *= group.size();
    let gathered = with_float!(data.dtype, T => {
        let shard = elements::<T>(&data);
        let mut output = vec![<T as bytemuck::Zeroable>::zeroed(); shard.len() * group.size()];
        group.all_gather(shard, &mut output)?;
        TensorData::new(output, shape)
    });
    Ok(B::float_from_data(gathered, &device))
}

/// Gathers along a dimension other than the first: the parts arrive one after the other and are then joined.
#[track_caller]
fn gather_inner<B: Backend>(
    tensor: FloatTensor<B>,
    dimension: usize,
    group: &ProcessGroup,
) -> Result<FloatTensor<B>, CollectiveError> {
    let stacked = gather_leading::<B>(tensor, group)?;
    Ok(join_along::<B>(stacked, dimension, group))
}

/// Returns the parts of all ranks, which are stacked along the first dimension, joined along another.
pub(super) fn join_along<B: Backend>(
    stacked: FloatTensor<B>,
    dimension: usize,
    group: &ProcessGroup,
) -> FloatTensor<B> {
    let shape = stacked.shape();
    let length = shape[0] / group.size();
    if shape.num_elements() == 0 {
        // CUDA has no launch for the parts of nothing.
        let mut joined = shape;
        joined[0] = length;
        joined[dimension] *= group.size();
        return B::float_empty(joined, &B::float_device(&stacked), stacked.dtype().into());
    }
    let parts = (0..group.size())
        .map(|part| {
            let slices: Vec<burn::tensor::Slice> = (0..shape.num_dims())
                .map(|d| match d {
                    0 => (part * length..(part + 1) * length).into(),
                    _ => (0..shape[d]).into(),
                })
                .collect();
            B::float_slice(stacked.clone(), &slices)
        })
        .collect();
    B::float_cat(parts, dimension)
}

#[track_caller]
fn reduce_scatter<B: Backend>(tensor: FloatTensor<B>, group: &ProcessGroup) -> Result<FloatTensor<B>, CollectiveError> {
    let device = B::float_device(&tensor);
    let data = read::<B>(tensor);
    let mut shape = data.shape.clone();
    shape[0] = part_length(shape[0], 0, group);
    let shard = with_float!(data.dtype, T => {
        let mut output = vec![<T as bytemuck::Zeroable>::zeroed(); shape.num_elements()];
        group.reduce_scatter(elements::<T>(&data), &mut output, ReduceOp::Sum)?;
        TensorData::new(output, shape)
    });
    Ok(B::float_from_data(shard, &device))
}

/// The length of each rank's part of a dimension.
pub(super) fn part_length(length: usize, dimension: usize, group: &ProcessGroup) -> usize {
    assert!(
        length.is_multiple_of(group.size()),
        "dimension {dimension} of length {length} does not split over the {} ranks of group {}",
        group.size(),
        group.name()
    );
    length / group.size()
}

fn read<B: Backend>(tensor: FloatTensor<B>) -> TensorData {
    try_read_sync(B::float_into_data(tensor))
        .expect("a native backend reads without an executor")
        .expect("the tensor was computed")
}

fn owned_elements<T: CollectiveElement + burn::tensor::Element>(data: TensorData) -> Vec<T> {
    data.into_vec().expect("matched on the element type")
}

fn elements<T: CollectiveElement + burn::tensor::Element>(data: &TensorData) -> &[T] {
    data.as_slice().expect("matched on the element type")
}

fn elements_mut<T: CollectiveElement + burn::tensor::Element>(data: &mut TensorData) -> &mut [T] {
    data.as_mut_slice().expect("matched on the element type")
}
