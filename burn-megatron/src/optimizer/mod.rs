//! What makes new parameters of gradients.
//!
//! [`ShardedOptimizer`] updates the module of a
//! [`DistributedDataParallel`](crate::data_parallel::DistributedDataParallel) by any element-wise burn optimizer, such as
//! [`AdamW`], which has hyperparameters in f64. Called by the trainer and by programs that train a model of their own.

mod adamw;
mod loss_scale;
mod memory;
mod sharded;
mod stored;

pub use adamw::{AdamW, AdamWConfig, AdamWState};
pub use loss_scale::{DynamicLossScale, LossScaleConfig, LossScaleError, LossScaler, LossScalerState};
pub use memory::bytes_per_parameter;
pub use sharded::{OptimizerError, ShardedOptimizer};
pub use stored::{StateTensor, StoredOptimizer};
