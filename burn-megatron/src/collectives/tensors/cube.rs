//! `CollectiveBackend` for CubeCL's backends: over NCCL on CUDA, where the group has it, and else through host memory.

#[cfg(feature = "nccl")]
use std::ops::Range;

#[cfg(feature = "nccl")]
use burn::tensor::ops::FloatTensor;
#[cfg(feature = "nccl")]
use burn::tensor::{DType, Shape};
use burn_cubecl::{BoolElement, CubeBackend, CubeRuntime, FloatElement, IntElement};
#[cfg(feature = "nccl")]
use cubecl_kernels::linear::blocks::RowBlocks;

use super::CollectiveBackend;
#[cfg(feature = "nccl")]
use super::{CallMode, PendingRows, PendingTensor, TensorCall, nccl, staging};
#[cfg(feature = "nccl")]
use crate::collectives::{CollectiveError, Pending, ProcessGroup};

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
    fn connect(groups: &[&ProcessGroup]) -> Result<(), CollectiveError> {
        let have_nccl = groups
            .iter()
            .copied()
            .filter(|group| nccl::engine::<R>(group).is_some());
        crate::collectives::nccl::connect_all(&have_nccl.collect::<Vec<_>>())
    }

    #[cfg(feature = "nccl")]
    #[track_caller]
    fn collective(
        tensor: FloatTensor<Self>,
        call: TensorCall,
        mode: CallMode,
        group: &ProcessGroup,
    ) -> PendingTensor<Self> {
        match nccl::engine::<R>(group) {
            Some(engine) => PendingTensor::started(nccl::start(tensor, call, group, engine)),
            None => staging::collective::<Self>(tensor, call, mode, group),
        }
    }

    #[cfg(feature = "nccl")]
    #[track_caller]
    fn start_rows_into(
        tensor: FloatTensor<Self>,
        ranges: &[Range<usize>],
        call: TensorCall,
        output: &FloatTensor<Self>,
        to: &[RowBlocks],
        group: &ProcessGroup,
    ) -> Vec<PendingRows<Self>> {
        match nccl::engine::<R>(group) {
            Some(engine) => {
                let started = nccl::rows_of(tensor, ranges).zip(to).map(|(rows, to)| {
                    let started = nccl::start_into(rows, call, output, *to, group, engine);
                    PendingRows::in_output(PendingTensor::started(started))
                });
                started.collect()
            }
            None => PendingRows::all_apart(Self::start_rows(tensor, ranges, call, group), to),
        }
    }

    #[cfg(feature = "nccl")]
    #[track_caller]
    fn start_rows(
        tensor: FloatTensor<Self>,
        ranges: &[Range<usize>],
        call: TensorCall,
        group: &ProcessGroup,
    ) -> Vec<PendingTensor<Self>> {
        match nccl::engine::<R>(group) {
            Some(engine) => {
                let start = |rows| PendingTensor::started(nccl::start(rows, call, group, engine));
                nccl::rows_of(tensor, ranges).map(start).collect()
            }
            None => staging::start_rows::<Self>(tensor, ranges, call, group),
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
