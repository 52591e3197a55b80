//! Optimizers and what belongs to their step. Called by the trainer.

mod adamw;
mod loss_scale;

pub use adamw::{AdamW, AdamWConfig, AdamWState};
pub use loss_scale::{DynamicLossScale, LossScaleConfig, LossScaleError, LossScaler, LossScalerState};
