//! The training loop's parts: configuration, step, schedules, metrics. Called by training programs.

mod batch_size;
mod config;
mod error;
pub mod flops;
pub mod memory;
mod metrics;
mod model;
mod non_finite;
pub mod preflight;
mod schedule;
mod snapshot;
mod stragglers;
mod token_losses;
mod trainer;
mod trainer_config;
mod weight_decay;

pub use batch_size::{BatchSizeError, BatchSizeRampUp, BatchSizeSchedule};
pub use config::{TrainingConfig, TrainingConfigError};
pub use error::TrainingError;
pub use metrics::StepMetrics;
pub use model::{LanguageModel, TokenBatch};
pub use non_finite::NonFiniteOrigin;
pub use schedule::{AnnealingStyle, LearningRateConfig, LearningRateDecay, LearningRateSchedule, ScheduleError};
pub use snapshot::{MODEL, RestoreError, restore, snapshot};
pub use stragglers::{RankTime, StragglerReport};
pub use trainer::{StepResult, Trainer, TrainerState};
pub use trainer_config::TrainerConfig;
pub use weight_decay::{WeightDecayConfig, WeightDecayError, WeightDecayIncrease, WeightDecaySchedule};
