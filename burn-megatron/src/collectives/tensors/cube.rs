//! `CollectiveBackend` for CubeCL's backends: over NCCL on CUDA, where the group has it, and else through host memory.

#[cfg(feature = "nccl")]
use burn::tensor::ops::FloatTensor;
#[cfg(feature = "nccl")]
use burn::tensor::{DType, Shape};
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};

use super::CollectiveBackend;
#[cfg(feature = "nccl")]
use super::{Movement, PendingTensor, nccl, staging};
#[cfg(feature = "nccl")]
use crate::collectives::{CollectiveError, Pending, ProcessGroup, ReduceOp};

impl<R, F, I, T> CollectiveBackend for CubeBackend<R, F, I, T>
where
    R: CubeRuntime,
    F: FloatElement,
    I: IntElement,
    T: BoolElement,
{
    const HAS_DEVICE_MEMORY: bool = true;

    #[cfg(feature = "nccl")]
    fn tensor_engine(group: &ProcessGroup) -> &'static str {
        match nccl::engine::<R>(group) {
            Some(_) => "NCCL",
            None => "host copies",
        }
    }

    #[cfg(feature = "nccl")]
    #[track_caller]
    fn move_data(
        tensor: FloatTensor<Self>,
        movement: Movement,
        group: &ProcessGroup,
    ) -> Result<FloatTensor<Self>, CollectiveError> {
        match nccl::engine::<R>(group) {
            Some(engine) => nccl::move_data::<Self, R>(tensor, movement, group, engine),
            None => staging::move_data::<Self>(tensor, movement, group),
        }
    }

    #[cfg(feature = "nccl")]
    #[track_caller]
    fn all_reduce(
        tensor: FloatTensor<Self>,
        op: ReduceOp,
        group: &ProcessGroup,
    ) -> Result<FloatTensor<Self>, CollectiveError> {
        match nccl::engine::<R>(group) {
            Some(engine) => nccl::all_reduce_start(tensor, op, group, engine).map(nccl::usable),
            None => staging::all_reduce::<Self>(tensor, op, group),
        }
    }

    #[cfg(feature = "nccl")]
    #[track_caller]
    fn broadcast(
        tensor: FloatTensor<Self>,
        root: usize,
        group: &ProcessGroup,
    ) -> Result<FloatTensor<Self>, CollectiveError> {
        match nccl::engine::<R>(group) {
            Some(engine) => nccl::broadcast_start(tensor, root, group, engine).map(nccl::usable),
            None => staging::broadcast::<Self>(tensor, root, group),
        }
    }

    #[cfg(feature = "nccl")]
    #[track_caller]
    fn all_reduce_start(tensor: FloatTensor<Self>, op: ReduceOp, group: &ProcessGroup) -> PendingTensor<Self> {
        match nccl::engine::<R>(group) {
            Some(engine) => PendingTensor::started(nccl::all_reduce_start(tensor, op, group, engine)),
            None => staging::all_reduce_start::<Self>(tensor, op, group),
        }
    }

    #[cfg(feature = "nccl")]
    #[track_caller]
    fn reduce_scatter_start(tensor: FloatTensor<Self>, op: ReduceOp, group: &ProcessGroup) -> PendingTensor<Self> {
        match nccl::engine::<R>(group) {
            Some(engine) => PendingTensor::started(nccl::reduce_scatter_start(tensor, op, group, engine)),
            None => staging::reduce_scatter_start::<Self>(tensor, op, group),
        }
    }

    #[cfg(feature = "nccl")]
    #[track_caller]
    fn all_gather_start(tensor: FloatTensor<Self>, group: &ProcessGroup) -> PendingTensor<Self> {
        match nccl::engine::<R>(group) {
            Some(engine) => PendingTensor::started(nccl::all_gather_start(tensor, group, engine)),
            None => staging::all_gather_start::<Self>(tensor, group),
        }
    }

    #[cfg(feature = "nccl")]
    #[track_caller]
    fn send_start(tensor: FloatTensor<Self>, to: usize, group: &ProcessGroup) -> Pending<()> {
        match nccl::engine::<R>(group) {
            Some(engine) => nccl::send_start(tensor, to, group, engine),
            None => staging::send_start::<Self>(tensor, to, group),
        }
    }

    #[cfg(feature = "nccl")]
    #[track_caller]
    fn recv_start(
        shape: Shape,
        dtype: DType,
        device: &Self::Device,
        from: usize,
        group: &ProcessGroup,
    ) -> PendingTensor<Self> {
        match nccl::engine::<R>(group) {
            Some(engine) => {
                let (tensor, pending) = nccl::recv_start(shape, dtype, device, from, group, engine);
                PendingTensor::on_device(tensor, pending)
            }
            None => staging::recv_start::<Self>(shape, dtype, device, from, group),
        }
    }
}
