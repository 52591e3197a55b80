//! `CollectiveBackend` for burn's CubeCL devices: over NCCL on CUDA, where the group has it, and else through host
//! memory. burn's fusion first runs the queued operations that a tensor depends on.

use std::ops::Range;

use burn_backend::tensor::FloatTensor;
use burn_backend::{DType, Shape};
use burn_cubecl::tensor::CubeTensor;
use burn_cubecl::{Cube, CubeBackend, CubeDevice};
use burn_fusion::stream::StreamId;
use burn_fusion::{NoOp, get_client};
use burn_ir::{InitOperationIr, OperationIr, OperationOutput};
use cubecl_kernels::linear::blocks::RowBlocks;

use super::{CallMode, CollectiveBackend, PendingTensor, TensorCall, nccl, staging};
use crate::collectives::nccl::{Started, connect_all};
use crate::collectives::{CollectiveError, Pending, ProcessGroup};

impl CollectiveBackend for Cube {
    const HAS_DEVICE_MEMORY: bool = true;

    fn tensor_engine(device: &CubeDevice, group: &ProcessGroup) -> &'static str {
        match nccl::engine(device, group) {
            Some(_) => "NCCL",
            None => "host copies",
        }
    }

    fn connect(device: &CubeDevice, groups: &[&ProcessGroup]) -> Result<(), CollectiveError> {
        let have_nccl = groups.iter().filter(|group| nccl::engine(device, group).is_some());
        connect_all(&have_nccl.copied().collect::<Vec<_>>())
    }

    #[track_caller]
    fn collective(
        tensor: FloatTensor<Self>,
        call: TensorCall,
        mode: CallMode,
        group: &ProcessGroup,
    ) -> PendingTensor<Self> {
        match nccl::engine(tensor.client.device(), group) {
            Some(engine) => started(nccl::start(resolved(tensor), call, group, engine)),
            None => staging::collective::<Self>(tensor, call, mode, group),
        }
    }

    #[track_caller]
    fn start_into(
        (matrix, from): (&FloatTensor<Self>, Range<usize>),
        call: TensorCall,
        (output, to): (&FloatTensor<Self>, RowBlocks),
        group: &ProcessGroup,
    ) -> Option<PendingTensor<Self>> {
        let engine = nccl::engine(matrix.client.device(), group)?;
        let (matrix, output) = (resolved(matrix.clone()), resolved(output.clone()));
        Some(started(nccl::start_into(
            (matrix, from),
            call,
            (&output, to),
            group,
            engine,
        )))
    }

    #[track_caller]
    fn send_start(tensor: FloatTensor<Self>, to: usize, group: &ProcessGroup) -> Pending<()> {
        match nccl::engine(tensor.client.device(), group) {
            Some(engine) => nccl::send_start(resolved(tensor), to, group, engine),
            None => staging::send_start::<Self>(tensor, to, group),
        }
    }

    #[track_caller]
    fn recv_start(
        shape: Shape,
        dtype: DType,
        device: &CubeDevice,
        from: usize,
        group: &ProcessGroup,
    ) -> PendingTensor<Self> {
        match nccl::engine(device, group) {
            Some(engine) => {
                let (tensor, pending) = nccl::recv_start(shape, dtype, device, from, group, engine);
                PendingTensor::<CubeBackend>::on_device(tensor, pending).map(fused)
            }
            None => staging::recv_start::<Self>(shape, dtype, device, from, group),
        }
    }
}

fn started(result: Result<(CubeTensor, Started), CollectiveError>) -> PendingTensor<Cube> {
    PendingTensor::<CubeBackend>::started(result).map(fused)
}

/// Runs the queued operations that a tensor depends on.
fn resolved(tensor: FloatTensor<Cube>) -> CubeTensor {
    let client = tensor.client.clone();
    client.resolve_tensor_float::<CubeBackend>(tensor)
}

/// Returns a tensor on which further operations can be queued.
fn fused(tensor: CubeTensor) -> FloatTensor<Cube> {
    let client = get_client::<CubeBackend>(&tensor.device);
    let (shape, dtype) = (tensor.meta.shape().clone(), tensor.dtype);
    let init = InitOperationIr::create(shape, dtype, || client.register_tensor_handle(tensor.into()));
    client
        .register(StreamId::current(), OperationIr::Init(init), NoOp::<CubeBackend>::new())
        .output()
}
