//! Claims about every operation: references, refusals, empty tensors, threads, memory, limits of devices.

pub(super) mod attention_memory;
pub(super) mod device_limits;
pub(super) mod nothing;
pub(super) mod random;
pub(super) mod reductions;
pub(super) mod references;
pub(super) mod refusals;
pub(super) mod threads;
pub(super) mod vector_sums;
