//! [`InFlight`]: a float tensor on its way to another placement, while something else is computed.

use burn_backend::tensor::FloatTensor;
use burn_backend::{Shape, TensorMetadata};

use super::stacking::{padded, stacked_parts, unstacked};
use crate::collectives::{CollectiveBackend, PendingTensor, ReduceOp, TensorCall, unwrap_or_unwind};
use crate::sharded::kind::{Float, along};
use crate::sharded::mesh::Mesh;
use crate::sharded::placement::{AxisPlacement, PARTIAL_SUM, Placements, longest_part, part};
use crate::sharded::traffic::{TrafficKind, operation};

/// A part of a float tensor that one collective is making.
pub(in crate::sharded) struct InFlight<B: CollectiveBackend> {
    pending: PendingTensor<B>,
    last: Last,
}

/// What is left to do after the collective.
enum Last {
    /// The ranks' parts of a dimension of this length are put together.
    Unstack {
        dimension: usize,
        length: usize,
        size: usize,
    },
    /// This rank's part is cut to its length.
    Trim { dimension: usize, length: usize },
}

/// The one collective of a change.
enum Move {
    Gather { axis: usize, dimension: usize },
    Scatter { axis: usize, dimension: usize },
}

/// Returns true if [`InFlight::start`] can start a change: one axis is gathered, or its terms are scattered.
pub(in crate::sharded) fn is_one_collective(mesh: &Mesh, from: &Placements, to: &Placements) -> bool {
    one_move(mesh, from, to).is_some()
}

fn one_move(mesh: &Mesh, from: &Placements, to: &Placements) -> Option<Move> {
    let mut changed = (0..mesh.shape().num_axes()).filter(|&axis| from[axis] != to[axis]);
    let (axis, None) = (changed.next()?, changed.next()) else {
        return None;
    };
    let (found, dimension) = match (from[axis], to[axis]) {
        (AxisPlacement::Shard(dimension), AxisPlacement::Replicated) => (Move::Gather { axis, dimension }, dimension),
        (PARTIAL_SUM, AxisPlacement::Shard(dimension)) => (Move::Scatter { axis, dimension }, dimension),
        _ => return None,
    };
    // What is cut inside would have to be gathered first.
    let is_innermost = (0..mesh.shape().num_axes())
        .all(|other| !mesh.shape().is_inside(other, axis) || from[other] != AxisPlacement::Shard(dimension));
    is_innermost.then_some(found)
}

impl<B: CollectiveBackend> InFlight<B> {
    /// Starts to bring this rank's part of a tensor of a logical shape from one placement to another.
    ///
    /// # Communication
    /// The start of one all-gather or reduce-scatter over the axis that changes.
    ///
    /// # Panics
    /// When the change is not [one collective](is_one_collective).
    #[track_caller]
    pub(in crate::sharded) fn start(
        local: FloatTensor<B>,
        mesh: &Mesh,
        shape: &Shape,
        from: &Placements,
        to: &Placements,
    ) -> Self {
        let change = one_move(mesh, from, to).expect("a change of one collective");
        let (Move::Gather { axis, dimension } | Move::Scatter { axis, dimension }) = change;
        let group = mesh.group(axis);
        let length = mesh
            .shape()
            .range_outside(shape[dimension], from, dimension, mesh.ranks(), axis)
            .len();
        let size = group.size();
        let (local, call, kind, last) = match change {
            Move::Gather { .. } => (
                padded::<B, Float>(local, dimension, longest_part(length, size)),
                TensorCall::AllGather,
                TrafficKind::AllGather,
                Last::Unstack {
                    dimension,
                    length,
                    size,
                },
            ),
            Move::Scatter { .. } => (
                stacked_parts::<B, Float>(local, dimension, length, size),
                TensorCall::ReduceScatter(ReduceOp::Sum),
                TrafficKind::ReduceScatter,
                Last::Trim {
                    dimension,
                    length: part(length, size, group.rank()).len(),
                },
            ),
        };
        let whole = match kind {
            TrafficKind::AllGather => size,
            _ => 1,
        };
        let bytes = local.shape().num_elements() * local.dtype().size() * whole;
        mesh.traffic().add(axis, kind, bytes);
        Self {
            pending: B::start(local, call, &group.labelled(operation())),
            last,
        }
    }

    /// Waits for the part. Bounded, because the collective is.
    ///
    /// # Panics
    /// When it fails, with its [`CollectiveError`](crate::collectives::CollectiveError) as payload.
    #[track_caller]
    pub(in crate::sharded) fn wait(self) -> FloatTensor<B> {
        let result = unwrap_or_unwind(self.pending.wait());
        match self.last {
            Last::Unstack {
                dimension,
                length,
                size,
            } => unstacked::<B, Float>(result, dimension, length, size),
            Last::Trim { dimension, length } => along::<B, Float>(result, dimension, 0..length),
        }
    }
}
