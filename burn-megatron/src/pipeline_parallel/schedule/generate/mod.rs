//! The lists of each schedule.
//!
//! A schedule is a rule for the order in which each stage runs its tasks, one file per rule; [`communication`] then
//! puts in the messages, the same way for all.

use super::{Schedule, Task, geometry::Geometry};
use order::{Order, forwards_then_backwards};

mod communication;
mod gpipe;
mod interleaved;
mod one_forward_one_backward;
mod order;
#[cfg(test)]
mod tests;

/// The sizes of a schedule, each at least 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Stages: p.
    pub num_stages: usize,
    /// Chunks per stage: v.
    pub num_chunks: usize,
    /// Micro-batches: m.
    pub num_micro_batches: usize,
}

pub(super) fn gpipe(sizes: Sizes) -> Schedule {
    sizes.schedule(false, |_| gpipe::order(sizes.num_micro_batches))
}

pub(super) fn one_forward_one_backward(sizes: Sizes) -> Schedule {
    sizes.schedule(false, |stage| one_forward_one_backward::order(sizes, stage))
}

pub(super) fn interleaved(sizes: Sizes, group_size: usize) -> Schedule {
    sizes.schedule(false, |stage| interleaved::order(sizes, group_size, stage))
}

/// The table of the interleaved schedule in groups of p, forward only. One order on all stages can never make two of
/// them wait for each other, so no rule binds the sizes.
pub(super) fn forward_only(sizes: Sizes) -> Schedule {
    let forwards = interleaved::table(sizes, sizes.num_stages);
    sizes.schedule(true, |_| forwards_then_backwards(&forwards, &[], forwards.len()))
}

impl Sizes {
    fn schedule(self, is_forward_only: bool, order: impl Fn(usize) -> Order) -> Schedule {
        let geometry = Geometry {
            num_stages: self.num_stages,
            num_chunks: self.num_chunks,
        };
        Schedule {
            num_chunks: self.num_chunks,
            num_micro_batches: self.num_micro_batches,
            is_forward_only,
            stages: communication::with_messages(geometry, (0..self.num_stages).map(order).collect()),
        }
    }
}

/// The tasks of a single chunk.
fn one_chunk(num_micro_batches: usize) -> Vec<Task> {
    (0..num_micro_batches)
        .map(|micro_batch| Task { micro_batch, chunk: 0 })
        .collect()
}
