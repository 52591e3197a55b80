//! Attention for the CPU: blocks of queries as tasks, whose scores stay in the cache.
//!
//! The scores of a block are stored with its queries adjacent, so that maxima, sums and exponentials of many rows are
//! those of vectors, without a reduction across one ([`block`]). Queries, keys and values are read where they are, with
//! their strides. Blocks follow from the shapes alone: the results do not depend on the number of threads.

mod backward;
mod bias;
mod block;
mod forward;
mod heads;

use burn_flex::FlexTensor;

pub(super) use self::backward::backward;
pub(super) use self::forward::forward;
use super::projections::Projections;

/// Queries whose scores are computed at once: the rows of a panel of the matmuls.
const QUERIES: usize = 64;
/// Keys whose scores are computed at once: the blocks of scores, and of their gradients, fit into half a megabyte.
const KEYS: usize = 256;

/// Returns queries, keys and values: views, where they are in one tensor.
fn unpack(inputs: Projections<FlexTensor>) -> [FlexTensor; 3] {
    match inputs {
        Projections::Separate(tensors) => tensors,
        Projections::Packed(packed, heads) => heads.parts().map(|(first, count)| packed.narrow(2, first, count)),
    }
}
