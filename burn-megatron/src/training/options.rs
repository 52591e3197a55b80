//! `TrainerOptions`: what a trainer is told beside the settings of the training.

use crate::data_parallel::DataParallelConfig;
use crate::optimizer::LossScaleConfig;
use crate::pipeline_parallel::Timeline;
use crate::pipeline_parallel::schedule::ScheduleKind;

/// How the trainer uses the layout.
#[derive(Clone, Debug)]
pub struct TrainerOptions {
    /// Buckets and synchronisation of the data-parallel ranks.
    pub data_parallel: DataParallelConfig,
    /// Whether a sharded optimizer gathers updated buckets while it updates the next ones.
    pub overlap_param_gather: bool,
    /// The order of the micro-batches; 1F1B, interleaved where stages have several chunks, if not given.
    pub schedule: Option<ScheduleKind>,
    /// What the loss is multiplied by for the backward pass: for parameters in f16. Not at all if not given.
    pub loss_scale: Option<LossScaleConfig>,
    /// Whether the elements of the gradient that are zero or not finite are counted in each step.
    pub count_gradients: bool,
    /// Where what this rank does is recorded, while it is on.
    pub timeline: Timeline,
}

impl Default for TrainerOptions {
    fn default() -> Self {
        Self {
            data_parallel: DataParallelConfig::new(),
            overlap_param_gather: true,
            schedule: None,
            loss_scale: None,
            count_gradients: false,
            timeline: Timeline::default(),
        }
    }
}
