//! Collectives and movements of burn's tensors, in a graph and without one.

use std::ops::Range;

use burn::backend::Dispatch;
use burn::tensor::{DType, Device, Tensor};
use cubecl_kernels::linear::blocks::RowBlocks;
use cubecl_kernels::tape::{inner, record};

use super::{CallMode, CollectiveBackend, Movement, PendingTensor, TensorCall, movement, unwrap_or_unwind};
use crate::collectives::{CollectiveError, Pending, ProcessGroup, ReduceOp};

/// Evaluates an expression with the name of the backend that moves a device's tensors.
macro_rules! with_backend {
    ($device:expr, $backend:ident, $inner:ident => $body:expr) => {{
        let device: &Device = $device;
        match device.clone().inner().as_dispatch() {
            #[cfg(feature = "cubecl")]
            burn::backend::DispatchDevice::Cube($inner) => {
                type $backend = burn_cubecl::Cube;
                $body
            }
            _ => {
                type $backend = burn_flex::Flex;
                let $inner = &burn_flex::FlexDevice;
                $body
            }
        }
    }};
}

/// Returns whether tensors of a device are in its own memory, so that gradients are added up and reduced there; in host
/// memory the ranks of a node reduce them in place.
pub fn has_device_memory(device: &Device) -> bool {
    with_backend!(device, B, _inner => B::HAS_DEVICE_MEMORY)
}

/// Returns the name of what moves a device's tensors over the group.
pub fn tensor_engine(device: &Device, group: &ProcessGroup) -> &'static str {
    with_backend!(device, B, inner => B::tensor_engine(inner, group))
}

/// Connects what moves a device's tensors over these groups.
///
/// # Communication
/// As [`CollectiveBackend::connect`].
///
/// # Errors
/// When the ranks do not come together.
pub fn connect(device: &Device, groups: &[&ProcessGroup]) -> Result<(), CollectiveError> {
    with_backend!(device, B, inner => B::connect(inner, groups))
}

/// Returns the result of a collective on the tensor, which has no gradient.
///
/// # Errors
/// As [`ProcessGroup::all_reduce`].
///
/// # Panics
/// When the group's size does not divide the dimension that is cut.
#[track_caller]
pub fn run<const D: usize>(
    tensor: Tensor<D>,
    call: TensorCall,
    group: &ProcessGroup,
) -> Result<Tensor<D>, CollectiveError> {
    let device = tensor.device();
    let result = Dispatch::collective(tensor.inner().into_dispatch(), call, CallMode::Blocking, group).tensor()?;
    Ok(as_constant(result, &device))
}

/// Starts a collective on the tensor. Its result is of no graph.
///
/// # Panics
/// As [`run`].
#[track_caller]
pub fn start<const D: usize>(tensor: Tensor<D>, call: TensorCall, group: &ProcessGroup) -> PendingTensor {
    Dispatch::collective(tensor.inner().into_dispatch(), call, CallMode::Started, group)
}

/// Starts a collective on rows of a matrix, as [`CollectiveBackend::start_into`].
#[track_caller]
pub(super) fn start_into(
    (matrix, from): (&Tensor<2>, Range<usize>),
    call: TensorCall,
    (output, to): (&Tensor<2>, RowBlocks),
    group: &ProcessGroup,
) -> Option<PendingTensor> {
    let [matrix, output] = [matrix, output].map(|tensor| tensor.clone().inner().into_dispatch());
    Dispatch::start_into((&matrix, from), call, (&output, to), group)
}

/// Starts to send the tensor to the rank with index `to` in the group. Its memory is free once that is done, if nothing
/// else holds the tensor.
///
/// The other rank must receive with the same number of elements and the same type.
#[track_caller]
pub fn send_start<const D: usize>(tensor: Tensor<D>, to: usize, group: &ProcessGroup) -> Pending<()> {
    Dispatch::send_start(tensor.inner().into_dispatch(), to, group)
}

/// Starts to receive a tensor from the rank with index `from` in the group. It is of no graph.
#[track_caller]
pub fn recv_start<const D: usize>(
    shape: [usize; D],
    dtype: DType,
    device: &Device,
    from: usize,
    group: &ProcessGroup,
) -> PendingTensor {
    Dispatch::recv_start(shape.into(), dtype, device.clone().inner().as_dispatch(), from, group)
}

/// Returns the tensor moved over the group, without a gradient.
///
/// # Communication
/// None for `Keep` and `Split`; one collective otherwise. Groups of one rank never communicate.
///
/// # Errors
/// As the group's own operations.
///
/// # Panics
/// When `Split` or `ReduceScatter` is asked of a dimension that the group's size does not divide.
#[track_caller]
pub fn move_data<const D: usize>(
    tensor: Tensor<D>,
    movement: Movement,
    group: &ProcessGroup,
) -> Result<Tensor<D>, CollectiveError> {
    match movement {
        Movement::Keep => Ok(tensor),
        Movement::AllReduce => run(tensor, TensorCall::AllReduce(ReduceOp::Sum), group),
        Movement::Split { dimension } => Ok(movement::split(tensor, dimension, group)),
        Movement::AllGather { dimension: 0 } => run(tensor, TensorCall::AllGather, group),
        Movement::AllGather { dimension } => {
            let stacked = run(tensor, TensorCall::AllGather, group)?;
            Ok(movement::join_along(stacked, dimension, group))
        }
        Movement::ReduceScatter => run(tensor, TensorCall::ReduceScatter(ReduceOp::Sum), group),
    }
}

/// Returns the tensor moved by `forward`; its gradient will be moved by `backward`.
///
/// # Panics
/// When a collective fails, with the [`CollectiveError`] as payload: neither a layer's forward nor a backward step can
/// return an error. [`catch_collective_error`](super::catch_collective_error) turns it back into one.
#[track_caller]
pub fn move_differentiable<const D: usize>(
    tensor: Tensor<D>,
    forward: Movement,
    backward: Movement,
    group: &ProcessGroup,
) -> Tensor<D> {
    let moved = unwrap_or_unwind(move_data(inner(&tensor), forward, group));
    let group = group.clone();
    record(tensor, moved, move |gradient, _| {
        Some(unwrap_or_unwind(move_data(gradient, backward, &group)))
    })
}

/// Returns a tensor that is of no graph as one of a device, which may be of one.
pub(crate) fn as_constant<const D: usize>(tensor: Tensor<D>, device: &Device) -> Tensor<D> {
    match device.gradient_checkpointing_strategy() {
        Some(strategy) => tensor.autodiff().with_gradient_checkpointing_strategy(strategy),
        None => tensor,
    }
}
