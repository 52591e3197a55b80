//! [`device`](device()): a device of burn's whose tensors are placed.

use std::marker::PhantomData;
use std::sync::Arc;

use burn::tensor::Device;
use burn_backend::TensorMetadata;
use burn_ir::HandleKind;
use burn_ndarray::{NdArrayDevice, put, take};

use super::gradients::place_like;
use super::movement::redistribute::{gather, placed};
use super::placement::Placements;
use super::slot::{Placing, SlotTensor, register};
use super::{Mesh, Sharded, ShardedTensor};
use crate::collectives::CollectiveBackend;

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
    register(device, Arc::new(Inside::<B>(PhantomData)));
    Device::new(device)
}

struct Inside<B>(PhantomData<fn() -> B>);

/// Evaluates an expression for a tensor of any kind.
macro_rules! any_kind {
    ($tensor:expr, $name:ident => $value:expr) => {
        match take::<Sharded<B>>($tensor) {
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
        let device = tensor.device();
        let changed = match take::<Sharded<B>>(tensor) {
            HandleKind::Float($name) => HandleKind::Float($value),
            HandleKind::Int($name) => HandleKind::Int($value),
            HandleKind::Bool($name) => HandleKind::Bool($value),
            HandleKind::Quantized(_) => unreachable!("a mesh's tensors are not quantized: QTensorOps refuses"),
        };
        put::<Sharded<B>>(changed, &device)
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
        let float = |tensor: SlotTensor| match take::<Sharded<B>>(tensor) {
            HandleKind::Float(tensor) => tensor,
            other => unreachable!(
                "parameters with gradients are floats, got a tensor of kind {}",
                other.name()
            ),
        };
        let Some(device) = gradients.first().map(|(gradient, _)| gradient.device()) else {
            return Vec::new();
        };
        let pairs = gradients.into_iter();
        let pairs = pairs.map(|(gradient, parameter)| (float(gradient), float(parameter)));
        let placed = place_like::<B>(pairs.collect());
        placed
            .into_iter()
            .map(|gradient| put::<Sharded<B>>(HandleKind::Float(gradient), &device))
            .collect()
    }
}
