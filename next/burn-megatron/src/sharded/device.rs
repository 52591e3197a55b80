//! [`device`](device()): a device of burn's whose tensors are placed, and what is done to them apart from burn's
//! operations.

use std::marker::PhantomData;
use std::sync::Arc;

use burn::tensor::kind::Autodiff;
use burn::tensor::{BackendPrimitive, Device, Tensor};
use burn_ir::HandleKind;
use burn_ndarray::{NdArray, NdArrayDevice, RouterTensor, SlotClient};
use parking_lot::RwLock;

use super::gradients::place_like;
use super::movement::redistribute::gather;
use super::parallelize::placed;
use super::placement::Placements;
use super::{Mesh, Sharded, ShardedTensor};
use crate::collectives::CollectiveBackend;

// In the place of this package, burn's own has no such name: add the patch of the README to Cargo.toml.
const _: &str = burn_ndarray::OPEN_SLOT;

/// A tensor as burn's dispatch has it.
pub(super) type SlotTensor = RouterTensor<SlotClient>;

/// A tensor that is on no device of [`device`](device()).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a tensor on {device} cannot be placed on a mesh: make the model and its inputs on a device of sharded::device")]
pub struct OtherDevice {
    /// The tensor's device.
    pub device: String,
}

/// Returns a new device of burn's whose tensors are those of [`Sharded<B>`](Sharded) on a device of the backend.
///
/// A model that is made on it is whole on every rank until [`parallelize`](super::parallelize()) places it. Every rank
/// makes its own, and seeds it alike.
///
/// # Example
/// ```
/// use burn::nn::LinearConfig;
/// use burn::tensor::Tensor;
/// use burn_flex::{Flex, FlexDevice};
/// use burn_megatron::sharded::{Mesh, Plan, backward, device, parallelize};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mesh = Mesh::new([])?; // of one rank
/// let device = device::<Flex>(FlexDevice).autodiff();
/// let layer = parallelize(LinearConfig::new(3, 2).init(&device), &Plan::new(), &mesh)?;
/// let loss = layer.forward(Tensor::<2>::ones([4, 3], &device)).mean();
/// let (_loss, gradients) = backward(loss, &layer)?;
/// assert_eq!(gradients.len(), 2);
/// # Ok(())
/// # }
/// ```
pub fn device<B: CollectiveBackend>(inner: B::Device) -> Device {
    let device = NdArrayDevice::serve::<Sharded<B>>(inner);
    DEVICES.write().push((device, Arc::new(Inside::<B>(PhantomData))));
    Device::new(device)
}

/// The devices that this process has made, with what knows their backends.
static DEVICES: RwLock<Vec<(NdArrayDevice, Arc<dyn Placing>)>> = RwLock::new(Vec::new());

/// What is done to tensors of a device apart from burn's operations, whatever backend is inside.
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

struct Inside<B>(PhantomData<fn() -> B>);

/// Evaluates an expression for a tensor of any kind.
macro_rules! any_kind {
    ($tensor:expr, $name:ident => $value:expr) => {
        match NdArrayDevice::take::<Sharded<B>>($tensor) {
            HandleKind::Float($name) => $value,
            HandleKind::Int($name) => $value,
            HandleKind::Bool($name) => $value,
            HandleKind::Quantized(_) => unreachable!("a mesh's tensors are not quantized: QTensorOps refuses"),
        }
    };
}

/// Puts the tensor that a function makes of one of any kind in its place.
macro_rules! changed {
    ($tensor:expr, $name:ident => $value:expr) => {{
        let tensor = $tensor;
        let device = burn_backend::TensorMetadata::device(&tensor);
        device.put::<Sharded<B>>(match NdArrayDevice::take::<Sharded<B>>(tensor) {
            HandleKind::Float($name) => HandleKind::Float($value),
            HandleKind::Int($name) => HandleKind::Int($value),
            HandleKind::Bool($name) => HandleKind::Bool($value),
            HandleKind::Quantized(_) => unreachable!("a mesh's tensors are not quantized: QTensorOps refuses"),
        })
    }};
}

impl<B: CollectiveBackend> Placing for Inside<B> {
    fn places(&self, tensor: SlotTensor) -> (Option<Mesh>, Placements) {
        any_kind!(tensor, tensor => (tensor.mesh().cloned(), tensor.places()))
    }

    fn place(&self, tensor: SlotTensor, mesh: &Mesh, places: Placements) -> SlotTensor {
        changed!(tensor, tensor => placed(tensor, mesh, places))
    }

    fn whole(&self, tensor: SlotTensor) -> SlotTensor {
        changed!(tensor, tensor => ShardedTensor::whole(gather(tensor)))
    }

    fn describe(&self, tensor: SlotTensor) -> String {
        any_kind!(tensor, tensor => format!("{tensor:?}"))
    }

    fn place_like(&self, gradients: Vec<(SlotTensor, SlotTensor)>) -> Vec<SlotTensor> {
        let float = |tensor: SlotTensor| match NdArrayDevice::take::<Sharded<B>>(tensor) {
            HandleKind::Float(tensor) => tensor,
            other => unreachable!("parameters with gradients are floats, got a tensor of kind {}", other.name()),
        };
        let Some(device) = gradients.first().map(|(gradient, _)| burn_backend::TensorMetadata::device(gradient)) else {
            return Vec::new();
        };
        let pairs = gradients.into_iter();
        let pairs = pairs.map(|(gradient, parameter)| (float(gradient), float(parameter)));
        let placed = place_like::<B>(pairs.collect());
        placed.into_iter().map(|gradient| device.put::<Sharded<B>>(HandleKind::Float(gradient))).collect()
    }
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
    let own = burn_backend::TensorMetadata::device(&tensor);
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
