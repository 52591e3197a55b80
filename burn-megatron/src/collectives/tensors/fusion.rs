//! `CollectiveBackend` for burn's fusion: runs the queued operations that a tensor depends on, and lets the inner
//! backend move it.

use burn::tensor::ops::FloatTensor;
use burn::tensor::{DType, Shape, Tensor, TensorMetadata};
use burn_fusion::stream::OperationStreams;
use burn_fusion::{Fusion, FusionBackend, NoOp, get_client};
use burn_ir::{InitOperationIr, OperationIr, OperationOutput};
use cubecl_kernels::KernelBackend;
use cubecl_kernels::linear::{LinearInputs, WeightOrder};
use cubecl_kernels::tape::{float, primitive};

use super::{
    CallMode, CollectiveBackend, GatheredGradient, Movement, PendingTensor, RegionEntry, RowChunks, TensorCall,
    unwrap_or_unwind,
};
use crate::collectives::{CollectiveError, Pending, ProcessGroup};

impl<B: FusionBackend + CollectiveBackend> CollectiveBackend for Fusion<B>
where
    Fusion<B>: KernelBackend<FloatTensorPrimitive = burn_fusion::FusionTensor<B::FusionRuntime>, Device = B::Device>,
{
    const HAS_DEVICE_MEMORY: bool = B::HAS_DEVICE_MEMORY;

    fn tensor_engine(group: &ProcessGroup) -> &'static str {
        B::tensor_engine(group)
    }

    fn connect(groups: &[&ProcessGroup]) -> Result<(), CollectiveError> {
        B::connect(groups)
    }

    #[track_caller]
    fn collective(
        tensor: FloatTensor<Self>,
        call: TensorCall,
        mode: CallMode,
        group: &ProcessGroup,
    ) -> PendingTensor<Self> {
        B::collective(resolved::<B>(tensor), call, mode, group).map(fused::<B>)
    }

    #[track_caller]
    fn send_start(tensor: FloatTensor<Self>, to: usize, group: &ProcessGroup) -> Pending<()> {
        B::send_start(resolved::<B>(tensor), to, group)
    }

    #[track_caller]
    fn recv_start(
        shape: Shape,
        dtype: DType,
        device: &Self::Device,
        from: usize,
        group: &ProcessGroup,
    ) -> PendingTensor<Self> {
        B::recv_start(shape, dtype, device, from, group).map(fused::<B>)
    }

    #[track_caller]
    fn move_data(
        tensor: FloatTensor<Self>,
        movement: Movement,
        group: &ProcessGroup,
    ) -> Result<FloatTensor<Self>, CollectiveError> {
        B::move_data(resolved::<B>(tensor), movement, group).map(fused::<B>)
    }

    #[track_caller]
    fn linear_into_region(inputs: LinearInputs<Self>, entry: RegionEntry, group: &ProcessGroup) -> Tensor<Self, 2> {
        match entry {
            RegionEntry::GatherRows { chunks } if !chunks.is_whole() => {
                lazy(B::linear_into_region(resolved_inputs(inputs), entry, group))
            }
            // The matmul may be fused with what comes after it.
            _ => {
                let input = Self::move_data(primitive(inputs.input), entry.movement(), group);
                Self::affine(LinearInputs {
                    input: float(unwrap_or_unwind(input)),
                    ..inputs
                })
            }
        }
    }

    #[track_caller]
    fn linear_out_of_region(inputs: LinearInputs<Self>, chunks: RowChunks, group: &ProcessGroup) -> Tensor<Self, 2> {
        lazy(B::linear_out_of_region(resolved_inputs(inputs), chunks, group))
    }

    #[track_caller]
    fn gather_gradient(
        gradient: Tensor<Self, 2>,
        weight: Tensor<Self, 2>,
        order: WeightOrder,
        chunks: RowChunks,
        group: &ProcessGroup,
    ) -> GatheredGradient<Self> {
        let gathered = B::gather_gradient(eager(gradient), eager(weight), order, chunks, group);
        GatheredGradient {
            output: lazy(gathered.output),
            input: lazy(gathered.input),
        }
    }
}

/// The tensors of the inner backend.
fn resolved_inputs<B: FusionBackend + KernelBackend>(inputs: LinearInputs<Fusion<B>>) -> LinearInputs<B> {
    LinearInputs {
        input: eager(inputs.input),
        weight: eager(inputs.weight),
        bias: inputs.bias.map(eager),
        order: inputs.order,
    }
}

/// As [`resolved`].
fn eager<B: FusionBackend, const D: usize>(tensor: Tensor<Fusion<B>, D>) -> Tensor<B, D> {
    float(resolved::<B>(primitive(tensor)))
}

/// As [`fused`].
fn lazy<B: FusionBackend, const D: usize>(tensor: Tensor<B, D>) -> Tensor<Fusion<B>, D> {
    float(fused::<B>(primitive(tensor)))
}

/// Runs the queued operations that a tensor depends on.
fn resolved<B: FusionBackend>(tensor: FloatTensor<Fusion<B>>) -> FloatTensor<B> {
    let client = tensor.client.clone();
    client.resolve_tensor_float::<B>(tensor)
}

/// Returns a tensor on which further operations can be queued.
fn fused<B: FusionBackend>(tensor: FloatTensor<B>) -> FloatTensor<Fusion<B>> {
    let client = get_client::<B>(&B::float_device(&tensor));
    let (shape, dtype) = (tensor.shape(), tensor.dtype());
    let handle = B::float_tensor_handle(tensor);
    let init = InitOperationIr::create(shape, dtype, || client.register_tensor_handle(handle));
    client
        .register(OperationStreams::default(), OperationIr::Init(init), NoOp::<B>::new())
        .output()
}
