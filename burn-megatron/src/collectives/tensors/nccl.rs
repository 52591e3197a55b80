//! Collectives on tensors on a GPU over NCCL: nothing passes through host memory, and no host waits for the GPU, but
//! for the other ranks at the first call, and for CubeCL to hand over what was launched before.

use burn::tensor::{DType, Shape, TensorMetadata, backend::Backend};
use burn_cubecl::CubeRuntime;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use burn_megatron_comm::collectives::device::{Made, describe};
use cubecl::cuda::CudaRuntime;
use cubecl_kernels::cube::launch::{empty_beside, into_contiguous};
use half::{bf16, f16};

use super::Movement;
use super::staging::{self, with_float};
use crate::collectives::nccl::{self, Buffers, Nccl, Prepared, Started};
use crate::collectives::{CallDescriptor, CollectiveError, Engine, Operation, Pending, ProcessGroup, ReduceOp};

/// The group's part of NCCL, if it has one and the runtime is CUDA's.
pub(super) fn engine<R: CubeRuntime>(group: &ProcessGroup) -> Option<&Nccl> {
    let is_cuda = std::any::TypeId::of::<R>() == std::any::TypeId::of::<CudaRuntime>();
    nccl::of(group).filter(|_| is_cuda)
}

/// Returns the tensor moved over the group.
#[track_caller]
pub(super) fn move_data<B, R>(
    tensor: CubeTensor<R>,
    movement: Movement,
    group: &ProcessGroup,
    engine: &Nccl,
) -> Result<CubeTensor<R>, CollectiveError>
where
    R: CubeRuntime,
    B: Backend<FloatTensorPrimitive = CubeTensor<R>>,
{
    match movement {
        Movement::Keep => Ok(tensor),
        Movement::AllReduce => all_reduce_start(tensor, ReduceOp::Sum, group, engine).map(usable),
        Movement::Split { dimension } => Ok(staging::split::<B>(tensor, dimension, group)),
        Movement::AllGather { dimension: 0 } => all_gather_start(tensor, group, engine).map(usable),
        Movement::AllGather { dimension } => {
            let stacked = usable(all_gather_start(tensor, group, engine)?);
            Ok(staging::join_along::<B>(stacked, dimension, group))
        }
        Movement::ReduceScatter => reduce_scatter_start(tensor, ReduceOp::Sum, group, engine).map(usable),
    }
}

/// Lets all that is launched from now on use a call's result.
pub(super) fn usable<R: CubeRuntime>((tensor, started): (CubeTensor<R>, Started)) -> CubeTensor<R> {
    started.before_use();
    tensor
}

/// Starts to reduce a tensor element by element over the group; in place if nothing else holds it.
#[track_caller]
pub(super) fn all_reduce_start<R: CubeRuntime>(
    tensor: CubeTensor<R>,
    op: ReduceOp,
    group: &ProcessGroup,
    engine: &Nccl,
) -> Result<(CubeTensor<R>, Started), CollectiveError> {
    let input = into_contiguous(tensor);
    let shape = input.shape();
    let length = shape.num_elements();
    let call = with_float!(input.dtype, T => group.reduction::<T>(Operation::AllReduce, length, op))?;
    start(input, shape, call, group, engine)
}

/// Starts to fetch the tensor of the rank with index `root`.
#[track_caller]
pub(super) fn broadcast_start<R: CubeRuntime>(
    tensor: CubeTensor<R>,
    root: usize,
    group: &ProcessGroup,
    engine: &Nccl,
) -> Result<(CubeTensor<R>, Started), CollectiveError> {
    let input = into_contiguous(tensor);
    let shape = input.shape();
    let call = with_float!(input.dtype, T => group.with_root::<T>(shape.num_elements(), root))?;
    start(input, shape, call, group, engine)
}

/// Starts to join the parts of all ranks, one after the other.
#[track_caller]
pub(super) fn all_gather_start<R: CubeRuntime>(
    tensor: CubeTensor<R>,
    group: &ProcessGroup,
    engine: &Nccl,
) -> Result<(CubeTensor<R>, Started), CollectiveError> {
    let input = into_contiguous(tensor);
    let mut shape = input.shape();
    shape[0] *= group.size();
    let length = input.shape().num_elements();
    let call = with_float!(input.dtype, T => describe::<T>(Operation::AllGather, length));
    start(input, shape, call, group, engine)
}

/// Starts to reduce a tensor over the group, of which this rank gets its own of equal parts.
#[track_caller]
pub(super) fn reduce_scatter_start<R: CubeRuntime>(
    tensor: CubeTensor<R>,
    op: ReduceOp,
    group: &ProcessGroup,
    engine: &Nccl,
) -> Result<(CubeTensor<R>, Started), CollectiveError> {
    let input = into_contiguous(tensor);
    let mut shape = input.shape();
    shape[0] = staging::part_length(shape[0], 0, group);
    let length = shape.num_elements();
    let call = with_float!(input.dtype, T => group.reduction::<T>(Operation::ReduceScatter, length, op))?;
    start(input, shape, call, group, engine)
}

/// Starts to send a tensor: the handle is done when that is queued, and the memory stays until the GPU is done with it.
#[track_caller]
pub(super) fn send_start<R: CubeRuntime>(
    tensor: CubeTensor<R>,
    to: usize,
    group: &ProcessGroup,
    engine: &Nccl,
) -> Pending<()> {
    let input = into_contiguous(tensor);
    let length = input.shape().num_elements();
    match with_float!(input.dtype, T => group.transfer::<T>(Operation::Send, length, to)) {
        Err(error) => Pending::ready(Err(error)),
        Ok(call) => transfer(call, engine.prepare(buffers(&input, None)), group, drop),
    }
}

/// Starts to receive a tensor, which is available to work launched after [`Started::before_use`].
#[track_caller]
pub(super) fn recv_start<R: CubeRuntime>(
    shape: Shape,
    dtype: DType,
    device: &R::Device,
    from: usize,
    group: &ProcessGroup,
    engine: &Nccl,
) -> (CubeTensor<R>, Pending<Started>) {
    let output = empty_device_contiguous_dtype(R::client(device), device.clone(), shape, dtype);
    let length = output.shape().num_elements();
    let pending = match with_float!(dtype, T => group.transfer::<T>(Operation::Recv, length, from)) {
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

/// Starts a call and returns its result, in place if possible and otherwise in new memory. The result is available to
/// work launched after [`Started::before_use`].
#[track_caller]
fn start<R: CubeRuntime>(
    input: CubeTensor<R>,
    shape: Shape,
    call: CallDescriptor,
    group: &ProcessGroup,
    engine: &Nccl,
) -> Result<(CubeTensor<R>, Started), CollectiveError> {
    let is_in_place = input.shape() == shape && input.can_mut();
    let output = if is_in_place {
        None
    } else {
        Some(empty_beside(&input, &shape, input.dtype))
    };
    let prepared = engine.prepare(buffers(&input, output.as_ref()));
    let queue = |host: &dyn Engine, call, made: &Made| engine.queue(host, call, made, prepared);
    let started = group.core().queue(call, group.note(), queue)?;
    Ok((output.unwrap_or(input), started))
}

fn buffers<R: CubeRuntime>(input: &CubeTensor<R>, output: Option<&CubeTensor<R>>) -> Buffers {
    Buffers {
        input: input.handle.clone(),
        output: output.map(|output| output.handle.clone()),
    }
}
