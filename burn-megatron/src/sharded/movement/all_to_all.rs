//! [`all_to_all`]: a tensor that is cut along one dimension, cut along another.

use burn_backend::TensorMetadata;

use crate::collectives::{CollectiveBackend, CollectiveError, ProcessGroup};
use crate::sharded::kind::{Kind, along};
use crate::sharded::placement::part;

/// A change of the dimension along which a group's ranks cut a tensor.
#[derive(Clone, Copy, Debug)]
pub(in crate::sharded) struct CutChange {
    /// The dimension that is cut.
    pub from: usize,
    /// Its length over the ranks of the group.
    pub from_length: usize,
    /// The dimension that will be.
    pub to: usize,
}

/// Returns this rank's range of `change.to`, of all of `change.from`: from each rank its block of both.
///
/// # Communication
/// Every rank sends each other rank one block: all but its own of its part, which is `1 / size` of what gathering
/// would move. All sends and receives are started before one is waited for.
///
/// # Errors
/// As [`ProcessGroup::send`] and [`ProcessGroup::recv`].
#[track_caller]
pub(in crate::sharded) fn all_to_all<B: CollectiveBackend, K: Kind<B>>(
    local: K::Tensor,
    change: CutChange,
    group: &ProcessGroup,
) -> Result<K::Tensor, CollectiveError> {
    let CutChange { from, from_length, to } = change;
    let (size, shape) = (group.size(), local.shape());
    let own = part(shape[to], size, group.rank()).len();
    let blocks = (0..size).map(|rank| along::<B, K>(local.clone(), to, part(shape[to], size, rank)));
    let blocks: Vec<_> = blocks.collect();
    drop(local);
    let incoming = (0..size).map(|rank| {
        let mut shape = shape.clone();
        shape[from] = part(from_length, size, rank).len();
        shape[to] = own;
        shape
    });
    let blocks = K::exchange(blocks, &incoming.collect::<Vec<_>>(), group)?;
    Ok(K::cat(blocks, from))
}
