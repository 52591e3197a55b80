//! The training loop's parts: configuration, step, schedules, metrics. Called by training programs.

mod batch_size;
mod config;
pub mod flops;
pub mod memory;
mod metrics;
mod model;
mod non_finite;
pub mod preflight;
mod schedule;
mod snapshot;
mod stragglers;
mod trainer;
mod weight_decay;

pub use batch_size::{BatchSizeError, BatchSizeRampUp, BatchSizeSchedule};
pub use config::{TrainingConfig, TrainingConfigError};
pub use metrics::StepMetrics;
pub use model::{LanguageModel, TokenBatch};
pub use non_finite::NonFiniteOrigin;
pub use schedule::{AnnealingStyle, LearningRateConfig, LearningRateDecay, LearningRateSchedule, ScheduleError};
pub use snapshot::{MODEL, RestoreError, restore, snapshot};
pub use stragglers::{RankTime, StragglerReport};
pub use trainer::{StepResult, Trainer, TrainerOptions, TrainerState, TrainingError};
pub use weight_decay::{WeightDecayConfig, WeightDecayError, WeightDecayIncrease, WeightDecaySchedule};
