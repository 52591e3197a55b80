//! [`redistribute`]: from one placement of a tensor to another, with the communication that this needs.

use std::any::Any;
use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;

use burn_backend::{Shape, TensorMetadata};

use super::all_to_all::{CutChange, all_to_all};
use super::gather_ahead;
use super::stacking::{padded, stacked_parts, unstacked, zeros_like};
use crate::collectives::{CollectiveBackend, CollectiveError, unwrap_or_unwind};
pub(in crate::sharded) use crate::sharded::kind::along;
use crate::sharded::kind::{Kind, KindCall};
use crate::sharded::mesh::Mesh;
use crate::sharded::placement::{
    AxisPlacement, AxisRole, PARTIAL_SUM, Placements, REPLICATED, Reduction, longest_part, part, without_sums,
};
use crate::sharded::tensor::{Local, ShardedTensor};
use crate::sharded::traffic::{TrafficKind, operation};

/// Returns this rank's part of a tensor under another placement on a mesh.
///
/// # Communication
/// Per axis where the placements differ: an all-gather to make a range whole, an all-to-all to make a range of another
/// dimension (an all-gather where an axis outside changes how it cuts that), an all-reduce to make terms whole, a
/// reduce-scatter to make a range of terms, and none to cut what is whole or to make a term of a range.
///
/// # Panics
/// When a collective fails, with its [`CollectiveError`](crate::collectives::CollectiveError) as payload; when the
/// tensor is placed on another mesh.
#[track_caller]
pub(in crate::sharded) fn redistribute<B: CollectiveBackend, K: Kind<B>>(
    tensor: ShardedTensor<B, K>,
    mesh: &Mesh,
    target: &Placements,
) -> K::Tensor {
    if let Some(own) = tensor.mesh() {
        assert!(
            own.is_same(mesh),
            "tensors of two meshes, {own:?} and {mesh:?}, meet in {}: use clones of one mesh",
            operation()
        );
    }
    let (id, places, shape) = (tensor.id(), tensor.places(), tensor.logical_shape().clone());
    match tensor.into_local() {
        Local::Here(local) => {
            let is_shared = shares_gather(mesh, &places, target);
            if is_shared && let Some(gathered) = last_gathered(id, target) {
                return gathered;
            }
            if let Some(gathered) = gather_ahead::take::<B, K>(id, &places, target) {
                return gathered;
            }
            let gathered = Change::<B, K>::new(mesh, &shape, places).run(local, target);
            if is_shared {
                remember_gathered(id, target, &gathered);
            }
            gathered
        }
        Local::Deferred(deferred) => {
            // Terms are made of the whole: one rank has all of a sum.
            let made = without_sums(*target);
            let part = deferred.part(&shape, Some(mesh), &made);
            Change::<B, K>::new(mesh, &shape, made).run(part, target)
        }
        Local::Settling(shared) => match Arc::try_unwrap(shared) {
            Ok(own) => {
                let (places, local) = own.into_inner();
                Change::<B, K>::new(mesh, &shape, places).run(local, target)
            }
            Err(shared) => {
                let mut state = shared.lock();
                let change = Change::<B, K>::new(mesh, &shape, state.0);
                let settles = target.iter().all(|place| !place.is_partial());
                let local = change.run(state.1.clone(), target);
                if settles {
                    *state = (*target, local.clone());
                }
                local
            }
        },
    }
}

/// The tensor under another placement.
#[track_caller]
pub(in crate::sharded) fn placed<B: CollectiveBackend, K: Kind<B>>(
    tensor: ShardedTensor<B, K>,
    mesh: &Mesh,
    places: Placements,
) -> ShardedTensor<B, K> {
    let shape = tensor.shape();
    let local = redistribute(tensor, mesh, &places);
    ShardedTensor::placed(local, shape, Some(mesh.clone()), places)
}

/// Returns the whole tensor.
///
/// # Panics
/// As [`redistribute`].
#[track_caller]
pub(in crate::sharded) fn gather<B: CollectiveBackend, K: Kind<B>>(tensor: ShardedTensor<B, K>) -> K::Tensor {
    match (tensor.mesh().cloned(), tensor) {
        (Some(mesh), tensor) => redistribute(tensor, &mesh, &REPLICATED),
        (None, tensor) => local_of_whole(tensor),
    }
}

/// This rank's part of a tensor as it is placed.
pub(in crate::sharded) fn local_part<B: CollectiveBackend, K: Kind<B>>(tensor: ShardedTensor<B, K>) -> K::Tensor {
    match tensor.mesh().cloned() {
        Some(mesh) => {
            let places = tensor.places();
            redistribute(tensor, &mesh, &places)
        }
        None => local_of_whole(tensor),
    }
}

/// This rank's elements of a tensor that every rank has.
pub(in crate::sharded) fn local_of_whole<B: CollectiveBackend, K: Kind<B>>(tensor: ShardedTensor<B, K>) -> K::Tensor {
    let shape = tensor.logical_shape().clone();
    match tensor.into_local() {
        Local::Here(local) => local,
        Local::Deferred(deferred) => deferred.part(&shape, None, &REPLICATED),
        Local::Settling(shared) => shared.lock().1.clone(),
    }
}

/// A tensor on its way from one placement to another.
///
/// Each move takes this rank's part and returns the next one: nothing else holds it, so that a collective need not copy
/// its elements first.
struct Change<'a, B: CollectiveBackend, K: Kind<B>> {
    mesh: &'a Mesh,
    shape: &'a Shape,
    places: Placements,
    _kind: PhantomData<(B, K)>,
}

impl<'a, B: CollectiveBackend, K: Kind<B>> Change<'a, B, K> {
    fn new(mesh: &'a Mesh, shape: &'a Shape, places: Placements) -> Self {
        Self {
            mesh,
            shape,
            places,
            _kind: PhantomData,
        }
    }

    /// From the innermost cut outwards what is to be whole is gathered, and what is to be cut elsewhere is exchanged.
    /// Then, from the outermost inwards, what is to be cut is cut, and terms are put together.
    #[track_caller]
    fn run(mut self, mut local: K::Tensor, target: &Placements) -> K::Tensor {
        if self.places == *target {
            return local;
        }
        let nested = self.mesh.shape().nested().to_vec();
        for &axis in nested.iter().rev() {
            let AxisPlacement::Shard(dimension) = self.places[axis] else {
                continue;
            };
            let is_in_the_way = self.is_in_the_way(axis, dimension, target);
            if target[axis] == PARTIAL_SUM && !is_in_the_way {
                local = self.surround(local, axis, dimension);
            } else if let Some(to) = self.exchanges(axis, dimension, target) {
                local = self.all_to_all(local, axis, dimension, to);
            } else if self.places[axis] != target[axis] || is_in_the_way {
                local = self.gather(local, axis, dimension);
            }
        }
        for &axis in &nested {
            match (self.places[axis], target[axis]) {
                (from, to) if from == to => {}
                (AxisPlacement::Replicated, AxisPlacement::Shard(dimension)) => {
                    local = self.cut(local, axis, dimension)
                }
                (AxisPlacement::Replicated, AxisPlacement::Partial(reduction)) => {
                    local = self.make_terms(local, axis, reduction);
                }
                (AxisPlacement::Partial(reduction), AxisPlacement::Shard(dimension)) => {
                    local = self.reduce_scatter(local, axis, dimension, reduction);
                }
                (AxisPlacement::Partial(reduction), to) => {
                    local = self.all_reduce(local, axis, reduction);
                    if let AxisPlacement::Partial(other) = to {
                        local = self.make_terms(local, axis, other);
                    }
                }
                (AxisPlacement::Shard(_), _) | (AxisPlacement::Replicated, AxisPlacement::Replicated) => {
                    unreachable!("what is cut elsewhere has been gathered or exchanged")
                }
            }
            self.places[axis] = target[axis];
        }
        local
    }

    /// Whether an axis outside changes how it cuts the same dimension.
    fn is_in_the_way(&self, axis: usize, dimension: usize, target: &Placements) -> bool {
        let cuts = |place: AxisPlacement| place == AxisPlacement::Shard(dimension);
        (0..self.mesh.shape().num_axes()).any(|other| {
            self.mesh.shape().is_inside(axis, other)
                && self.places[other] != target[other]
                && (cuts(self.places[other]) || cuts(target[other]))
        })
    }

    /// The length of a dimension before the cut of an axis.
    fn length_outside(&self, axis: usize, dimension: usize) -> usize {
        let (mesh, length) = (self.mesh, self.shape[dimension]);
        mesh.shape()
            .range_outside(length, &self.places, dimension, mesh.ranks(), axis)
            .len()
    }

    #[track_caller]
    fn gather(&mut self, local: K::Tensor, axis: usize, dimension: usize) -> K::Tensor {
        let group = self.mesh.group(axis);
        let length = self.length_outside(axis, dimension);
        let longest = longest_part(length, group.size());
        let local = padded::<B, K>(local, dimension, longest);
        let stacked = self.collective(local, KindCall::AllGather, axis, TrafficKind::AllGather, group.size());
        self.places[axis] = AxisPlacement::Replicated;
        unstacked::<B, K>(stacked, dimension, length, group.size())
    }

    /// The dimension that an axis is to cut in place of this one, if the cuts outside its new one are there already.
    /// Those inside of both have been gathered.
    fn exchanges(&self, axis: usize, dimension: usize, target: &Placements) -> Option<usize> {
        let to = target[axis].cut().filter(|&to| to != dimension)?;
        (!self.is_in_the_way(axis, to, target)).then_some(to)
    }

    #[track_caller]
    fn all_to_all(&mut self, local: K::Tensor, axis: usize, from: usize, to: usize) -> K::Tensor {
        let change = CutChange {
            from,
            from_length: self.length_outside(axis, from),
            to,
        };
        let bytes = local.shape().num_elements() * local.dtype().size();
        self.mesh.traffic().add(axis, TrafficKind::AllToAll, bytes);
        self.places[axis] = AxisPlacement::Shard(to);
        let group = self.mesh.group(axis).labelled(operation());
        unwrap_or_unwind(all_to_all::<B, K>(local, change, &group).map_err(with_advice))
    }

    fn cut(&self, local: K::Tensor, axis: usize, dimension: usize) -> K::Tensor {
        let group = self.mesh.group(axis);
        let range = part(self.length_outside(axis, dimension), group.size(), group.rank());
        along::<B, K>(local, dimension, range)
    }

    /// Makes a term of this rank's range: zero everywhere else.
    fn surround(&mut self, local: K::Tensor, axis: usize, dimension: usize) -> K::Tensor {
        let group = self.mesh.group(axis);
        let length = self.length_outside(axis, dimension);
        let own = part(length, group.size(), group.rank());
        let zeros = |count: usize| {
            let mut shape = local.shape();
            shape[dimension] = count;
            zeros_like::<B, K>(&local, shape)
        };
        let before = (own.start > 0).then(|| zeros(own.start));
        let after = (own.end < length).then(|| zeros(length - own.end));
        let parts = before.into_iter().chain([local]).chain(after).collect();
        self.places[axis] = PARTIAL_SUM;
        K::cat(parts, dimension)
    }

    /// Only the first rank has a sum's term; of largest and smallest values each has all.
    fn make_terms(&self, local: K::Tensor, axis: usize, reduction: Reduction) -> K::Tensor {
        if reduction == Reduction::Sum && self.mesh.group(axis).rank() > 0 {
            zeros_like::<B, K>(&local, local.shape())
        } else {
            local
        }
    }

    #[track_caller]
    fn all_reduce(&self, local: K::Tensor, axis: usize, reduction: Reduction) -> K::Tensor {
        let call = KindCall::AllReduce(reduction);
        self.collective(local, call, axis, TrafficKind::AllReduce, 1)
    }

    #[track_caller]
    fn reduce_scatter(&self, local: K::Tensor, axis: usize, dimension: usize, reduction: Reduction) -> K::Tensor {
        let group = self.mesh.group(axis);
        let (length, size) = (self.length_outside(axis, dimension), group.size());
        let stacked = stacked_parts::<B, K>(local, dimension, length, size);
        let call = KindCall::ReduceScatter(reduction);
        let own = self.collective(stacked, call, axis, TrafficKind::ReduceScatter, 1);
        along::<B, K>(own, dimension, 0..part(length, size, group.rank()).len())
    }

    #[track_caller]
    fn collective(&self, tensor: K::Tensor, call: KindCall, axis: usize, kind: TrafficKind, times: usize) -> K::Tensor {
        let bytes = tensor.shape().num_elements() * tensor.dtype().size() * times;
        self.mesh.traffic().add(axis, kind, bytes);
        // What a message about calls that do not fit together calls it.
        let group = self.mesh.group(axis).labelled(operation());
        unwrap_or_unwind(K::collective(tensor, call, &group).map_err(with_advice))
    }
}

/// Adds to an error about calls that do not fit together, or that another thread makes, what is most often wrong.
pub(in crate::sharded) fn with_advice(mut error: CollectiveError) -> CollectiveError {
    const RECORDS: &str = "an optimizer's record is whole from sharded::whole_record(&optimizer)";
    match &mut error {
        CollectiveError::Mismatch { progress, .. } => {
            *progress = format!(
                "{progress}; this rank was in {} of a sharded tensor: reading one that is cut, or a sum that has not \
                 been made (into_data, into_scalar), is a collective that every rank must call; the loss that \
                 sharded::backward returns can be read on one rank; {RECORDS}: burn's own is read in the order of a \
                 hash map, which differs by rank",
                operation()
            )
            .into();
            error
        }
        CollectiveError::OtherThread { group, thread, .. } => CollectiveError::NoAgreement {
            group: group.clone(),
            what: format!(
                "thread {thread} is in {} of a sharded tensor that is cut or a sum that has not been made, which is a \
                 collective of the thread that trains. burn's Learner reads outputs and saves records on threads of \
                 its own: a step returns sharded::whole(output), and {RECORDS}",
                operation()
            ),
        },
        _ => error,
    }
}

/// Whether the change is the gathering of a sequence-parallel activation, which several layers ask for one after the
/// other: query, key and value.
fn shares_gather(mesh: &Mesh, places: &Placements, target: &Placements) -> bool {
    mesh.sequence_dimension().is_some()
        && (0..mesh.shape().num_axes()).any(|axis| {
            mesh.shape().role(axis) == AxisRole::Tensor
                && places[axis].cut().is_some()
                && target[axis] == AxisPlacement::Replicated
        })
}

/// A gathered activation, by the number of what was gathered and its placement.
pub(in crate::sharded) type Gathered = (u64, Placements, Box<dyn Any>);

thread_local! {
    /// The last one alone: it is as large as all that sequence parallelism saves.
    static LAST_GATHERED: RefCell<Option<Gathered>> = const { RefCell::new(None) };
}

fn last_gathered<T: Clone + 'static>(id: u64, target: &Placements) -> Option<T> {
    LAST_GATHERED.with_borrow(|last| {
        let (last_id, places, gathered) = last.as_ref()?;
        (*last_id == id && places == target)
            .then(|| gathered.downcast_ref().cloned())
            .flatten()
    })
}

fn remember_gathered<T: Clone + 'static>(id: u64, target: &Placements, gathered: &T) {
    LAST_GATHERED.set(Some((id, *target, Box::new(gathered.clone()))));
}

/// Returns the last gathered activation, and remembers another one in its place.
pub(in crate::sharded) fn replace_gathered(gathered: Option<Gathered>) -> Option<Gathered> {
    LAST_GATHERED.replace(gathered)
}

/// Lets go of the last gathered activation.
pub(in crate::sharded) fn forget_gathered() {
    LAST_GATHERED.set(None);
}
