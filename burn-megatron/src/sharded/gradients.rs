//! [`backward`]: a backward pass whose gradients end where their parameters are.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::module::{AutodiffModule, ModuleVisitor, Param, list_param_ids};
use burn::optim::GradientsParams;
use burn::tensor::ops::FloatTensor;
use burn::tensor::{Shape, Tensor, TensorMetadata, TensorPrimitive};

use super::early_scatter::scattering_early;
use super::given;
use super::kind::{Float, Kind};
use super::mesh::Mesh;
use super::movement::redistribute::{along, forget_gathered, gather, local_part, redistribute};
use super::parallelize::{ShardedBackend, placed};
use super::placement::{AxisPlacement, PARTIAL_SUM, Placements, REPLICATED};
use super::traffic::{Phase, in_phase, set_operation};
use super::{Sharded, ShardedTensor};
use crate::collectives::{CollectiveBackend, CollectiveError, catch_collective_error, unwrap_or_unwind};

/// Runs the backward pass of a loss, and returns the loss, which every rank then has, and the gradients of the model's
/// parameters, each placed as its parameter is.
///
/// In place of `loss.backward()` and `GradientsParams::from_grads`, which give the same numbers with more
/// communication: here sums over ranks wait until they are whole, and those of small gradients travel together.
///
/// # Communication
/// What the backward pass needs; a reduce-scatter or less for each gradient that is cut, during the backward pass where
/// it is large; then, per axis of the mesh, one all-reduce of all that are whole there. In the steps of
/// [`Mesh::with_check_inputs_interval`], one all-gather of 304 bytes per axis.
///
/// # Errors
/// The error of the first collective that failed. When ranks were given different batches, or have different losses.
pub fn backward<B, C, M, const D: usize>(
    loss: Tensor<Autodiff<Sharded<B>, C>, D>,
    model: &M,
) -> Result<(Tensor<Sharded<B>, D>, GradientsParams), CollectiveError>
where
    B: CollectiveBackend,
    C: CheckpointStrategy,
    M: AutodiffModule<Autodiff<Sharded<B>, C>>,
{
    catch_collective_error(|| {
        set_operation("loss");
        let placed = loss.clone().inner().into_primitive().tensor();
        let mesh = placed.mesh().cloned();
        let value = gather(placed);
        compare_given::<B, C, M>(Some(&value), mesh, model);
        let value = ShardedTensor::whole(value);
        let gradients = scattering_early(model, || unplaced(loss, model));
        (
            Tensor::from_primitive(TensorPrimitive::Float(value)),
            placed_like(gradients, model),
        )
    })
}

/// As [`backward`], with gradients that are not placed yet: those of several micro-batches are added up first, by
/// burn's `GradientsAccumulator`, and then [placed](place_gradients) once. Each rank has terms of whole gradients until
/// then: where memory counts more than communication, add up those of [`backward`].
///
/// # Errors
/// As [`backward`].
pub fn backward_unplaced<B, C, M, const D: usize>(
    loss: Tensor<Autodiff<Sharded<B>, C>, D>,
    model: &M,
) -> Result<GradientsParams, CollectiveError>
where
    B: CollectiveBackend,
    C: CheckpointStrategy,
    M: AutodiffModule<Autodiff<Sharded<B>, C>>,
{
    catch_collective_error(|| unplaced(loss, model))
}

/// Returns gradients of the model's parameters, each placed as its parameter is.
///
/// # Errors
/// As [`backward`].
pub fn place_gradients<B, C, M>(gradients: GradientsParams, model: &M) -> Result<GradientsParams, CollectiveError>
where
    B: CollectiveBackend,
    C: CheckpointStrategy,
    M: AutodiffModule<Autodiff<Sharded<B>, C>>,
{
    catch_collective_error(|| {
        compare_given::<B, C, M>(None, None, model);
        placed_like(gradients, model)
    })
}

/// Compares what ranks were given, over the mesh of the loss or of the model.
fn compare_given<B, C, M>(loss: Option<&FloatTensor<B>>, mesh: Option<Mesh>, model: &M)
where
    B: CollectiveBackend,
    C: CheckpointStrategy,
    M: AutodiffModule<Autodiff<Sharded<B>, C>>,
{
    struct First(Option<Mesh>);
    impl<B: ShardedBackend> ModuleVisitor<B> for First {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            if self.0.is_none() {
                self.0 = B::float(param.val().into_primitive().tensor()).mesh().cloned();
            }
        }
    }
    let of_model = || {
        let mut first = First(None);
        model.visit(&mut first);
        first.0.or_else(|| given::mesh_of(&list_param_ids(model)))
    };
    if let Some(mesh) = mesh.or_else(of_model) {
        unwrap_or_unwind(given::compare::<B>(loss, &mesh));
    }
}

fn unplaced<B, C, M, const D: usize>(loss: Tensor<Autodiff<Sharded<B>, C>, D>, model: &M) -> GradientsParams
where
    B: CollectiveBackend,
    C: CheckpointStrategy,
    M: AutodiffModule<Autodiff<Sharded<B>, C>>,
{
    let gradients = in_phase(Phase::Backward, || loss.backward());
    forget_gathered();
    GradientsParams::from_grads(gradients, model)
}

fn placed_like<B, C, M>(gradients: GradientsParams, model: &M) -> GradientsParams
where
    B: CollectiveBackend,
    C: CheckpointStrategy,
    M: AutodiffModule<Autodiff<Sharded<B>, C>>,
{
    in_phase(Phase::Gradients, || {
        set_operation("place_gradients");
        let mut collected = Collected::<B> {
            gradients,
            entries: Vec::new(),
        };
        model.visit(&mut collected);
        let Collected { gradients, mut entries } = collected;
        let Some(mesh) = entries.iter().find_map(Entry::mesh) else {
            return put_back(gradients, entries);
        };
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
        put_back(gradients, entries)
    })
}

fn put_back<B: CollectiveBackend>(mut gradients: GradientsParams, entries: Vec<Entry<B>>) -> GradientsParams {
    for Entry { gradient, register, .. } in entries {
        register(&mut gradients, gradient);
    }
    gradients
}

/// A gradient on its way.
struct Entry<B: CollectiveBackend> {
    gradient: ShardedTensor<B, Float>,
    /// Where the parameter is.
    places: Placements,
    parameter_mesh: Option<Mesh>,
    register: Box<Register<B>>,
}

type Register<B> = dyn FnOnce(&mut GradientsParams, ShardedTensor<B, Float>);

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

/// The gradients of a model, in the order of its parameters.
struct Collected<B: CollectiveBackend> {
    gradients: GradientsParams,
    entries: Vec<Entry<B>>,
}

impl<B: CollectiveBackend, C: CheckpointStrategy> ModuleVisitor<Autodiff<Sharded<B>, C>> for Collected<B> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<Autodiff<Sharded<B>, C>, D>>) {
        let id = param.id;
        let Some(gradient) = self.gradients.remove::<Sharded<B>, D>(id) else {
            return;
        };
        let parameter = param.val().into_primitive().tensor().primitive;
        self.entries.push(Entry {
            gradient: gradient.into_primitive().tensor(),
            places: parameter.places(),
            parameter_mesh: parameter.mesh().cloned(),
            register: Box::new(move |gradients, gradient| {
                let gradient = Tensor::<Sharded<B>, D>::from_primitive(TensorPrimitive::Float(gradient));
                gradients.register(id, gradient);
            }),
        });
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
