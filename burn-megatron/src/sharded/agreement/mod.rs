//! Comparisons of ranks: what they were given, and whether replicas are the same.

pub(super) mod given;
mod replicas;

pub use replicas::{ReplicaCheck, ReplicaError, check_replicas};
