//! burn's tensors as the open slot has them, and ways to place them, which are none of burn's operations.

use std::sync::Arc;

use burn::tensor::kind::Autodiff;
use burn::tensor::{BackendPrimitive, Tensor};
use burn_backend::TensorMetadata;
use burn_ndarray::{NdArray, NdArrayDevice, RouterTensor, SlotClient};
use parking_lot::RwLock;

use super::mesh::Mesh;
use super::placement::Placements;

// burn's own crate of this name has no such constant: the workspace needs the patch of the README.
const _: &str = burn_ndarray::OPEN_SLOT;

/// A tensor as burn's dispatch has it.
pub(super) type SlotTensor = RouterTensor<SlotClient>;

/// A tensor that is on no device of [`device`](super::device()).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a tensor on {device} cannot be placed on a mesh: make the model and its inputs on a device of sharded::device"
)]
pub struct OtherDevice {
    /// The tensor's device.
    pub device: String,
}

/// The devices that this process has made, with what knows their backends.
static DEVICES: RwLock<Vec<(NdArrayDevice, Arc<dyn Placing>)>> = RwLock::new(Vec::new());

/// Ways to place tensors of a device, whatever backend is inside: none of them is an operation of burn's.
pub(super) trait Placing: Send + Sync {
    /// Where the tensor is.
    fn places(&self, tensor: SlotTensor) -> (Option<Mesh>, Placements);
    /// The tensor under another placement.
    fn place(&self, tensor: SlotTensor, mesh: &Mesh, places: Placements) -> SlotTensor;
    /// The tensor, of which every rank has the whole.
    fn whole(&self, tensor: SlotTensor) -> SlotTensor;
    /// The tensor's shape, type and placement.
    fn describe(&self, tensor: SlotTensor) -> String;
    /// Gradients, each placed as its parameter, the second of a pair.
    fn place_like(&self, gradients: Vec<(SlotTensor, SlotTensor)>) -> Vec<SlotTensor>;
}

/// Keeps how a device's backend places tensors.
pub(super) fn register(device: NdArrayDevice, placing: Arc<dyn Placing>) {
    DEVICES.write().push((device, placing));
}

/// Kinds of burn's tensors that the slot holds.
pub trait SlotKind: Autodiff + BackendPrimitive<NdArray, Primitive = SlotTensor> {}

impl<K: Autodiff + BackendPrimitive<NdArray, Primitive = SlotTensor>> SlotKind for K {}

/// The tensor without its graph, as the slot has it, and what knows the backend of its device.
pub(super) fn opened<const D: usize, K: SlotKind>(
    tensor: Tensor<D, K>,
) -> Result<(SlotTensor, Arc<dyn Placing>), OtherDevice> {
    let device = tensor.device();
    let other = || OtherDevice {
        device: format!("{device:?}"),
    };
    let tensor = tensor.inner().try_into_primitive::<NdArray>().map_err(|_| other())?;
    let own = TensorMetadata::device(&tensor);
    let devices = DEVICES.read();
    let (_, placing) = devices.iter().find(|(device, _)| *device == own).ok_or_else(other)?;
    Ok((tensor, placing.clone()))
}

/// The tensor as burn has it, with the setting of the graph of another one.
pub(super) fn closed<const D: usize, K: SlotKind>(tensor: SlotTensor, like: &Tensor<D, K>) -> Tensor<D, K> {
    let tensor = Tensor::<D, K>::from_primitive::<NdArray>(tensor);
    match like.gradient_checkpointing_strategy() {
        Some(strategy) => tensor.autodiff().with_gradient_checkpointing_strategy(strategy),
        None => tensor,
    }
}

/// # Panics
/// With the error.
#[track_caller]
pub(super) fn or_panic<T>(result: Result<T, OtherDevice>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}
