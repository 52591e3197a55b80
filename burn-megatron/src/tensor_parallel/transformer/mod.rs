//! burn's transformer composites with their layers shared out over the tensor-parallel group.
//!
//! Each is made from burn's own module by a `from_…` function and called as it: input and output are
//! `[batch, seq, d_model]` on every tensor-parallel rank, so the layers around it stay as they are; declare these by
//! [`declare_rest_replicated`](crate::context::ParameterScope::declare_rest_replicated). Under sequence parallelism
//! the tokens are shared out inside.
//!
//! Dropout is [`Dropout`](crate::random::Dropout), by coordinates: the same elements are dropped in every layout. The
//! program names the step by `ParallelContext::set_step` before each forward pass, or gives
//! an input its coordinates; an active dropout without them panics.
//!
//! The layers of a converted encoder or decoder are public: a pipeline stage converts the whole and keeps its part.

mod cache;
mod decoder;
mod encoder;
mod feed_forward;
mod residual;

pub use decoder::{
    ParallelTransformerDecoder, ParallelTransformerDecoderLayer, TransformerDecoderAutoregressiveCache,
    TransformerDecoderInput,
};
pub use encoder::{
    ParallelTransformerEncoder, ParallelTransformerEncoderLayer, TransformerEncoderAutoregressiveCache,
    TransformerEncoderInput,
};
pub use feed_forward::ParallelPositionWiseFeedForward;

#[cfg(test)]
mod tests;
