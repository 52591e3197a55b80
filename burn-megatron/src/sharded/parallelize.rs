//! [`parallelize`]: a model's parameters, placed by a plan; [`distribute`]: a batch, placed by hand.

use burn::module::{Module, ModuleMapper, Param, list_param_ids};
use burn::tensor::Tensor;

use super::agreement::given;
use super::mesh::Mesh;
use super::placement::{AxisPlacement, AxisRole, Placements, REPLICATED};
use super::plan::{Plan, PlanError, planned_parameters};
use super::rules::Operand;
use super::slot::{SlotKind, closed, look, opened, or_panic};
use super::traffic;

/// Returns the model with its parameters placed on a mesh by a plan. The model is on a device of
/// [`device`](super::device()).
///
/// Parameters without values get them first, in the order of the model: every rank must have drawn the same random
/// numbers until then. What burn loads into the model's parameters later is placed in the same way; a norm's running
/// state is loaded whole. A record of the model is whole, in host memory, on every rank: any thread may save it.
///
/// # Communication
/// None: each rank keeps its part of what it has. Of `into_record` later, one all-gather for each parameter that is
/// cut.
///
/// # Errors
/// When the plan does not fit the model: see [`Plan::resolve`]. When a parameter is on another device.
pub fn parallelize<M: Module>(model: M, plan: &Plan, mesh: &Mesh) -> Result<M, PlanError> {
    let placements = plan.resolve(&planned_parameters(&model)?, mesh.shape())?;
    traffic::set_operation("parallelize");
    let is_whole = placements.iter().all(|places| *places == REPLICATED);
    given::note_model(list_param_ids(&model), mesh, is_whole);
    Ok(model.map(&mut Placer {
        placements: placements.into_iter(),
        mesh,
    }))
}

/// Gives each parameter its placements, in the order of the model.
struct Placer<'a> {
    placements: std::vec::IntoIter<Placements>,
    mesh: &'a Mesh,
}

impl ModuleMapper for Placer<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let places = self.placements.next().expect("one for each parameter that was listed");
        if places == REPLICATED {
            return param;
        }
        let mesh = self.mesh.clone();
        let place = move |tensor: Tensor<D>| {
            let requires_grad = tensor.is_require_grad();
            with_places(tensor, &mesh, places).set_require_grad(requires_grad)
        };
        let (id, tensor, mapper) = param.consume();
        // Such as that of a linear layer whose weight is stored transposed.
        let loads = mapper.clone();
        Param::from_mapped_value(id, place(tensor), mapper).load_mapper(move |tensor| place(loads.on_load(tensor)))
    }
}

/// The tensor under another placement, without its graph.
#[track_caller]
fn with_places<const D: usize, K: SlotKind>(tensor: Tensor<D, K>, mesh: &Mesh, places: Placements) -> Tensor<D, K> {
    let (own, placing) = or_panic(opened(tensor.clone()));
    closed(placing.place(own, mesh, places), &tensor)
}

/// Returns the tensor, which every rank has, cut along a dimension over the ranks of a role: a batch over those of
/// data. Unchanged if the mesh has no axis of the role. In the steps of [`Mesh::with_check_inputs_interval`] the ranks
/// compare what they give.
///
/// # Panics
/// When the dimension has fewer elements than there are ranks. When the tensor belongs to a graph, which would end
/// here: gradients of a batch are asked for after this, by `require_grad`. When it is on another device than one of
/// [`device`](super::device()).
#[track_caller]
pub fn distribute<const D: usize, K: SlotKind>(
    tensor: Tensor<D, K>,
    mesh: &Mesh,
    role: AxisRole,
    dimension: usize,
) -> Tensor<D, K> {
    assert_untracked(&tensor);
    let given = look(tensor.clone());
    if given.mesh().is_none() {
        given::note(&*given, mesh, dimension, None);
    }
    let Operand { shape, mut places } = given.operand();
    let several = |&axis: &usize| mesh.shape().size(axis) > 1;
    for axis in mesh.shape().axes_of(role).filter(several) {
        assert!(
            mesh.shape().can_cut(&shape, &places, axis, dimension),
            "dimension {dimension} of a tensor of shape {shape:?} cannot be cut over {} ranks: each must have an \
             element",
            mesh.shape().size(axis)
        );
        places[axis] = AxisPlacement::Shard(dimension);
    }
    with_places(tensor, mesh, places)
}

/// Returns the tensor of which each rank of a role has its part: a batch of `length` samples along `dimension`, of
/// which each data-parallel rank has loaded its own: those that [`Mesh::part`] says.
///
/// # Panics
/// When `local` has another number of them, is placed on a mesh already, belongs to a graph, which would end here, or
/// is on another device than one of [`device`](super::device()).
#[track_caller]
pub fn from_local<const D: usize, K: SlotKind>(
    local: Tensor<D, K>,
    mesh: &Mesh,
    role: AxisRole,
    dimension: usize,
    length: usize,
) -> Tensor<D, K> {
    assert_untracked(&local);
    let (own, placing) = or_panic(opened(local.clone()));
    let given = placing.look(own.clone());
    assert!(
        given.mesh().is_none(),
        "a part of a tensor is whole on its rank, got {given:?}"
    );
    given::note(&*given, mesh, dimension, Some((role, length)));
    let mut shape = local.shape();
    let found = std::mem::replace(&mut shape[dimension], length);
    let range = mesh.part(role, length);
    assert!(
        range.len() == found,
        "of dimension {dimension}, of length {length}, this rank's part is {range:?}, got {found}"
    );
    let places = mesh.shape().cut_by(role, dimension);
    closed(placing.with_part(own, shape, mesh, places), &local)
}

/// Gradients would not go through what is done to a tensor of a graph.
#[track_caller]
fn assert_untracked<const D: usize, K: SlotKind>(tensor: &Tensor<D, K>) {
    assert!(
        !K::is_tracked(tensor),
        "a tensor of shape {:?} of a graph is distributed: gradients would not go through; distribute what comes into \
         the model, and call require_grad after it",
        tensor.dims()
    );
}

/// Returns the tensor whole, on every rank, and outside any graph: to be read by one rank alone, or on another thread.
///
/// # Communication
/// Of a tensor that is cut an all-gather, of a sum that has not been made an all-reduce; every rank must call.
///
/// # Panics
/// When that fails, with its [`CollectiveError`](crate::collectives::CollectiveError) as payload. When the tensor is on
/// another device than one of [`device`](super::device()).
#[track_caller]
pub fn whole<const D: usize, K: SlotKind>(tensor: Tensor<D, K>) -> Tensor<D, K> {
    traffic::set_operation("whole");
    let (own, placing) = or_panic(opened(tensor.clone()));
    closed(placing.whole(own), &tensor)
}

/// Returns how a tensor is placed on a mesh, `[2, 8] F32, S(0) R`.
///
/// # Panics
/// When it is on another device than one of [`device`](super::device()).
#[track_caller]
pub fn describe<const D: usize, K: SlotKind>(tensor: &Tensor<D, K>) -> String {
    format!("{:?}", look(tensor.clone()))
}
