//! What makes new parameters of gradients.
//!
//! [`ShardedOptimizer`] updates the module of a
//! [`DistributedDataParallel`](crate::data_parallel::DistributedDataParallel) by any [`ElementWise`] burn optimizer,
//! such as [`AdamW`], which has hyperparameters in f64, and [`Sgd`], whose momentum a checkpoint can hold.

mod adamw;
mod bucket_state;
mod error;
mod loss_scale;
mod memory;
mod piece;
mod sgd;
mod sharded;
mod stored;

pub use adamw::{AdamW, AdamWConfig, AdamWState};
pub use error::OptimizerError;
pub use loss_scale::{DynamicLossScale, LossScaleConfig, LossScaleError, LossScaler, LossScalerState};
pub use memory::bytes_per_parameter;
pub use sgd::{Sgd, SgdConfig, SgdState};
pub use sharded::ShardedOptimizer;
pub use stored::{StateTensor, StoredOptimizer};

pub use crate::data_parallel::{BucketForm, ElementWise};
