//! `CollectiveBackend`: the collectives on burn tensors, backend by backend.
//!
//! Unless a backend says otherwise, tensors travel through host memory (`staging`).

use std::ops::Range;

use burn::tensor::{DType, Shape, Tensor, TensorMetadata, ops::FloatTensor};
use burn_flex::Flex;
use cubecl_kernels::KernelBackend;
use cubecl_kernels::linear::blocks::RowBlocks;
use cubecl_kernels::linear::{LinearInputs, WeightOrder};
use cubecl_kernels::tape::{float, primitive};

use super::{
    CallMode, GatheredGradient, Movement, PendingRows, PendingTensor, RegionEntry, RowChunks, TensorCall, movement,
    overlap, staging, unwrap_or_unwind,
};
use crate::collectives::{CollectiveError, Pending, ProcessGroup, ReduceOp};

/// A backend whose tensors can take part in collectives, and on which the layers' operations run.
///
/// Those of burn's backends that are one, each with [`Autodiff`](burn::backend::Autodiff) as well:
///
/// | backend | feature of this crate | element types | tensors move |
/// |---|---|---|---|
/// | `Flex` | none | f32, f64, f16, bf16 | in host memory |
/// | `NdArray` | `ndarray` | f32, f64 | in host memory |
/// | `Cuda` | `cuda`, `nccl` | f32, f16, bf16 | through host memory, or over NCCL |
/// | `Wgpu`, with kernels in WGSL | `wgpu` | f32; f16 where the device has it | through host memory |
/// | `Vulkan`, with kernels in SPIR-V | `vulkan` | f32; f16 where the device has it | through host memory |
/// | any other `CubeBackend<R, …>` | `cubecl` | those of its runtime | through host memory |
/// | `Fusion` of any of CubeCL's | `fusion` | as without it | as without it |
///
/// burn's other backends (`LibTorch`, `Candle`, `BackendRouter`) are not: Rust lets only the crate of the trait, or
/// that of the backend, implement it for them (error E0117). A backend type of your own crate needs `impl KernelBackend
/// for MyBackend {}` and `impl CollectiveBackend for MyBackend {}`, both empty, as those for `NdArray` are: operations
/// then run in burn's own (the defaults of [`KernelBackend`](super::super::KernelBackend)), and tensors move through
/// host memory.
///
/// A backend that can do better than host memory says how in [`collective`](CollectiveBackend::collective),
/// [`send_start`](CollectiveBackend::send_start) and [`recv_start`](CollectiveBackend::recv_start); all other
/// communication is made of these.
///
/// Collectives and movements keep the element type. On [`Autodiff`](burn::backend::Autodiff) their result is a
/// constant; only [`move_differentiable`](CollectiveBackend::move_differentiable) and
/// [`linear_into_region`](CollectiveBackend::linear_into_region) are tracked.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a backend that burn-megatron communicates and computes on",
    note = "of burn's backends: `Flex` always, `NdArray` with the feature `ndarray` of burn-megatron, `Cuda` with \
            `cuda`, `Wgpu` with `wgpu`, `Vulkan` with `vulkan`; and `Autodiff` of each",
    note = "for a backend of your own crate write `impl KernelBackend for …` and `impl CollectiveBackend for …`, both \
            empty"
)]
pub trait CollectiveBackend: KernelBackend {
    /// Whether tensors are in the memory of a device, so that gradients are added up and reduced there; in host memory
    /// the ranks of a node reduce them in place.
    const HAS_DEVICE_MEMORY: bool = false;

    /// The name of what moves tensors over the group.
    fn tensor_engine(group: &ProcessGroup) -> &'static str {
        if Self::HAS_DEVICE_MEMORY {
            "host copies"
        } else {
            group.engine_name()
        }
    }

    /// Connects what moves tensors over these groups, all at once: it takes as long as the slowest of them. A group
    /// that is left out is connected by its first collective.
    ///
    /// # Communication
    /// Collective over each group, which come in the same order on all ranks. Over NCCL a broadcast of 128 bytes, and
    /// NCCL's own; none otherwise.
    ///
    /// # Errors
    /// When the ranks do not come together.
    fn connect(groups: &[&ProcessGroup]) -> Result<(), CollectiveError> {
        let _ = groups;
        Ok(())
    }

    /// Makes a collective on the tensor, which [`run`](Self::run) and [`start`](Self::start) call.
    ///
    /// # Panics
    /// When the group's size does not divide the dimension that is cut.
    #[track_caller]
    fn collective(
        tensor: FloatTensor<Self>,
        call: TensorCall,
        mode: CallMode,
        group: &ProcessGroup,
    ) -> PendingTensor<Self> {
        staging::collective::<Self>(tensor, call, mode, group)
    }

    /// Returns the result of a collective on the tensor.
    ///
    /// # Errors
    /// As [`ProcessGroup::all_reduce`].
    ///
    /// # Panics
    /// As [`collective`](Self::collective).
    #[track_caller]
    fn run(
        tensor: FloatTensor<Self>,
        call: TensorCall,
        group: &ProcessGroup,
    ) -> Result<FloatTensor<Self>, CollectiveError> {
        Self::collective(tensor, call, CallMode::Blocking, group).wait()
    }

    /// Starts a collective on the tensor.
    ///
    /// # Panics
    /// As [`collective`](Self::collective).
    #[track_caller]
    fn start(tensor: FloatTensor<Self>, call: TensorCall, group: &ProcessGroup) -> PendingTensor<Self> {
        Self::collective(tensor, call, CallMode::Started, group)
    }

    /// Starts a collective on each of these ranges of a matrix's rows, in order.
    ///
    /// # Panics
    /// As [`collective`](Self::collective).
    #[track_caller]
    fn start_rows(
        tensor: FloatTensor<Self>,
        ranges: &[Range<usize>],
        call: TensorCall,
        group: &ProcessGroup,
    ) -> Vec<PendingTensor<Self>> {
        staging::start_rows::<Self>(tensor, ranges, call, group)
    }

    /// As [`start_rows`](Self::start_rows); each result is for its rows of `output`, which has no gaps between its
    /// rows, and is not read or written there until it has been waited for.
    ///
    /// # Panics
    /// As [`collective`](Self::collective).
    #[track_caller]
    fn start_rows_into(
        tensor: FloatTensor<Self>,
        ranges: &[Range<usize>],
        call: TensorCall,
        output: &FloatTensor<Self>,
        to: &[RowBlocks],
        group: &ProcessGroup,
    ) -> Vec<PendingRows<Self>> {
        let _ = output;
        PendingRows::all_apart(Self::start_rows(tensor, ranges, call, group), to)
    }

    /// Starts to send the tensor to the rank with index `to` in the group. Its memory is free once that is done, if
    /// nothing else holds the tensor.
    ///
    /// The other rank must receive with the same number of elements and the same type.
    #[track_caller]
    fn send_start(tensor: FloatTensor<Self>, to: usize, group: &ProcessGroup) -> Pending<()> {
        staging::send_start::<Self>(tensor, to, group)
    }

    /// Starts to receive a tensor from the rank with index `from` in the group.
    #[track_caller]
    fn recv_start(
        shape: Shape,
        dtype: DType,
        device: &Self::Device,
        from: usize,
        group: &ProcessGroup,
    ) -> PendingTensor<Self> {
        staging::recv_start::<Self>(shape, dtype, device, from, group)
    }

    /// Returns the tensor moved over the group.
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
    fn move_data(
        tensor: FloatTensor<Self>,
        movement: Movement,
        group: &ProcessGroup,
    ) -> Result<FloatTensor<Self>, CollectiveError> {
        match movement {
            Movement::Keep => Ok(tensor),
            Movement::AllReduce => Self::run(tensor, TensorCall::AllReduce(ReduceOp::Sum), group),
            Movement::Split { dimension } => Ok(movement::split::<Self>(tensor, dimension, group)),
            Movement::AllGather { dimension: 0 } => Self::run(tensor, TensorCall::AllGather, group),
            Movement::AllGather { dimension } => {
                let stacked = Self::run(tensor, TensorCall::AllGather, group)?;
                Ok(movement::join_along::<Self>(stacked, dimension, group))
            }
            Movement::ReduceScatter => Self::run(tensor, TensorCall::ReduceScatter(ReduceOp::Sum), group),
        }
    }

    /// Returns the tensor moved by `forward`; its gradient, on a backend that differentiates, will be moved by
    /// `backward`.
    ///
    /// # Panics
    /// When a collective fails, with the [`CollectiveError`] as payload: neither a layer's forward nor a backward
    /// step can return an error. [`catch_collective_error`](super::catch_collective_error) turns it back into one.
    #[track_caller]
    fn move_differentiable(
        tensor: FloatTensor<Self>,
        forward: Movement,
        backward: Movement,
        group: &ProcessGroup,
    ) -> FloatTensor<Self> {
        let _ = backward;
        unwrap_or_unwind(Self::move_data(tensor, forward, group))
    }

    /// Returns the linear product of an input that enters a tensor-parallel region, each rank with its own columns of
    /// the weight.
    ///
    /// On a backend that differentiates, the gradients of weight and bias are computed while that of the input is added
    /// up over the group; rows that were gathered are not kept, but gathered once more while that of the input is
    /// computed.
    ///
    /// # Panics
    /// As [`move_differentiable`](Self::move_differentiable).
    #[track_caller]
    fn linear_into_region(inputs: LinearInputs<Self>, entry: RegionEntry, group: &ProcessGroup) -> Tensor<Self, 2> {
        if let RegionEntry::GatherRows { chunks } = entry
            && !chunks.is_whole()
        {
            let input = primitive(inputs.input.clone());
            let gathering = Self::start_rows(input, &chunks.ranges(), TensorCall::AllGather, group);
            return overlap::multiply_gathered(inputs, chunks, group.size(), gathering);
        }
        let input = unwrap_or_unwind(Self::move_data(primitive(inputs.input), entry.movement(), group));
        Self::affine(LinearInputs {
            input: float(input),
            ..inputs
        })
    }

    /// Returns this rank's rows of the sum over the ranks of a linear product without bias, each rank with its own rows
    /// of the weight: each chunk is reduce-scattered while the next one is multiplied. On a backend that
    /// differentiates, the chunks of the output's gradient are gathered likewise.
    ///
    /// # Panics
    /// As [`move_differentiable`](Self::move_differentiable).
    #[track_caller]
    fn linear_out_of_region(inputs: LinearInputs<Self>, chunks: RowChunks, group: &ProcessGroup) -> Tensor<Self, 2> {
        let call = TensorCall::ReduceScatter(ReduceOp::Sum);
        overlap::multiply_and_scatter(inputs, chunks, group.size(), |part, output, to| {
            let rows = 0..part.shape()[0];
            Self::start_rows_into(part, &[rows], call, output, &[to], group)
        })
    }

    /// Returns the gradient of the output of [`linear_out_of_region`](Self::linear_out_of_region), gathered from the
    /// ranks in chunks, and that of its input. Not differentiable.
    ///
    /// # Panics
    /// As [`move_differentiable`](Self::move_differentiable).
    #[track_caller]
    fn gather_gradient(
        gradient: Tensor<Self, 2>,
        weight: Tensor<Self, 2>,
        order: WeightOrder,
        chunks: RowChunks,
        group: &ProcessGroup,
    ) -> GatheredGradient<Self> {
        overlap::gather_gradient(
            gradient,
            (weight, order),
            chunks,
            group.size(),
            |gradient, whole, to| {
                Self::start_rows_into(gradient, &chunks.ranges(), TensorCall::AllGather, whole, to, group)
            },
        )
    }
}

impl CollectiveBackend for Flex {}
