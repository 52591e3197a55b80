//! The training loop's parts: configuration, step, learning rate, metrics. Called by training programs.

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

pub use config::{TrainingConfig, TrainingConfigError};
pub use metrics::StepMetrics;
pub use model::{LanguageModel, TokenBatch};
pub use non_finite::NonFiniteOrigin;
pub use schedule::{LearningRateConfig, LearningRateDecay, LearningRateSchedule, ScheduleError};
pub use snapshot::{MODEL, RestoreError, restore, snapshot};
pub use stragglers::{RankTime, StragglerReport};
pub use trainer::{StepResult, Trainer, TrainerOptions, TrainerState, TrainingError};
