//! Data parallelism around any burn module: each rank sees its own samples, and gradients are averaged.
//!
//! [`DistributedDataParallel`] hooks every parameter of a module for one forward pass, so that its gradient leaves the
//! autodiff graph the moment it is complete and is added to a flat bucket; on the last micro-batch, full buckets are
//! reduced during the backward pass.

mod agreement;
mod average;
mod binding;
mod bucket;
mod bucket_in_flight;
mod bucket_parameter;
mod buffers;
mod clip_params;
mod clipping;
mod comparison;
mod element_wise;
mod error;
mod factored_form;
mod finalisation;
mod flat;
mod foreign_dropout;
mod generators;
mod gradient_entry;
mod gradients;
mod hook_module;
mod matrix_form;
mod owned_values;
mod parameter_gather;
mod parameter_offload;
mod parameter_shards;
mod parameters_in_flight;
mod partial;
mod pass;
pub(crate) mod planted_faults;
#[cfg(test)]
mod printing;
mod progress;
mod reducer;
mod replace;
mod replica_check;
mod sharded_parameters;
mod sharding_strategy;
mod step;
mod summing_ranks;
mod sync;
mod undrawn;
mod update;
mod watched;
mod weighted;
mod wrapper;

pub use average::average_gradients;
pub use bucket::{BucketClass, BucketLayout, BucketSlot};
pub use bucket_parameter::{BucketParameter, bucket_parameters, default_bucket_size};
pub use clip_params::clip_each_gradient;
pub use element_wise::{BucketForm, ElementWise};
pub use error::DataParallelError;
pub use factored_form::{FactoredForm, FactoredMoment, FactoredStep, SecondMoment};
pub(crate) use flat::main_type;
#[cfg(feature = "trainer")]
pub(crate) use foreign_dropout::differs_in_training;
pub(crate) use foreign_dropout::has_foreign_dropout;
pub use gradient_entry::GradientEntry;
pub use gradients::{GradientCounts, ReducedGradients, clip_coefficient};
pub(crate) use hook_module::map_once;
pub use matrix_form::{MatrixFactors, MatrixForm};
pub(crate) use owned_values::OwnedValues;
pub(crate) use parameter_gather::{PendingParameters, laid_out};
pub use parameter_offload::ParameterOffload;
pub use partial::sum_partial_gradients;
pub use progress::Progress;
pub use replica_check::check_replicas;
pub use sharding_strategy::{ShardedStagesError, ShardingStrategy};
pub use step::ModuleOptimizer;
pub use sync::WeightSync;
pub(crate) use watched::watched;
pub use wrapper::{DataParallelConfig, DistributedDataParallel, StepPart};
