//! Tensors on their way from one placement to another.

pub(super) mod all_to_all;
pub(super) mod redistribute;
pub(super) mod stacking;
