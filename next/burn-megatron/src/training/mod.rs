//! The training loop's parts: configuration, step, schedules, metrics.

mod batch_size;
pub mod flops;
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
mod spread;
mod stragglers;
#[cfg(feature = "trainer")]
mod token_count;
#[cfg(feature = "trainer")]
mod token_losses;
mod weight_decay;

pub use batch_size::{BatchSizeError, BatchSizeRampUp, BatchSizeSchedule};
pub use metrics::StepMetrics;
#[cfg(feature = "trainer")]
pub use model::{EncoderBatch, LanguageModel, TokenBatch};
#[cfg(feature = "trainer")]
pub use non_finite::NonFiniteOrigin;
pub use schedule::{AnnealingStyle, LearningRateConfig, LearningRateDecay, LearningRateSchedule, ScheduleError};
pub use stragglers::{RankTime, StragglerReport};
pub use weight_decay::{WeightDecayConfig, WeightDecayError, WeightDecayIncrease, WeightDecaySchedule};
