//! Random numbers by their place: Philox, and the dropout that the operations here apply.

mod dropout;
pub mod philox;

#[cfg(feature = "cubecl")]
pub(crate) use dropout::BLOCK_BITS;
pub use dropout::{RowDropout, RowPlace};
