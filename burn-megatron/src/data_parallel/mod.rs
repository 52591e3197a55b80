//! Data parallelism around any burn module: each rank sees its own samples, and gradients are averaged.
//!
//! [`DistributedDataParallel`] hooks every parameter of a module for one forward pass, so that its gradient leaves the
//! autodiff graph the moment it is complete and is added to a flat bucket; on the last micro-batch, full buckets are
//! reduced during the backward pass.

mod bucket_forms;
mod buckets;
mod error;
mod gradients;
mod module;
mod progress;
mod replicas;
mod sharding_strategy;
mod shards;
mod watched;

pub use bucket_forms::element_wise::{BucketForm, ElementWise};
pub use bucket_forms::factored_form::{FactoredForm, FactoredMoment, FactoredStep, SecondMoment};
pub use bucket_forms::matrix_form::{MatrixFactors, MatrixForm};
pub use buckets::bucket::{BucketClass, BucketLayout, BucketSlot};
pub use buckets::bucket_parameter::{BucketParameter, bucket_parameters, default_bucket_size};
pub(crate) use buckets::flat::main_type;
pub use buckets::gradient_entry::GradientEntry;
pub use error::DataParallelError;
pub use gradients::average::average_gradients;
pub use gradients::clip_params::clip_each_gradient;
pub use gradients::partial::sum_partial_gradients;
pub use gradients::reduced::{GradientCounts, ReducedGradients, clip_coefficient};
pub(crate) use module::pass::refuse_several;
pub use module::step::{ElementWiseOptimizer, ModuleStep};
pub use module::wrapper::{DataParallelConfig, DistributedDataParallel, StepPart};
pub use progress::Progress;
#[cfg(feature = "trainer")]
pub(crate) use replicas::foreign_dropout::differs_in_training;
pub(crate) use replicas::foreign_dropout::has_foreign_dropout;
pub use replicas::replica_check::check_replicas;
pub use replicas::sync::WeightSync;
pub use sharding_strategy::{ShardedStagesError, ShardingStrategy};
pub(crate) use shards::owned_values::OwnedValues;
pub(crate) use shards::parameter_gather::{PendingParameters, laid_out};
pub use shards::parameter_offload::ParameterOffload;
pub(crate) use watched::watched;
