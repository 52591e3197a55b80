//! The order in which a stage computes: the part that all schedules share.

use crate::pipeline_parallel::schedule::{Pass, Task};

/// What a stage computes, in order.
pub(super) type Order = Vec<(Pass, Task)>;

/// Warm-up: `warm_up` forward passes. Steady: one forward, one backward. Cool-down: the backward passes left.
pub(super) fn forwards_then_backwards(forwards: &[Task], backwards: &[Task], warm_up: usize) -> Order {
    let (warm, steady) = forwards.split_at(warm_up.min(forwards.len()));
    let (paired, cool_down) = backwards.split_at(steady.len().min(backwards.len()));
    let forward = |&task: &Task| (Pass::Forward, task);
    let backward = |&task: &Task| (Pass::Backward, task);
    let mut order = Vec::with_capacity(forwards.len() + backwards.len());
    order.extend(warm.iter().map(forward));
    for (forwards, backwards) in steady.iter().zip(paired) {
        order.extend([forward(forwards), backward(backwards)]);
    }
    order.extend(cool_down.iter().map(backward));
    order
}
