//! [`device`](device()): a device of burn's whose tensors are placed.

use std::marker::PhantomData;
use std::sync::Arc;

use burn::backend::{DispatchKindConversion, DispatchTensor};
use burn::tensor::{Device, Shape};
use burn_backend::TensorMetadata;
use burn_ir::HandleKind;
use burn_ndarray::{NdArrayDevice, put, take};
use cubecl_kernels::operation::parts::{PartCall, serve};

use super::any_tensor::AnyTensor;
use super::gradients::place_like;
use super::kernels::{Devices, inner, outer, run_on_parts};
use super::kind::Float;
use super::movement::gather_ahead::{GatherOrder, Parameter, Pass, gathering_ahead, name};
use super::movement::in_flight::{InFlight, is_one_collective};
use super::movement::redistribute::{gather, local_of_whole, local_part, placed, redistribute};
use super::placement::Placements;
use super::slot::{KeptParameter, Placing, SlotTensor, StartedPart, in_dispatch, of_slot, register};
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
pub fn device<B: CollectiveBackend>(inner: B::Device) -> Device
where
    DispatchTensor: DispatchKindConversion<B>,
{
    let device = NdArrayDevice::serve::<Sharded<B>>(inner);
    let inside = Inside::<B> {
        device,
        _backend: PhantomData,
    };
    register(device, Arc::new(inside));
    serve(&Devices);
    Device::new(device)
}

/// The backend inside a device.
struct Inside<B> {
    device: NdArrayDevice,
    _backend: PhantomData<fn() -> B>,
}

/// Puts the tensor that a function makes of one of any kind in its place.
macro_rules! changed {
    ($inside:ident, $tensor:expr, $name:ident => $value:expr) => {{
        let changed = match take::<Sharded<B>>($tensor) {
            HandleKind::Float($name) => HandleKind::Float($value),
            HandleKind::Int($name) => HandleKind::Int($value),
            HandleKind::Bool($name) => HandleKind::Bool($value),
            HandleKind::Quantized(_) => unreachable!("a mesh's tensors are not quantized: QTensorOps refuses"),
        };
        put::<Sharded<B>>(changed, &$inside.device)
    }};
}

impl<B: CollectiveBackend> Inside<B>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    fn float(tensor: SlotTensor) -> ShardedTensor<B, Float> {
        match take::<Sharded<B>>(tensor) {
            HandleKind::Float(tensor) => tensor,
            other => unreachable!(
                "parameters and gradients are floats, got a tensor of kind {}",
                other.name()
            ),
        }
    }

    fn put(&self, tensor: ShardedTensor<B, Float>) -> SlotTensor {
        put::<Sharded<B>>(HandleKind::Float(tensor), &self.device)
    }
}

impl<B: CollectiveBackend> Placing for Inside<B>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    fn look(&self, tensor: SlotTensor) -> Box<dyn AnyTensor> {
        match take::<Sharded<B>>(tensor) {
            HandleKind::Float(tensor) => Box::new(tensor),
            HandleKind::Int(tensor) => Box::new(tensor),
            HandleKind::Bool(tensor) => Box::new(tensor),
            HandleKind::Quantized(_) => unreachable!("a mesh's tensors are not quantized: QTensorOps refuses"),
        }
    }

    fn place(&self, tensor: SlotTensor, mesh: &Mesh, places: Placements) -> SlotTensor {
        changed!(self, tensor, tensor => placed(tensor, mesh, places))
    }

    fn with_part(&self, part: SlotTensor, shape: Shape, mesh: &Mesh, places: Placements) -> SlotTensor {
        changed!(self, part, part => ShardedTensor::placed(local_of_whole(part), shape, Some(mesh.clone()), places))
    }

    fn whole(&self, tensor: SlotTensor) -> SlotTensor {
        changed!(self, tensor, tensor => ShardedTensor::whole(gather(tensor)))
    }

    fn part(&self, tensor: SlotTensor, mesh: &Mesh, places: &Placements) -> DispatchTensor {
        outer::<B>(redistribute(Self::float(tensor), mesh, places))
    }

    fn start_part(&self, tensor: SlotTensor, mesh: &Mesh, places: &Placements) -> StartedPart {
        let tensor = Self::float(tensor);
        let (from, shape) = (tensor.places(), tensor.shape());
        if !is_one_collective(mesh, &from, places) {
            return StartedPart::Here(outer::<B>(redistribute(tensor, mesh, places)));
        }
        let started = InFlight::<B>::start(local_part(tensor), mesh, &shape, &from, places);
        StartedPart::InFlight(Box::new(move || outer::<B>(started.wait())))
    }

    fn of_part(&self, part: DispatchTensor, shape: Shape, mesh: &Mesh, places: Placements) -> SlotTensor {
        self.put(ShardedTensor::placed(
            inner::<B>(part),
            shape,
            Some(mesh.clone()),
            places,
        ))
    }

    fn place_like(&self, gradients: Vec<(SlotTensor, SlotTensor)>) -> Vec<SlotTensor> {
        let pairs = gradients.into_iter();
        let pairs = pairs.map(|(gradient, parameter)| (Self::float(gradient), Self::float(parameter)));
        let placed = place_like::<B>(pairs.collect());
        placed.into_iter().map(|gradient| self.put(gradient)).collect()
    }

    fn run_on_parts(&self, call: PartCall<'_>) -> Vec<DispatchTensor> {
        let PartCall {
            name,
            rule,
            inputs,
            run,
        } = call;
        let inputs = inputs.into_iter().map(|input| take::<Sharded<B>>(of_slot(input)));
        let results = run_on_parts::<B>(name, rule, inputs.collect(), run).into_iter();
        results.map(|result| in_dispatch(self.put(result))).collect()
    }

    fn gathering_ahead(
        &self,
        pass: Pass,
        mesh: &Mesh,
        parameters: Vec<KeptParameter>,
        order: &mut GatherOrder,
        run: &mut dyn FnMut(),
    ) {
        let parameters = parameters.into_iter();
        let parameters = parameters.map(|KeptParameter { shape, places, part }| Parameter::<B> {
            shape,
            places,
            part: Box::new(move || inner::<B>(part())),
        });
        gathering_ahead(pass, mesh, parameters.collect(), order, run);
    }

    fn name(&self, pass: Pass, tensor: SlotTensor, number: usize) {
        name::<B>(pass, self.look(tensor).id(), number);
    }
}
