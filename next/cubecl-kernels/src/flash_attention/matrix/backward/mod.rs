//! The backward pass, in two forms that share what they compute first.
//!
//! [`keys`]: a cube keeps keys and values. It computes each score once, and adds the gradients of queries to memory,
//! in whatever order cubes come to it: five products, not the same bits every time. Without that, the same kernel
//! gives the gradients of keys and values alone, and [`queries`] those of queries: seven products, the same bits every
//! time.
//!
//! # Reference
//! Dao 2023, arXiv:2307.08691, algorithm 2.

pub(in super::super) mod keys;
pub(in super::super) mod queries;
mod scores;
pub(in super::super) mod split;
pub(in super::super) mod store;
