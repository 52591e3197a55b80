//! [`Binder`]: a model whose parameters are this rank's parts, and whose gradients go to the buckets.

use std::sync::Arc;

use burn::backend::DispatchTensor;
use burn::module::{ModuleMapper, Param};
use burn::tensor::{Shape, Tensor};
use parking_lot::Mutex;

use super::local_parameters::{Known, LocalParameter};
use crate::autodiff::{GradientSink, hook};
use crate::sharded::mesh::Mesh;
use crate::sharded::movement::gather_ahead::Pass;
use crate::sharded::placement::Placements;
use crate::sharded::slot::{Placing, StartedPart, WaitForPart, closed, opened_dispatch, or_panic};
use crate::sharded::traffic::{Phase, in_phase, set_operation};

/// Takes the values from the trained parameters: they are in the buckets' module.
pub(super) struct Emptier<'a> {
    pub(super) known: &'a Known,
}

impl ModuleMapper for Emptier<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !self.known.numbers.contains_key(&param.id) {
            return param;
        }
        // What `Binder` replaces, before anyone reads it.
        param.map(|tensor| Tensor::zeros([0; D], &tensor.device()).require_grad())
    }
}

/// Gives each trained parameter its value, made of this rank's part when it is first read.
pub(super) struct Binder<'a> {
    pub(super) known: &'a Known,
    pub(super) mesh: &'a Mesh,
    pub(super) placing: &'a Arc<dyn Placing>,
    pub(super) anchors: &'a [Tensor<1>],
    pub(super) parts: &'a [LocalParameter],
    pub(super) sink: Option<Arc<ToLocal>>,
    /// The pass that the values are for; `None` if they are for no training.
    pub(super) pass: Option<Pass>,
}

impl ModuleMapper for Binder<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(&number) = self.known.numbers.get(&param.id) else {
            return param;
        };
        let (part, anchor, sink) = (
            self.parts[number].clone(),
            self.anchors[number].clone(),
            self.sink.clone(),
        );
        let (mesh, placing, pass) = (self.mesh.clone(), self.placing.clone(), self.pass);
        let (kept, places) = (self.known.kept_places[number], self.known.places[number]);
        let shape = Shape::from(self.known.shapes[number].clone());
        let (id, nothing, mapper) = param.consume();
        let device = nothing.device();
        let logical = shape.clone();
        let value = move |_: &_, _| {
            let mut placed = placing.of_part(part.value(), logical, &mesh, kept);
            if kept != places {
                placed = placing.place(placed, &mesh, places);
            }
            if let Some(pass) = pass {
                placing.name(pass, placed.clone(), number);
            }
            let leaf = closed(placed, &nothing).require_grad();
            match sink {
                None => leaf,
                Some(sink) => hook(leaf, &anchor, sink, number, None),
            }
        };
        let (loads, saves) = (mapper.clone(), mapper);
        Param::uninitialized(id, value, device, true, shape)
            .load_mapper(move |tensor| loads.on_load(tensor))
            .save_mapper(move |tensor| saves.on_save(tensor))
    }
}

/// Brings gradients to where the buckets want them: this rank's part or term. One that is scattered travels while the
/// next is computed.
pub(super) struct ToLocal {
    pub(super) mesh: Mesh,
    /// By number.
    pub(super) places: Vec<Placements>,
    pub(super) sink: Arc<dyn GradientSink>,
    /// The last gradient, by number, if it is on its way.
    pub(super) last: Mutex<Option<(usize, WaitForPart)>>,
}

impl ToLocal {
    /// Passes on the last gradient.
    #[track_caller]
    pub(super) fn finish(&self) {
        let last = self.last.lock().take();
        if let Some((index, wait)) = last {
            self.sink.receive(index, wait());
        }
    }
}

impl GradientSink for ToLocal {
    fn receive(&self, index: usize, gradient: DispatchTensor) {
        in_phase(Phase::Gradients, || {
            set_operation("place_gradients");
            let (gradient, placing) = or_panic(opened_dispatch(gradient));
            match placing.start_part(gradient, &self.mesh, &self.places[index]) {
                StartedPart::Here(part) => self.sink.receive(index, part),
                StartedPart::InFlight(wait) => {
                    self.finish();
                    *self.last.lock() = Some((index, wait));
                }
            }
        });
    }
}

impl std::fmt::Debug for ToLocal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ToLocal")
            .field("places", &self.places)
            .field("sink", &self.sink)
            .finish_non_exhaustive()
    }
}
