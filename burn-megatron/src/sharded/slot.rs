//! burn's tensors as the open slot has them, and ways to place them, which are none of burn's operations.

use std::sync::Arc;

use burn::backend::{BackendTensor, DispatchDevice, DispatchKindConversion, DispatchTensor, DispatchTensorKind};
use burn::tensor::kind::Autodiff;
use burn::tensor::{BackendPrimitive, Bool, Device, Float, Int, Shape, Tensor};
use burn_backend::TensorMetadata;
use burn_ndarray::{NdArray, NdArrayDevice, RouterTensor, SlotClient};
use cubecl_kernels::operation::parts::PartCall;
use parking_lot::RwLock;

use super::any_tensor::AnyTensor;
use super::mesh::Mesh;
use super::movement::gather_ahead::{GatherOrder, Pass};
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

/// Ways to place tensors of a device, whatever backend is inside: none of them is an operation of burn's. Parts are
/// tensors of the backend inside, on its own device.
pub(super) trait Placing: Send + Sync {
    /// The tensor, to be looked at.
    fn look(&self, tensor: SlotTensor) -> Box<dyn AnyTensor>;
    /// The tensor under another placement.
    fn place(&self, tensor: SlotTensor, mesh: &Mesh, places: Placements) -> SlotTensor;
    /// The tensor of a logical shape, of which this rank has what every rank has of another.
    fn with_part(&self, part: SlotTensor, shape: Shape, mesh: &Mesh, places: Placements) -> SlotTensor;
    /// The tensor, of which every rank has the whole.
    fn whole(&self, tensor: SlotTensor) -> SlotTensor;
    /// This rank's part of a float tensor under a placement.
    fn part(&self, tensor: SlotTensor, mesh: &Mesh, places: &Placements) -> DispatchTensor;
    /// As [`part`](Self::part), started if it takes one collective.
    fn start_part(&self, tensor: SlotTensor, mesh: &Mesh, places: &Placements) -> StartedPart;
    /// The float tensor of a logical shape, of which this rank has a part.
    fn of_part(&self, part: DispatchTensor, shape: Shape, mesh: &Mesh, places: Placements) -> SlotTensor;
    /// Gradients, each placed as its parameter, the second of a pair.
    fn place_like(&self, gradients: Vec<(SlotTensor, SlotTensor)>) -> Vec<SlotTensor>;
    /// Runs a fused operation, this rank on its parts.
    fn run_on_parts(&self, call: PartCall<'_>) -> Vec<DispatchTensor>;
    /// Runs a pass whose parameters are gathered ahead in this order, and sets it to that of the pass.
    fn gathering_ahead(
        &self,
        pass: Pass,
        mesh: &Mesh,
        parameters: Vec<KeptParameter>,
        order: &mut GatherOrder,
        run: &mut dyn FnMut(),
    );
    /// Says that a tensor is a parameter of the model whose pass this is.
    fn name(&self, pass: Pass, tensor: SlotTensor, number: usize);
}

/// This rank's part of a float tensor, there or on its way.
pub(super) enum StartedPart {
    Here(DispatchTensor),
    InFlight(WaitForPart),
}

/// Waits for a part that is on its way.
pub(super) type WaitForPart = Box<dyn FnOnce() -> DispatchTensor + Send>;

/// This rank's part of a parameter, as [`Placing::gathering_ahead`] takes it.
pub(super) struct KeptParameter {
    pub(super) shape: Shape,
    pub(super) places: Placements,
    pub(super) part: Box<dyn Fn() -> DispatchTensor>,
}

/// Keeps how a device's backend places tensors.
pub(super) fn register(device: NdArrayDevice, placing: Arc<dyn Placing>) {
    DEVICES.write().push((device, placing));
}

fn registered(own: &NdArrayDevice) -> Option<Arc<dyn Placing>> {
    let devices = DEVICES.read();
    let (_, placing) = devices.iter().find(|(device, _)| device == own)?;
    Some(placing.clone())
}

/// Kinds of burn's tensors that the slot holds: floats, integers and booleans.
pub trait SlotKind: Autodiff + BackendPrimitive<NdArray, Primitive = SlotTensor> {
    /// Returns whether a tensor belongs to a graph.
    fn is_tracked<const D: usize>(_tensor: &Tensor<D, Self>) -> bool {
        false
    }
}

impl SlotKind for Float {
    fn is_tracked<const D: usize>(tensor: &Tensor<D>) -> bool {
        tensor.is_tracked()
    }
}

impl SlotKind for Int {}

impl SlotKind for Bool {}

/// Returns the ways to place a device's tensors.
pub(super) fn placing_of(device: &Device) -> Result<Arc<dyn Placing>, OtherDevice> {
    let found = match device.clone().inner().as_dispatch() {
        DispatchDevice::NdArray(own) => registered(own),
        _ => None,
    };
    found.ok_or_else(|| OtherDevice {
        device: format!("{device:?}"),
    })
}

/// The tensor without its graph, as the slot has it, and what knows the backend of its device.
pub(super) fn opened<const D: usize, K: SlotKind>(
    tensor: Tensor<D, K>,
) -> Result<(SlotTensor, Arc<dyn Placing>), OtherDevice> {
    let placing = placing_of(&tensor.device())?;
    Ok((of_slot(tensor.inner().into_dispatch()), placing))
}

/// As [`opened`], of a tensor of no graph.
pub(super) fn opened_dispatch(tensor: DispatchTensor) -> Result<(SlotTensor, Arc<dyn Placing>), OtherDevice> {
    let placing = placing_of(&Device::new(tensor.device()))?;
    Ok((of_slot(tensor), placing))
}

/// The tensor on a device of the slot.
pub(super) fn of_slot(tensor: DispatchTensor) -> SlotTensor {
    match tensor.kind {
        DispatchTensorKind::NdArray(
            BackendTensor::Float(tensor) | BackendTensor::Int(tensor) | BackendTensor::Bool(tensor),
        ) => tensor,
        other => unreachable!("a tensor of the slot's device is neither quantized nor of a graph, got {other:?}"),
    }
}

/// The float tensor on a device of the slot, as burn's dispatch has it.
pub(super) fn in_dispatch(tensor: SlotTensor) -> DispatchTensor {
    DispatchTensor::from_backend(BackendTensor::<NdArray>::Float(tensor))
}

/// The tensor as burn has it, with the setting of the graph of another one.
pub(super) fn closed<const D: usize, K: SlotKind>(tensor: SlotTensor, like: &Tensor<D, K>) -> Tensor<D, K> {
    let tensor = Tensor::<D, K>::from_primitive::<NdArray>(tensor);
    match like.gradient_checkpointing_strategy() {
        Some(strategy) => tensor.autodiff().with_gradient_checkpointing_strategy(strategy),
        None => tensor,
    }
}

/// The tensor without its graph, to be looked at.
///
/// # Panics
/// When the tensor is on another device than one of [`device`](super::device()).
#[track_caller]
pub(super) fn look<const D: usize, K: SlotKind>(tensor: Tensor<D, K>) -> Box<dyn AnyTensor> {
    let (tensor, placing) = or_panic(opened(tensor));
    placing.look(tensor)
}

/// # Panics
/// With the error.
#[track_caller]
pub(super) fn or_panic<T>(result: Result<T, OtherDevice>) -> T {
    result.unwrap_or_else(|error| panic!("{error}"))
}
