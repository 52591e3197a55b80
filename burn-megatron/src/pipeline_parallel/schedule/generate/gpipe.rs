//! GPipe: all forward passes, then all backward passes. Every stage holds the activations of all m micro-batches; the
//! bubble is (p - 1) / m.
//!
//! The paper draws the backward passes in descending order. They ascend here, which costs the same and sums the
//! gradients in the order of the other schedules.
//!
//! # Reference
//! Huang et al. 2019, arXiv:1811.06965, figure 2.

use super::{
    one_chunk,
    order::{Order, forwards_then_backwards},
};

/// The order on every stage.
pub(super) fn order(num_micro_batches: usize) -> Order {
    let tasks = one_chunk(num_micro_batches);
    forwards_then_backwards(&tasks, &tasks, num_micro_batches)
}
