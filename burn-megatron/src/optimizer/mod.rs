//! Optimizers and what belongs to their step. Called by the trainer.

mod adamw;

pub use adamw::{AdamW, AdamWConfig, AdamWState};
