//! Random numbers by their place: Philox, and the dropout that the operations here apply.

mod dropout;
pub mod philox;

pub use dropout::{BLOCK_BITS, RowDropout, RowPlace};
