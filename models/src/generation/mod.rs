//! Text from a model, token by token: a paged cache of keys and values, sampling, and a [`Generator`] whose batch
//! sequences join and leave at any step. In any layout; each data-parallel replica has a generator of its own.
//!
//! From a request to its text:
//!
//! | file | what it holds |
//! |---|---|
//! | `request` | [`GenerationRequest`], and what is refused before anything is computed |
//! | `pages` | [`CacheConfig`]: the cache's size in bytes, and which pages are free |
//! | `scheduler` | on rank 0: the queue, and which sequences compute what in the next step |
//! | `plan` | a step as rank 0 decides it, broadcast to all ranks |
//! | `replica` | on every rank: sequences and their pages; the step through this rank's stage |
//! | `stage` | [`GenerationStage`], what is asked of a part of a model |
//! | `sampling` | [`SamplingConfig`], and the choice of a token: pure, by coordinates |
//! | `text` | tokens to pieces of text: characters and stop sequences stay whole |
//! | `config` | [`GeneratorConfig`]: the limits of batch, step and queue |
//! | `generator` | [`Generator`], which puts these together |
//!
//! Every rank of a model calls [`Generator::step`] in turn; rank 0 alone takes requests and gives events. The pages of
//! a whole request are reserved when it is admitted, so that a sequence that has begun always ends, and none has to
//! give up its place.

mod config;
mod error;
mod generator;
mod pages;
mod plan;
mod replica;
mod request;
mod sampling;
mod scheduler;
mod stage;
mod text;

pub use config::GeneratorConfig;
pub use error::GenerationError;
pub use generator::Generator;
pub use pages::{CacheConfig, CacheUse};
pub use request::{FinishReason, GenerationEvent, GenerationRequest, RequestError, RequestId, TokenScore};
pub use sampling::{Choice, DrawPlace, History, SamplingConfig, SamplingError, choose};
pub use stage::{GenerationStage, NewTokens};
pub use text::TextStream;
