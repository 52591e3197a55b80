//! `TrainerConfig`: how a trainer uses the layout, in addition to the settings of the training.

use burn::config::Config;

use crate::data_parallel::DataParallelConfig;
use crate::optimizer::{LossScaleConfig, LossScaler, OptimizerOffload};
use crate::pipeline_parallel::schedule::ScheduleKind;

/// How the trainer uses the layout.
#[derive(Config, Debug)]
pub struct TrainerConfig {
    /// Buckets and synchronisation of the data-parallel ranks.
    #[config(default = "DataParallelConfig::new()")]
    pub data_parallel: DataParallelConfig,
    /// Whether a sharded optimizer gathers updated parameters while it updates the next buckets and while the next
    /// forward pass runs.
    #[config(default = true)]
    pub overlap_param_gather: bool,
    /// The order of the micro-batches; 1F1B, interleaved where stages have several chunks, if not given.
    pub schedule: Option<ScheduleKind>,
    /// What the loss is multiplied by for the backward pass: for parameters in f16. Not at all if not given.
    pub loss_scale: Option<LossScaleConfig>,
    /// The steps in a row, skipped at a loss scale that cannot fall, that end training with an error: they change
    /// nothing, and no later one would do better.
    #[config(default = "LossScaler::MAX_SKIPS")]
    pub max_skipped_steps: u32,
    /// Whether the elements of the gradient that are zero or not finite are counted in each step.
    #[config(default = false)]
    pub count_gradients: bool,
    /// Where the optimizer's state is, and what updates it.
    #[config(default = "OptimizerOffload::None")]
    pub offload: OptimizerOffload,
}

impl Default for TrainerConfig {
    fn default() -> Self {
        Self::new()
    }
}
