//! [`Binder`]: a model whose parameters are this rank's parts, and whose gradients go to the buckets.

use std::sync::Arc;

use burn::module::{ModuleMapper, Param};
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, Tensor, TensorMetadata, TensorPrimitive};
use parking_lot::Mutex;

use super::local_parameters::{Known, LocalParameter};
use super::training_backend::PlacedTrainingBackend;
use crate::autodiff::GradientSink;
use crate::collectives::CollectiveBackend;
use crate::data_parallel::map_once;
use crate::sharded::kind::Float;
use crate::sharded::mesh::Mesh;
use crate::sharded::movement::gather_ahead::{self, Pass};
use crate::sharded::movement::in_flight::{InFlight, is_one_collective};
use crate::sharded::movement::redistribute::{local_part, redistribute};
use crate::sharded::parallelize::placed as place;
use crate::sharded::placement::Placements;
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
        let (shape, device) = (Shape::from(self.known.shapes[number].clone()), param.lazy_device());
        let (id, _, mapper) = param.consume();
        // What `Binder` replaces, before anyone reads it.
        let nothing = |device: &A::Device, _| Tensor::zeros([0; D], device);
        let (loads, saves) = (mapper.clone(), mapper);
        Param::uninitialized(id, nothing, device, true, shape)
            .load_mapper(move |tensor| loads.on_load(tensor))
            .save_mapper(move |tensor| saves.on_save(tensor))
    }
}

/// Gives each trained parameter its value, made of this rank's part when it is first read.
pub(super) struct Binder<'a, A: PlacedTrainingBackend> {
    pub(super) known: &'a Known,
    pub(super) mesh: &'a Mesh,
    pub(super) anchors: &'a [FloatTensor<A>],
    pub(super) parts: &'a [LocalParameter<A::LocalTraining>],
    pub(super) sink: Option<Arc<ToLocal<A::Local>>>,
    /// The pass that the values are for; `None` if they are for no training.
    pub(super) pass: Option<Pass>,
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
        let pass = self.pass;
        let (mesh, kept, places) = (
            self.mesh.clone(),
            self.known.kept_places[number],
            self.known.places[number],
        );
        let shape = Shape::from(self.known.shapes[number].clone());
        map_once(param, move |_nothing| {
            let local = A::LocalTraining::inner(part.value());
            let mut placed = ShardedTensor::placed(local, shape.clone(), Some(mesh.clone()), kept);
            if kept != places {
                placed = place(placed, &mesh, places);
            }
            if let Some(pass) = pass {
                gather_ahead::name::<A::Local>(pass, placed.id(), number);
            }
            let leaf = Tensor::<A, D>::from_primitive(TensorPrimitive::Float(A::from_float(placed))).require_grad();
            match &sink {
                None => leaf,
                Some(sink) => {
                    let leaf = leaf.into_primitive().tensor();
                    let hooked = A::hook(leaf, &anchor, sink.clone(), number, None);
                    Tensor::from_primitive(TensorPrimitive::Float(hooked))
                }
            }
        })
    }
}

/// Brings gradients to where the buckets want them: this rank's part or term. One that is scattered travels while the
/// next is computed.
pub(super) struct ToLocal<B: CollectiveBackend> {
    pub(super) mesh: Mesh,
    /// By number.
    pub(super) places: Vec<Placements>,
    pub(super) sink: Arc<dyn GradientSink<B>>,
    /// The last gradient, by number, if it is on its way.
    pub(super) last: Mutex<Option<(usize, InFlight<B>)>>,
}

impl<B: CollectiveBackend> ToLocal<B> {
    /// Passes on the last gradient.
    #[track_caller]
    pub(super) fn finish(&self) {
        let last = self.last.lock().take();
        if let Some((index, scattered)) = last {
            self.sink.receive(index, scattered.wait());
        }
    }
}

impl<B: CollectiveBackend> GradientSink<Sharded<B>> for ToLocal<B> {
    fn receive(&self, index: usize, gradient: ShardedTensor<B, Float>) {
        in_phase(Phase::Gradients, || {
            set_operation("place_gradients");
            let target = self.places[index];
            let (from, shape) = (gradient.places(), gradient.shape());
            if !is_one_collective(&self.mesh, &from, &target) {
                self.sink.receive(index, redistribute(gradient, &self.mesh, &target));
                return;
            }
            let started = InFlight::start(local_part(gradient), &self.mesh, &shape, &from, &target);
            self.finish();
            *self.last.lock() = Some((index, started));
        });
    }
}

impl<B: CollectiveBackend> std::fmt::Debug for ToLocal<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToLocal")
            .field("places", &self.places)
            .field("sink", &self.sink)
            .finish_non_exhaustive()
    }
}
