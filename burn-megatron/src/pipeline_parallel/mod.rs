//! Pipeline parallelism: a model cut into stages, one or more per rank, that pass activations on and gradients back.
//!
//! [`schedule`] says, without a tensor, what each rank does in which order.

pub mod schedule;
