//! [`parallelize`]: a model's parameters, placed by a plan; [`distribute`]: a batch, placed by hand.

use std::ops::Range;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::module::{Module, ModuleMapper, Param, list_param_ids};
use burn::tensor::backend::Backend;
use burn::tensor::ops::{BoolTensor, FloatTensor, FloatTensorOps, IntTensor};
use burn::tensor::{Bool as BoolTensorKind, Int as IntTensorKind, Tensor, TensorMetadata, TensorPrimitive};

use super::given;
use super::kind::{Bool, Float, Int, Kind, along};
use super::mesh::Mesh;
use super::movement::redistribute::{gather, local_of_whole, redistribute};
use super::placement::{AxisPlacement, AxisRole, Placements, REPLICATED};
use super::plan::{Plan, PlanError, planned_parameters};
use super::tensor::Deferred;
use super::{Sharded, ShardedTensor, traffic};
use crate::collectives::CollectiveBackend;
use crate::parameters::is_settling;

/// [`Sharded`], or [`Autodiff`] around it.
pub trait ShardedBackend: Backend {
    /// The backend inside.
    type Local: CollectiveBackend;

    /// The tensor, without its graph.
    fn float(tensor: FloatTensor<Self>) -> ShardedTensor<Self::Local, Float>;
    /// Whether the tensor belongs to a graph.
    fn is_tracked(tensor: &FloatTensor<Self>) -> bool;
    /// A tensor outside any graph.
    fn from_float(tensor: ShardedTensor<Self::Local, Float>) -> FloatTensor<Self>;
    /// The tensor.
    fn int(tensor: IntTensor<Self>) -> ShardedTensor<Self::Local, Int>;
    /// The tensor.
    fn from_int(tensor: ShardedTensor<Self::Local, Int>) -> IntTensor<Self>;
    /// The tensor.
    fn bool(tensor: BoolTensor<Self>) -> ShardedTensor<Self::Local, Bool>;
    /// The tensor.
    fn from_bool(tensor: ShardedTensor<Self::Local, Bool>) -> BoolTensor<Self>;
}

impl<B: CollectiveBackend> ShardedBackend for Sharded<B> {
    type Local = B;

    fn float(tensor: FloatTensor<Self>) -> ShardedTensor<B, Float> {
        tensor
    }

    fn is_tracked(_tensor: &FloatTensor<Self>) -> bool {
        false
    }

    fn from_float(tensor: ShardedTensor<B, Float>) -> FloatTensor<Self> {
        tensor
    }

    fn int(tensor: IntTensor<Self>) -> ShardedTensor<B, Int> {
        tensor
    }

    fn from_int(tensor: ShardedTensor<B, Int>) -> IntTensor<Self> {
        tensor
    }

    fn bool(tensor: BoolTensor<Self>) -> ShardedTensor<B, Bool> {
        tensor
    }

    fn from_bool(tensor: ShardedTensor<B, Bool>) -> BoolTensor<Self> {
        tensor
    }
}

impl<B: CollectiveBackend, C: CheckpointStrategy> ShardedBackend for Autodiff<Sharded<B>, C> {
    type Local = B;

    fn float(tensor: FloatTensor<Self>) -> ShardedTensor<B, Float> {
        tensor.primitive
    }

    fn is_tracked(tensor: &FloatTensor<Self>) -> bool {
        tensor.is_tracked()
    }

    fn from_float(tensor: ShardedTensor<B, Float>) -> FloatTensor<Self> {
        FloatTensor::<Self>::new(tensor)
    }

    fn int(tensor: IntTensor<Self>) -> ShardedTensor<B, Int> {
        tensor
    }

    fn from_int(tensor: ShardedTensor<B, Int>) -> IntTensor<Self> {
        tensor
    }

    fn bool(tensor: BoolTensor<Self>) -> ShardedTensor<B, Bool> {
        tensor
    }

    fn from_bool(tensor: ShardedTensor<B, Bool>) -> BoolTensor<Self> {
        tensor
    }
}

/// Returns the model with its parameters placed on a mesh by a plan.
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
/// When the plan does not fit the model: see [`Plan::resolve`].
pub fn parallelize<B: ShardedBackend, M: Module<B>>(model: M, plan: &Plan, mesh: &Mesh) -> Result<M, PlanError> {
    let placements = plan.resolve(&planned_parameters::<B, M>(&model), mesh.shape())?;
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

impl<B: ShardedBackend> ModuleMapper<B> for Placer<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let places = self.placements.next().expect("one for each parameter that was listed");
        if places == REPLICATED {
            return param;
        }
        let mesh = self.mesh.clone();
        let place = move |tensor: Tensor<B, D>| {
            let requires_grad = tensor.is_require_grad();
            let placed = placed(B::float(tensor.into_primitive().tensor()), &mesh, places);
            Tensor::from_primitive(TensorPrimitive::Float(B::from_float(placed))).set_require_grad(requires_grad)
        };
        let (id, tensor, mapper) = param.consume();
        // Such as that of a linear layer whose weight is stored transposed.
        let (loads, saves) = (mapper.clone(), mapper.clone());
        Param::from_mapped_value(id, place(tensor), mapper)
            .load_mapper(move |tensor| place(loads.on_load(tensor)))
            .save_mapper(move |tensor| saves.on_save(kept_whole(tensor)))
    }
}

/// A parameter for a record, whole: its elements are in host memory, and on no device before they are read.
fn kept_whole<B: ShardedBackend, const D: usize>(tensor: Tensor<B, D>) -> Tensor<B, D> {
    let placed = B::float(tensor.clone().into_primitive().tensor());
    if placed.mesh().is_none() || is_settling() {
        return tensor;
    }
    traffic::set_operation("into_record");
    let (shape, dtype, device) = (placed.shape(), placed.dtype(), placed.device());
    let data = <Float as Kind<B::Local>>::read(gather(placed));
    let own_device = device.clone();
    let make = move |ranges: &[Range<usize>]| {
        let whole = B::Local::float_from_data(data.clone(), &own_device);
        let dimensions = ranges.iter().cloned().enumerate();
        dimensions.fold(whole, |part, (dimension, range)| {
            along::<B::Local, Float>(part, dimension, range)
        })
    };
    let kept = ShardedTensor::deferred(shape, Deferred::new(&device, dtype, make));
    Tensor::from_primitive(TensorPrimitive::Float(B::from_float(kept)))
}

/// The tensor under another placement.
#[track_caller]
pub(super) fn placed<B: CollectiveBackend, K: Kind<B>>(
    tensor: ShardedTensor<B, K>,
    mesh: &Mesh,
    places: Placements,
) -> ShardedTensor<B, K> {
    let shape = tensor.shape();
    let local = redistribute(tensor, mesh, &places);
    ShardedTensor::placed(local, shape, Some(mesh.clone()), places)
}

/// Returns the tensor, which every rank has, cut along a dimension over the ranks of a role: a batch over those of
/// data. Unchanged if the mesh has no axis of the role. In the steps of [`Mesh::with_check_inputs_interval`] the ranks
/// compare what they give.
///
/// # Panics
/// When the dimension has fewer elements than there are ranks. When the tensor belongs to a graph, which would end
/// here: gradients of a batch are asked for after this, by `require_grad`.
pub fn distribute<T: Distribute>(tensor: T, mesh: &Mesh, role: AxisRole, dimension: usize) -> T {
    let several = |&axis: &usize| mesh.shape().size(axis) > 1;
    let axes = mesh.shape().axes_of(role).filter(several);
    let tensor = outside_graph(tensor);
    if tensor.mesh().is_none() {
        given::note(&tensor, mesh, dimension, None);
    }
    T::from_placed(axes.fold(tensor, |tensor, axis| {
        let places = with_cut(&tensor, mesh, axis, dimension);
        placed(tensor, mesh, places)
    }))
}

/// Returns the tensor of which each rank of a role has its part: a batch of `length` samples along `dimension`, of
/// which each data-parallel rank has loaded its own: those that [`Mesh::part`] says.
///
/// # Panics
/// When `local` has another number of them, is placed on a mesh already, or belongs to a graph, which would end here.
pub fn from_local<T: Distribute>(local: T, mesh: &Mesh, role: AxisRole, dimension: usize, length: usize) -> T {
    T::from_placed(part_of(outside_graph(local), mesh, role, dimension, length))
}

/// Returns the tensor whole, on every rank, and outside any graph: to be read by one rank alone, or on another thread,
/// as the metrics of burn's `Learner` read what a training step returns.
///
/// # Communication
/// Of a tensor that is cut an all-gather, of a sum that has not been made an all-reduce; every rank must call.
///
/// # Panics
/// When that fails, with its [`CollectiveError`](crate::collectives::CollectiveError) as payload.
#[track_caller]
pub fn whole<T: Distribute>(tensor: T) -> T {
    traffic::set_operation("whole");
    T::from_placed(ShardedTensor::whole(gather(tensor.into_placed())))
}

/// A tensor that can be cut over ranks: of floats, integers or booleans, with autodiff and without.
pub trait Distribute: Sized {
    /// The backend inside.
    type Local: CollectiveBackend;
    /// Floats, integers or booleans.
    type Kind: Kind<Self::Local>;

    /// Whether it belongs to a graph.
    fn is_in_graph(&self) -> bool;
    /// The tensor, without its graph.
    fn into_placed(self) -> ShardedTensor<Self::Local, Self::Kind>;
    /// A tensor outside any graph.
    fn from_placed(tensor: ShardedTensor<Self::Local, Self::Kind>) -> Self;
}

impl<B: ShardedBackend, const D: usize> Distribute for Tensor<B, D> {
    type Local = B::Local;
    type Kind = Float;

    fn is_in_graph(&self) -> bool {
        B::is_tracked(&self.clone().into_primitive().tensor())
    }

    fn into_placed(self) -> ShardedTensor<B::Local, Float> {
        B::float(self.into_primitive().tensor())
    }

    fn from_placed(tensor: ShardedTensor<B::Local, Float>) -> Self {
        Tensor::from_primitive(TensorPrimitive::Float(B::from_float(tensor)))
    }
}

/// Implements [`Distribute`] for tensors outside graphs.
macro_rules! distribute_kind {
    ($burns:ty, $kind:ident, $of:ident, $from:ident) => {
        impl<B: ShardedBackend, const D: usize> Distribute for Tensor<B, D, $burns> {
            type Local = B::Local;
            type Kind = $kind;

            fn is_in_graph(&self) -> bool {
                false
            }

            fn into_placed(self) -> ShardedTensor<B::Local, $kind> {
                B::$of(self.into_primitive())
            }

            fn from_placed(tensor: ShardedTensor<B::Local, $kind>) -> Self {
                Tensor::from_primitive(B::$from(tensor))
            }
        }
    };
}

distribute_kind!(IntTensorKind, Int, int, from_int);
distribute_kind!(BoolTensorKind, Bool, bool, from_bool);

/// The tensor, which belongs to no graph: gradients would not go through what is done to it.
fn outside_graph<T: Distribute>(tensor: T) -> ShardedTensor<T::Local, T::Kind> {
    let is_in_graph = tensor.is_in_graph();
    let placed = tensor.into_placed();
    assert!(
        !is_in_graph,
        "a tensor of shape {:?} of a graph is distributed: gradients would not go through; distribute what comes into \
         the model, and call require_grad after it",
        placed.shape().to_vec()
    );
    placed
}

/// The tensor's placements with one more cut.
fn with_cut<B: CollectiveBackend, K: Kind<B>>(
    tensor: &ShardedTensor<B, K>,
    mesh: &Mesh,
    axis: usize,
    dimension: usize,
) -> Placements {
    let (shape, mut places) = (tensor.shape(), tensor.places());
    assert!(
        mesh.shape().can_cut(&shape, &places, axis, dimension),
        "dimension {dimension} of a tensor of shape {shape:?} cannot be cut over {} ranks: each must have an element",
        mesh.shape().size(axis)
    );
    places[axis] = AxisPlacement::Shard(dimension);
    places
}

/// The tensor of which this rank has `local`.
fn part_of<B: CollectiveBackend, K: Kind<B>>(
    local: ShardedTensor<B, K>,
    mesh: &Mesh,
    role: AxisRole,
    dimension: usize,
    length: usize,
) -> ShardedTensor<B, K> {
    assert!(
        local.mesh().is_none(),
        "a part of a tensor is whole on its rank, got {local:?}"
    );
    given::note(&local, mesh, dimension, Some((role, length)));
    let mut shape = local.shape();
    let found = shape[dimension];
    shape[dimension] = length;
    let range = mesh.part(role, length);
    assert!(
        range.len() == found,
        "of dimension {dimension}, of length {length}, this rank's part is {range:?}, got {found}"
    );
    let places = mesh.shape().cut_by(role, dimension);
    ShardedTensor::placed(local_of_whole(local), shape, Some(mesh.clone()), places)
}

/// Returns how a tensor is placed on a mesh, `[2, 8] F32, S(0) R`.
pub fn describe<B: ShardedBackend, const D: usize>(tensor: &Tensor<B, D>) -> String {
    format!("{:?}", B::float(tensor.clone().into_primitive().tensor()))
}
