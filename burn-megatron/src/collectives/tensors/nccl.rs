//! Collectives on tensors on a GPU over NCCL: nothing passes through host memory, and no host waits for the GPU, but
//! for the other ranks at the first call, and for CubeCL to hand over what was launched before.

use std::ops::Range;

use burn_backend::{DType, Shape, TensorMetadata};
use burn_cubecl::CubeDevice;
use burn_cubecl::kernel::{into_contiguous, slice};
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use burn_megatron_comm::collectives::device::{Made, describe};
use cubecl_kernels::cube::launch::empty_beside;
use cubecl_kernels::linear::blocks::RowBlocks;
use half::{bf16, f16};

use super::TensorCall;
use super::staging::with_float;
use crate::collectives::nccl::{self, Buffers, Nccl, Prepared, Started};
use crate::collectives::{
    CallDescriptor, CollectiveElement, CollectiveError, Engine, Operation, Pending, ProcessGroup,
};

/// The group's part of NCCL, if it has one and the device is CUDA's.
pub(super) fn engine<'a>(device: &CubeDevice, group: &'a ProcessGroup) -> Option<&'a Nccl> {
    nccl::of(group).filter(|_| matches!(device, CubeDevice::Cuda(_)))
}

/// Starts a collective and returns its result, in place if possible and otherwise in new memory. The result is
/// available to work launched after [`Started::before_use`].
#[track_caller]
pub(super) fn start(
    tensor: CubeTensor,
    call: TensorCall,
    group: &ProcessGroup,
    engine: &Nccl,
) -> Result<(CubeTensor, Started), CollectiveError> {
    let input = into_contiguous(tensor);
    let shape = call.result_shape(input.shape(), group);
    let lengths = (input.shape().num_elements(), shape.num_elements());
    let described = with_float!(input.dtype, T => descriptor::<T>(call, lengths, group))?;
    let is_in_place = input.shape() == shape && input.can_mut();
    let output = if is_in_place {
        None
    } else {
        Some(empty_beside(&input, &shape, input.dtype))
    };
    let started = queue(described, buffers(&input, output.as_ref()), group, engine)?;
    Ok((output.unwrap_or(input), started))
}

/// Starts a collective on rows of a matrix, whose result goes to its rows of `output`, which is contiguous: of an
/// all-gather, each rank's to a block of rows; of a reduce-scatter, to one block. Returns the output.
#[track_caller]
pub(super) fn start_into(
    (matrix, from): (CubeTensor, Range<usize>),
    call: TensorCall,
    (output, to): (&CubeTensor, RowBlocks),
    group: &ProcessGroup,
    engine: &Nccl,
) -> Result<(CubeTensor, Started), CollectiveError> {
    let columns = output.shape()[1];
    assert!(from.end <= matrix.shape()[0], "rows {from:?} of {}", matrix.shape()[0]);
    let rows = Shape::new([from.len(), columns]);
    let input = rows.num_elements();
    let result = call.result_shape(rows, group);
    assert_eq!(
        (result[0], result[1]),
        (to.rows * to.count, columns),
        "a result for {to:?} of {columns} columns"
    );
    assert_eq!(
        (matrix.shape()[1], matrix.dtype),
        (columns, output.dtype),
        "columns and types of the matrix and of the output"
    );
    let end = to.ranges().last().map_or(0, |range| range.end);
    assert!(end <= output.shape()[0], "rows up to {end} of {}", output.shape()[0]);
    let is_apart = to.count > 1 && to.stride != to.rows;
    assert!(
        !is_apart || matches!(call, TensorCall::AllGather),
        "{call:?} has one block of rows"
    );
    let lengths = (input, result.num_elements());
    let described = with_float!(matrix.dtype, T => descriptor::<T>(call, lengths, group))?;
    let bytes = |row: usize| (row * columns * output.dtype.size()) as u64;
    let rows = if matrix.is_contiguous() {
        matrix.handle.offset_start(bytes(from.start))
    } else {
        into_contiguous(slice(matrix, &[from, 0..columns])).handle
    };
    let buffers = Buffers {
        input: rows,
        output: Some(output.handle.clone().offset_start(bytes(to.first))),
        distance: is_apart.then_some(to.stride * columns * output.dtype.size()),
    };
    Ok((output.clone(), queue(described, buffers, group, engine)?))
}

/// Queues a collective in its order among the group's calls.
#[track_caller]
fn queue(
    call: CallDescriptor,
    buffers: Buffers,
    group: &ProcessGroup,
    engine: &Nccl,
) -> Result<Started, CollectiveError> {
    let prepared = engine.prepare(buffers);
    let queue = |host: &dyn Engine, call, made: &Made| engine.queue(host, call, made, prepared);
    group.core().queue(call, group.note(), queue)
}

/// A collective whose input and result have these lengths.
fn descriptor<T: CollectiveElement>(
    call: TensorCall,
    (input, result): (usize, usize),
    group: &ProcessGroup,
) -> Result<CallDescriptor, CollectiveError> {
    match call {
        TensorCall::AllReduce(op) => group.reduction(describe::<T>(Operation::AllReduce, input), op),
        TensorCall::ReduceScatter(op) => group.reduction(describe::<T>(Operation::ReduceScatter, result), op),
        TensorCall::AllGather => Ok(describe::<T>(Operation::AllGather, input)),
        TensorCall::Broadcast { root } => group.with_root(describe::<T>(Operation::Broadcast, input), root),
    }
}

/// Starts to send a tensor: the handle is done when that is queued, and the memory stays until the GPU is done with it.
#[track_caller]
pub(super) fn send_start(tensor: CubeTensor, to: usize, group: &ProcessGroup, engine: &Nccl) -> Pending<()> {
    let input = into_contiguous(tensor);
    let length = input.shape().num_elements();
    match with_float!(input.dtype, T => group.transfer(describe::<T>(Operation::Send, length), to)) {
        Err(error) => Pending::ready(Err(error)),
        Ok(call) => transfer(call, engine.prepare(buffers(&input, None)), group, drop),
    }
}

/// Starts to receive a tensor, which is available to work launched after [`Started::before_use`].
#[track_caller]
pub(super) fn recv_start(
    shape: Shape,
    dtype: DType,
    device: &CubeDevice,
    from: usize,
    group: &ProcessGroup,
    engine: &Nccl,
) -> (CubeTensor, Pending<Started>) {
    let output = empty_device_contiguous_dtype(device.client(), device.clone(), shape, dtype);
    let length = output.shape().num_elements();
    let pending = match with_float!(dtype, T => group.transfer(describe::<T>(Operation::Recv, length), from)) {
        Err(error) => Pending::ready(Err(error)),
        Ok(call) => transfer(call, engine.prepare(buffers(&output, None)), group, |started| started),
    };
    (output, pending)
}

/// Queues a transfer on the thread of its lane: the first between two ranks waits until both are there.
#[track_caller]
fn transfer<O: Send + 'static>(
    call: CallDescriptor,
    prepared: Prepared,
    group: &ProcessGroup,
    outcome: impl FnOnce(Started) -> O + Send + 'static,
) -> Pending<O> {
    let core = group.core().clone();
    group.core().queue_start(call, group.note(), move |host, call, made| {
        let engine = nccl::of_core(&core).expect("asked for before");
        engine.queue(host, call, made, prepared).map(outcome)
    })
}

fn buffers(input: &CubeTensor, output: Option<&CubeTensor>) -> Buffers {
    Buffers {
        input: input.handle.clone(),
        output: output.map(|output| output.handle.clone()),
        distance: None,
    }
}
