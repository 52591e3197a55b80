//! [`backward`]: a backward pass whose gradients end where their parameters are.

use std::sync::Arc;

use burn::module::{Module, ModuleVisitor, Param, list_param_ids};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn_backend::{Shape, TensorMetadata};
use burn_ndarray::NdArray;

use super::ShardedTensor;
use super::agreement::given;
use super::any_tensor::AnyTensor;
use super::early_scatter::scattering_early;
use super::kind::{Float, Kind};
use super::mesh::Mesh;
use super::movement::redistribute::{along, forget_gathered, local_part, placed, redistribute};
use super::parallelize::whole;
use super::placement::{AxisPlacement, PARTIAL_SUM, Placements, REPLICATED};
use super::slot::{Placing, SlotTensor, look, opened, or_panic};
use super::traffic::{Phase, in_phase, set_operation};
use crate::collectives::{CollectiveBackend, CollectiveError, catch_collective_error, unwrap_or_unwind};

/// Runs the backward pass of a loss, and returns the loss, which every rank then has, and the gradients of the model's
/// parameters, each placed as its parameter is.
///
/// In place of `loss.backward()` and `GradientsParams::from_grads`, which give the same numbers with more
/// communication: here sums over ranks wait until they are whole, and those of small gradients travel together.
///
/// # Communication
/// Collectives of the backward pass; a reduce-scatter or less for each gradient that is cut, during the backward pass
/// where it is large; then, per axis of the mesh, one all-reduce of all that are whole there. In the steps of
/// [`Mesh::with_check_inputs_interval`], one all-gather of 304 bytes per axis.
///
/// # Errors
/// The error of the first collective that failed. When ranks were given different batches, or have different losses.
///
/// # Panics
/// When the loss is on another device than one of [`device`](super::device()).
pub fn backward<M: Module, const D: usize>(
    loss: Tensor<D>,
    model: &M,
) -> Result<(Tensor<D>, GradientsParams), CollectiveError> {
    catch_collective_error(|| {
        let placed = loss.clone().inner();
        let mesh = look(placed.clone()).mesh().cloned();
        let value = whole(placed);
        compare_given(Some(&*look(value.clone())), mesh, model);
        let gradients = scattering_early(model, || unplaced(loss, model));
        (value, placed_gradients(gradients, model))
    })
}

/// Runs the backward pass of a loss, and returns gradients that are not placed yet: those of several micro-batches are
/// added up first, by burn's `GradientsAccumulator`, and then [placed](place_gradients) once. Each rank has terms of
/// whole gradients until then: where memory counts more than communication, add up those of [`backward`].
///
/// # Errors
/// As [`backward`].
pub fn backward_unplaced<M: Module, const D: usize>(
    loss: Tensor<D>,
    model: &M,
) -> Result<GradientsParams, CollectiveError> {
    catch_collective_error(|| unplaced(loss, model))
}

/// Returns gradients of the model's parameters, each placed as its parameter is.
///
/// # Errors
/// As [`backward`].
pub fn place_gradients<M: Module>(gradients: GradientsParams, model: &M) -> Result<GradientsParams, CollectiveError> {
    catch_collective_error(|| {
        compare_given(None, None, model);
        placed_gradients(gradients, model)
    })
}

/// Compares what ranks were given, over the mesh of the loss or of the model.
fn compare_given<M: Module>(loss: Option<&dyn AnyTensor>, mesh: Option<Mesh>, model: &M) {
    struct First(Option<Mesh>);
    impl ModuleVisitor for First {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            if self.0.is_none() {
                self.0 = look(param.base()).mesh().cloned();
            }
        }
    }
    let of_model = || {
        let mut first = First(None);
        model.visit(&mut first);
        first.0.or_else(|| given::mesh_of(&list_param_ids(model)))
    };
    if let Some(mesh) = mesh.or_else(of_model) {
        unwrap_or_unwind(given::compare(loss, &mesh));
    }
}

fn unplaced<M: Module, const D: usize>(loss: Tensor<D>, model: &M) -> GradientsParams {
    let gradients = in_phase(Phase::Backward, || loss.backward());
    forget_gathered();
    GradientsParams::from_grads(gradients, model)
}

fn placed_gradients<M: Module>(gradients: GradientsParams, model: &M) -> GradientsParams {
    in_phase(Phase::Gradients, || {
        set_operation("place_gradients");
        let mut collected = Collected {
            gradients,
            pairs: Vec::new(),
            registers: Vec::new(),
            placing: None,
        };
        model.visit(&mut collected);
        let Collected {
            mut gradients,
            pairs,
            registers,
            placing,
        } = collected;
        if let Some(placing) = placing {
            for (register, gradient) in registers.into_iter().zip(placing.place_like(pairs)) {
                register(&mut gradients, gradient);
            }
        }
        gradients
    })
}

/// The gradients of a model, in the order of its parameters.
struct Collected {
    gradients: GradientsParams,
    /// Each with its parameter.
    pairs: Vec<(SlotTensor, SlotTensor)>,
    registers: Vec<Box<Register>>,
    placing: Option<Arc<dyn Placing>>,
}

type Register = dyn FnOnce(&mut GradientsParams, SlotTensor);

impl ModuleVisitor for Collected {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        let id = param.id;
        let Some(gradient) = self.gradients.remove::<D>(id) else {
            return;
        };
        let (parameter, placing) = or_panic(opened(param.base()));
        let (own, _) = or_panic(opened(gradient));
        self.pairs.push((own, parameter));
        self.placing = Some(placing);
        self.registers.push(Box::new(move |gradients, placed| {
            gradients.register(id, Tensor::<D>::from_primitive::<NdArray>(placed));
        }));
    }
}

/// The gradients, each placed as its parameter, the second of a pair.
pub(super) fn place_like<B: CollectiveBackend>(
    pairs: Vec<(ShardedTensor<B, Float>, ShardedTensor<B, Float>)>,
) -> Vec<ShardedTensor<B, Float>> {
    let entries = pairs.into_iter().map(|(gradient, parameter)| Entry {
        gradient,
        places: parameter.places(),
        parameter_mesh: parameter.mesh().cloned(),
    });
    let mut entries: Vec<Entry<B>> = entries.collect();
    if let Some(mesh) = entries.iter().find_map(Entry::mesh) {
        // First what is cut: of hybrid sharding's replicas, each then sums its part alone.
        for entry in &mut entries {
            let mut places = entry.gradient.places();
            for (place, target) in places.iter_mut().zip(entry.places) {
                if target.cut().is_some() {
                    *place = target;
                }
            }
            entry.bring_to(places, &mesh);
        }
        for axis in 0..mesh.shape().num_axes() {
            reduce_together(&mut entries, &mesh, axis);
        }
        for entry in &mut entries {
            entry.bring_to(entry.places, &mesh);
        }
    }
    entries.into_iter().map(|entry| entry.gradient).collect()
}

/// A gradient on its way.
struct Entry<B: CollectiveBackend> {
    gradient: ShardedTensor<B, Float>,
    /// Where the parameter is.
    places: Placements,
    parameter_mesh: Option<Mesh>,
}

impl<B: CollectiveBackend> Entry<B> {
    fn mesh(&self) -> Option<Mesh> {
        self.gradient.mesh().or(self.parameter_mesh.as_ref()).cloned()
    }

    fn bring_to(&mut self, places: Placements, mesh: &Mesh) {
        if self.gradient.places() != places {
            self.gradient = placed(self.gradient.clone(), mesh, places);
        }
    }
}

/// Makes on one axis, in one all-reduce per element type, all sums that are to be whole there.
fn reduce_together<B: CollectiveBackend>(entries: &mut [Entry<B>], mesh: &Mesh, axis: usize) {
    let is_due = |entry: &Entry<B>| {
        entry.gradient.places()[axis] == PARTIAL_SUM && entry.places[axis] == AxisPlacement::Replicated
    };
    let mut due: Vec<usize> = (0..entries.len()).filter(|&index| is_due(&entries[index])).collect();
    while let Some(&first) = due.first() {
        let dtype = entries[first].gradient.dtype();
        let (same, others): (Vec<usize>, Vec<usize>) = due
            .into_iter()
            .partition(|&index| entries[index].gradient.dtype() == dtype);
        due = others;
        let locals: Vec<_> = same
            .iter()
            .map(|&index| local_part(entries[index].gradient.clone()))
            .collect();
        let shapes: Vec<Shape> = locals.iter().map(TensorMetadata::shape).collect();
        let flat = locals.into_iter().map(|local| {
            let length = local.shape().num_elements();
            B::float_reshape(local, Shape::new([length]))
        });
        let flat = <Float as Kind<B>>::cat(flat.collect(), 0);
        let mut terms = REPLICATED;
        terms[axis] = PARTIAL_SUM;
        let length = flat.shape();
        let sums = ShardedTensor::<B, Float>::placed(flat, length, Some(mesh.clone()), terms);
        let sums = redistribute(sums, mesh, &REPLICATED);
        let mut start = 0;
        for (index, shape) in same.into_iter().zip(shapes) {
            let range = start..start + shape.num_elements();
            start = range.end;
            let entry = &mut entries[index];
            let mut places = entry.gradient.places();
            places[axis] = AxisPlacement::Replicated;
            let local = B::float_reshape(along::<B, Float>(sums.clone(), 0, range), shape);
            let logical = entry.gradient.shape();
            entry.gradient = ShardedTensor::placed(local, logical, Some(mesh.clone()), places);
        }
    }
}
