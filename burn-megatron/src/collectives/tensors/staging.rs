//! Collectives on tensors through host memory, for any backend: read, communicate, write back.
//!
//! The implementation behind `CollectiveBackend for Flex`, whose tensors are in host memory already: a tensor that
//! nobody shares is reduced in place.

use burn::tensor::{DType, Shape, TensorData, TensorMetadata, backend::Backend, ops::FloatTensor, try_read_sync};
use half::{bf16, f16};

use super::{Movement, PendingReceive};
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
    with_float!(data.dtype, T => {
        let elements = data.into_vec::<T>().expect("matched on the element type");
        group.send_owned_start(elements, to)
    })
}

/// Starts to receive a tensor of a shape and a type from the rank with index `from`.
#[track_caller]
pub(super) fn recv_start<B: Backend>(
    shape: Shape,
    dtype: DType,
    device: &B::Device,
    from: usize,
    group: &ProcessGroup,
) -> PendingReceive<B> {
    with_float!(dtype, T => {
        let pending = group.recv_start::<T>(shape.num_elements(), from);
        PendingReceive::new(pending, shape, device.clone())
    })
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

fn split<B: Backend>(tensor: FloatTensor<B>, dimension: usize, group: &ProcessGroup) -> FloatTensor<B> {
    let shape = tensor.shape();
    let length = part_length(shape[dimension], dimension, group);
    let slices: Vec<burn::tensor::Slice> = (0..shape.num_dims())
        .map(|d| match d == dimension {
            true => (group.rank() * length..(group.rank() + 1) * length).into(),
            false => (0..shape[d]).into(),
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

/// Gathers along a dimension other than the first: the parts arrive one behind the other and are then joined.
#[track_caller]
fn gather_inner<B: Backend>(
    tensor: FloatTensor<B>,
    dimension: usize,
    group: &ProcessGroup,
) -> Result<FloatTensor<B>, CollectiveError> {
    let shape = tensor.shape();
    let stacked = gather_leading::<B>(tensor, group)?;
    let parts = (0..group.size())
        .map(|part| {
            let slices: Vec<burn::tensor::Slice> = (0..shape.num_dims())
                .map(|d| match d {
                    0 => (part * shape[0]..(part + 1) * shape[0]).into(),
                    _ => (0..shape[d]).into(),
                })
                .collect();
            B::float_slice(stacked.clone(), &slices)
        })
        .collect();
    Ok(B::float_cat(parts, dimension))
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
fn part_length(length: usize, dimension: usize, group: &ProcessGroup) -> usize {
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

fn elements<T: CollectiveElement + burn::tensor::Element>(data: &TensorData) -> &[T] {
    data.as_slice().expect("matched on the element type")
}

fn elements_mut<T: CollectiveElement + burn::tensor::Element>(data: &mut TensorData) -> &mut [T] {
    data.as_mut_slice().expect("matched on the element type")
}
