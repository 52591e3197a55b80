//! [`Binder`]: a model whose parameters are this rank's parts, and whose gradients go to the buckets.

use std::sync::{Arc, Mutex, PoisonError};

use burn::module::{ModuleMapper, Param};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, Tensor, TensorPrimitive};

use super::local_parameters::{Known, LocalParameter};
use super::training_backend::PlacedTrainingBackend;
use crate::autodiff::GradientSink;
use crate::collectives::CollectiveBackend;
use crate::sharded::kind::Float;
use crate::sharded::mesh::Mesh;
use crate::sharded::placement::Placements;
use crate::sharded::redistribute::redistribute;
use crate::sharded::traffic::{Phase, in_phase, set_operation};
use crate::sharded::{Sharded, ShardedTensor};

/// Takes the values from the trained parameters: they are in the buckets' module.
pub(super) struct Emptier<'a> {
    pub(super) known: &'a Known,
}

impl<A: PlacedTrainingBackend> ModuleMapper<A> for Emptier<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<A, D>>) -> Param<Tensor<A, D>> {
        let Some(&number) = self.known.numbers.get(&param.id) else {
            return param;
        };
        let absent = |_: &A::Device, _| unreachable!("every pass gives the model its parameters");
        let shape = Shape::from(self.known.shapes[number].clone());
        Param::uninitialized(param.id, absent, param.lazy_device(), true, shape)
    }
}

/// Gives each trained parameter its value, made of this rank's part when it is first read.
pub(super) struct Binder<'a, A: PlacedTrainingBackend> {
    pub(super) known: &'a Known,
    pub(super) mesh: &'a Mesh,
    pub(super) anchors: &'a [FloatTensor<A>],
    pub(super) parts: &'a [LocalParameter<A::LocalTraining>],
    pub(super) sink: Option<Arc<ToLocal<A::Local>>>,
}

impl<A: PlacedTrainingBackend> ModuleMapper<A> for Binder<'_, A> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<A, D>>) -> Param<Tensor<A, D>> {
        let Some(&number) = self.known.numbers.get(&param.id) else {
            return param;
        };
        let (part, anchor, sink) = (
            self.parts[number].clone(),
            self.anchors[number].clone(),
            self.sink.clone(),
        );
        let (mesh, places) = (self.mesh.clone(), self.known.places[number]);
        let shape = Shape::from(self.known.shapes[number].clone());
        let logical = shape.clone();
        // Clones of a parameter, of which burn makes each by itself, share the hook: a graph has one gradient of it.
        let shared = Arc::new(Mutex::new(None));
        let make = move |_: &A::Device, requires_grad| {
            let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
            let make = || {
                let local = A::LocalTraining::inner(part.value());
                let placed = ShardedTensor::placed(local, logical.clone(), Some(mesh.clone()), places);
                let leaf = Tensor::<A, D>::from_primitive(TensorPrimitive::Float(A::from_float(placed)));
                let leaf = leaf.set_require_grad(requires_grad);
                match &sink {
                    None => leaf,
                    Some(sink) => {
                        let leaf = leaf.into_primitive().tensor();
                        let hooked = A::hook(leaf, &anchor, sink.clone(), number);
                        Tensor::from_primitive(TensorPrimitive::Float(hooked))
                    }
                }
            };
            shared.get_or_insert_with(make).clone()
        };
        Param::uninitialized(param.id, make, param.lazy_device(), true, shape)
    }
}

/// Brings gradients to where the buckets want them: this rank's part or term.
#[derive(Debug)]
pub(super) struct ToLocal<B: CollectiveBackend> {
    pub(super) mesh: Mesh,
    /// By number.
    pub(super) places: Vec<Placements>,
    pub(super) sink: Arc<dyn GradientSink<B>>,
}

impl<B: CollectiveBackend> GradientSink<Sharded<B>> for ToLocal<B> {
    fn receive(&self, index: usize, gradient: ShardedTensor<B, Float>) {
        let local = in_phase(Phase::Gradients, || {
            set_operation("place_gradients");
            redistribute(gradient, &self.mesh, &self.places[index])
        });
        self.sink.receive(index, local);
    }
}
