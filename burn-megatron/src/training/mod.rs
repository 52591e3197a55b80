//! The training loop's parts: configuration, step, schedules, metrics.

mod batch_size;
#[cfg(feature = "trainer")]
mod config;
#[cfg(feature = "trainer")]
mod error;
pub mod flops;
#[cfg(feature = "checkpoint")]
mod load;
pub mod memory;
mod metrics;
#[cfg(feature = "trainer")]
mod model;
#[cfg(feature = "trainer")]
mod non_finite;
#[cfg(feature = "trainer")]
mod objective;
pub mod preflight;
mod schedule;
#[cfg(feature = "checkpoint")]
mod snapshot;
mod spread;
mod stragglers;
#[cfg(feature = "trainer")]
mod token_count;
#[cfg(feature = "trainer")]
mod token_losses;
#[cfg(feature = "trainer")]
mod trainer;
#[cfg(feature = "trainer")]
mod trainer_config;
mod weight_decay;

pub use batch_size::{BatchSizeError, BatchSizeRampUp, BatchSizeSchedule};
#[cfg(feature = "trainer")]
pub use config::{TrainingConfig, TrainingConfigError};
#[cfg(feature = "trainer")]
pub use error::TrainingError;
#[cfg(feature = "checkpoint")]
pub use load::load_parameters;
pub use metrics::StepMetrics;
#[cfg(feature = "trainer")]
pub use model::{EncoderBatch, LanguageModel, TokenBatch};
#[cfg(feature = "trainer")]
pub use non_finite::NonFiniteOrigin;
pub use schedule::{AnnealingStyle, LearningRateConfig, LearningRateDecay, LearningRateSchedule, ScheduleError};
#[cfg(feature = "checkpoint")]
pub use snapshot::{MODEL, RestoreError, restore, snapshot};
pub use stragglers::{RankTime, StragglerReport};
#[cfg(feature = "trainer")]
pub use trainer::{StepResult, Trainer, TrainerState};
#[cfg(feature = "trainer")]
pub use trainer_config::TrainerConfig;
pub use weight_decay::{WeightDecayConfig, WeightDecayError, WeightDecayIncrease, WeightDecaySchedule};
