//! Figures of PyTorch and of transformers' models, which one rank and every layout reproduce.

pub(super) mod fixtures;
pub(super) mod optimizers;
pub mod settings;
pub(super) mod transformers;
