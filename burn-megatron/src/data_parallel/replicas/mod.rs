//! Agreement of replicas: their lists of parameters, first values, weights and buffers, and what may differ.

pub(super) mod agreement;
pub(super) mod buffers;
pub(super) mod foreign_dropout;
pub(super) mod generators;
pub(super) mod replica_check;
pub(super) mod sync;
pub(super) mod undrawn;
