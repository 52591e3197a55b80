//! Bounds of numbers from outside.

/// Largest number of ranks: far above any job, and small enough that the store can keep a list of all.
pub(crate) const MAX_WORLD_SIZE: usize = 1 << 20;
