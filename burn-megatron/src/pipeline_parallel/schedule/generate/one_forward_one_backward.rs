//! 1F1B with a flush: after a warm-up each stage alternates between forward and backward. It has GPipe's bubble,
//! (p - 1) / m, but stage s holds the activations of min(p - s, m) micro-batches only.
//!
//! # Reference
//! PipeDream-flush: Narayanan et al. 2021, arXiv:2006.09503, section 3.2.

use super::{
    Sizes, one_chunk,
    order::{Order, forwards_then_backwards},
};

/// The order on `stage`, whose warm-up is min(p - stage - 1, m): the forward passes until its first gradient is back.
pub(super) fn order(sizes: Sizes, stage: usize) -> Order {
    let tasks = one_chunk(sizes.num_micro_batches);
    forwards_then_backwards(&tasks, &tasks, sizes.num_stages - stage - 1)
}
