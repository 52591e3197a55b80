//! `CollectiveBackend`: the collectives on burn tensors, backend by backend.
//!
//! Unless a backend says otherwise, tensors travel through host memory (`staging`).

use std::ops::Range;

#[cfg(feature = "cubecl")]
use burn::backend::{BackendTensor, DispatchAutodiffContext, DispatchTensorKind};
use burn::backend::{Dispatch, DispatchDevice, DispatchTensor};
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, DType, Shape};
#[cfg(feature = "cubecl")]
use burn_cubecl::Cube;
use burn_flex::Flex;
use cubecl_kernels::linear::blocks::RowBlocks;

use super::{CallMode, PendingTensor, TensorCall, staging};
use crate::collectives::{CollectiveError, Pending, ProcessGroup};

/// A backend whose tensors can take part in collectives.
///
/// A backend that can do better than host memory says how in [`collective`](CollectiveBackend::collective),
/// [`send_start`](CollectiveBackend::send_start) and [`recv_start`](CollectiveBackend::recv_start); all other
/// communication is made of these. Collectives keep the element type.
pub trait CollectiveBackend: Backend {
    /// Whether tensors are in the memory of a device.
    const HAS_DEVICE_MEMORY: bool = false;

    /// Returns the name of what moves a device's tensors over the group.
    fn tensor_engine(device: &Self::Device, group: &ProcessGroup) -> &'static str {
        let _ = device;
        if Self::HAS_DEVICE_MEMORY {
            "host copies"
        } else {
            group.engine_name()
        }
    }

    /// Connects what moves a device's tensors over these groups, all at once: it takes as long as the slowest of them.
    /// A group that is left out is connected by its first collective.
    ///
    /// # Communication
    /// Collective over each group, which come in the same order on all ranks. Over NCCL a broadcast of 128 bytes, and
    /// NCCL's own; none otherwise.
    ///
    /// # Errors
    /// When the ranks do not come together.
    fn connect(device: &Self::Device, groups: &[&ProcessGroup]) -> Result<(), CollectiveError> {
        let _ = (device, groups);
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

    /// Starts a collective on rows of a matrix whose result goes to its rows of `output`: of an all-gather, each rank's
    /// to a block of rows; of a reduce-scatter, to one block. Returns the output, with these rows in it once they are
    /// waited for; `None` where results cannot be written there.
    #[track_caller]
    fn start_into(
        (matrix, from): (&FloatTensor<Self>, Range<usize>),
        call: TensorCall,
        (output, to): (&FloatTensor<Self>, RowBlocks),
        group: &ProcessGroup,
    ) -> Option<PendingTensor<Self>> {
        let _ = (matrix, from, call, output, to, group);
        None
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
}

impl CollectiveBackend for Flex {}

#[cfg(all(feature = "cubecl", not(feature = "cuda")))]
impl CollectiveBackend for Cube {
    const HAS_DEVICE_MEMORY: bool = true;
}

/// burn's tensors, each as its own backend moves it; none is of a graph.
impl CollectiveBackend for Dispatch {
    #[track_caller]
    fn collective(tensor: DispatchTensor, call: TensorCall, mode: CallMode, group: &ProcessGroup) -> PendingTensor {
        match tensor.kind {
            #[cfg(feature = "cubecl")]
            DispatchTensorKind::Cube(tensor) => Cube::collective(tensor.float(), call, mode, group).map(of_cube),
            _ => staging::collective::<Self>(tensor, call, mode, group),
        }
    }

    #[track_caller]
    fn start_into(
        (matrix, from): (&DispatchTensor, Range<usize>),
        call: TensorCall,
        (output, to): (&DispatchTensor, RowBlocks),
        group: &ProcessGroup,
    ) -> Option<PendingTensor> {
        match (&matrix.kind, &output.kind) {
            #[cfg(feature = "cubecl")]
            (
                DispatchTensorKind::Cube(BackendTensor::Float(matrix)),
                DispatchTensorKind::Cube(BackendTensor::Float(output)),
            ) => Some(Cube::start_into((matrix, from), call, (output, to), group)?.map(of_cube)),
            _ => {
                let _ = (from, call, to, group);
                None
            }
        }
    }

    #[track_caller]
    fn send_start(tensor: DispatchTensor, to: usize, group: &ProcessGroup) -> Pending<()> {
        match tensor.kind {
            #[cfg(feature = "cubecl")]
            DispatchTensorKind::Cube(tensor) => Cube::send_start(tensor.float(), to, group),
            _ => staging::send_start::<Self>(tensor, to, group),
        }
    }

    #[track_caller]
    fn recv_start(
        shape: Shape,
        dtype: DType,
        device: &DispatchDevice,
        from: usize,
        group: &ProcessGroup,
    ) -> PendingTensor {
        match device {
            #[cfg(feature = "cubecl")]
            DispatchDevice::Cube(device) => Cube::recv_start(shape, dtype, device, from, group).map(of_cube),
            _ => staging::recv_start::<Self>(shape, dtype, device, from, group),
        }
    }
}

#[cfg(feature = "cubecl")]
fn of_cube(tensor: FloatTensor<Cube>) -> DispatchTensor {
    DispatchTensor {
        kind: DispatchTensorKind::Cube(BackendTensor::Float(tensor)),
        autodiff: DispatchAutodiffContext::Disabled,
    }
}
