//! Pipeline parallelism: a model cut into stages, one or more per rank, that pass activations on and gradients back.
//!
//! [`layer_layout`] says which layers each stage has, and [`schedule`], without a tensor, what each rank does in which
//! order.

pub mod layer_layout;
pub mod schedule;
