//! Flags of what changes parameters: the optimizer, its learning rate, adapters in place of parameters.

pub(super) mod adapters;
pub(super) mod learning_rate;
pub(super) mod optimization;
