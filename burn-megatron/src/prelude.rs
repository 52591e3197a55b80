//! Names for a program that makes a burn model parallel: `use burn_megatron::prelude::*;`, next to `burn::prelude::*`.
//!
//! No name of it is also in burn's prelude. Optimizers, losses and layers of burn keep their own names: what replaces
//! them here, such as [`random::Dropout`](crate::random::Dropout), is imported by its module.

#[cfg(feature = "checkpoint")]
pub use crate::checkpoint::{Checkpoint, CheckpointConfig, CheckpointWriter};
pub use crate::collectives::{CollectiveBackend, ProcessGroup, ReduceOp};
pub use crate::context::{ParallelContext, ParallelContextConfig, ParameterScope};
#[cfg(feature = "dataset")]
pub use crate::data::{LastBatch, shard_loader};
pub use crate::data_parallel::{
    DataParallelConfig, DistributedDataParallel, ElementWiseOptimizer, ShardingStrategy, StepPart, average_gradients,
};
pub use crate::launch::World;
#[cfg(feature = "learner")]
pub use crate::learner::ParallelLearner;
pub use crate::optimizer::ShardedOptimizer;
pub use crate::pipeline_parallel::schedule::{ScheduleConfig, ScheduleKind};
pub use crate::pipeline_parallel::{PipelineExecutor, PipelineStage, StageOutput};
pub use crate::tensor_parallel::{
    ColumnParallelLinear, ColumnParallelLinearConfig, ConversionError, ParallelMultiHeadAttention,
    ParallelPositionWiseFeedForward, ParallelTransformerDecoder, ParallelTransformerEncoder, RowParallelLinear,
    RowParallelLinearConfig, TransformerDecoderInput, TransformerEncoderInput,
};
pub use crate::topology::{ParallelConfig, TopologyError};
#[cfg(feature = "checkpoint")]
pub use crate::training::{restore, snapshot};
