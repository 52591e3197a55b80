//! [`Sharded`] as a backend of burn's.

use std::marker::PhantomData;

use burn_backend::DType;
use burn_backend::distributed::DistributedOps;
use burn_backend::ops::TransactionOps;
use burn_backend::tensor::FloatTensor;
use burn_backend::{Backend, BackendTypes, DTypeUsageSet, ExecutionError};

use super::ShardedTensor;
use super::kind::{Bool, Float, Int};
use super::movement::redistribute::gather;
use super::random;
use crate::collectives::{CallMode, CollectiveBackend, PendingTensor, ProcessGroup, TensorCall};

/// A backend whose tensors are placed on a [`Mesh`](super::Mesh) of ranks.
///
/// A [`device`](super::device()) of burn's runs it, with autodiff around it. Every rank runs the same program; each
/// operation is one of the whole job. Reading a tensor that is cut, or a sum that has not been made, is a collective:
/// every rank must.
///
/// Random tensors are drawn by logical index, each rank its part: every rank must call [`Backend::seed`] with the same
/// seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sharded<B>(PhantomData<B>);

impl<B: CollectiveBackend> BackendTypes for Sharded<B> {
    type Device = B::Device;
    type FloatTensorPrimitive = ShardedTensor<B, Float>;
    type IntTensorPrimitive = ShardedTensor<B, Int>;
    type BoolTensorPrimitive = ShardedTensor<B, Bool>;
    type QuantizedTensorPrimitive = B::QuantizedTensorPrimitive;
    type GraphPrimitive = B::GraphPrimitive;
}

impl<B: CollectiveBackend> TransactionOps<Self> for Sharded<B> {}

impl<B: CollectiveBackend> DistributedOps<Self> for Sharded<B> {}

impl<B: CollectiveBackend> Backend for Sharded<B> {
    fn memory_persistent_allocations<Output: Send, Input: Send, Func: Fn(Input) -> Output + Send>(
        device: &Self::Device,
        input: Input,
        func: Func,
    ) -> Output {
        B::memory_persistent_allocations(device, input, func)
    }

    fn memory_cleanup(device: &Self::Device) {
        B::memory_cleanup(device);
    }

    fn name(device: &Self::Device) -> String {
        format!("sharded<{}>", B::name(device))
    }

    /// Starts the random draws of the calling thread, and of threads that have not called this. Every rank must call it
    /// with the same seed, and draw in the same order: then all placements of a random tensor have the same elements.
    /// Without a call the seed is 0.
    fn seed(device: &Self::Device, seed: u64) {
        random::seed(seed);
        B::seed(device, seed);
    }

    fn sync(device: &Self::Device) -> Result<(), ExecutionError> {
        B::sync(device)
    }

    fn flush(device: &Self::Device) -> Result<(), ExecutionError> {
        B::flush(device)
    }

    fn supports_dtype(device: &Self::Device, dtype: DType) -> bool {
        B::supports_dtype(device, dtype)
    }

    fn dtype_usage(device: &Self::Device, dtype: DType) -> DTypeUsageSet {
        B::dtype_usage(device, dtype)
    }

    fn device_count(type_id: u16) -> usize {
        B::device_count(type_id)
    }
}

/// Collectives over groups of any kind, on whole tensors.
impl<B: CollectiveBackend> CollectiveBackend for Sharded<B> {
    const HAS_DEVICE_MEMORY: bool = B::HAS_DEVICE_MEMORY;

    fn tensor_engine(device: &B::Device, group: &ProcessGroup) -> &'static str {
        B::tensor_engine(device, group)
    }

    #[track_caller]
    fn collective(
        tensor: FloatTensor<Self>,
        call: TensorCall,
        mode: CallMode,
        group: &ProcessGroup,
    ) -> PendingTensor<Self> {
        B::collective(gather(tensor), call, mode, group).map(ShardedTensor::whole)
    }
}
