//! Placed models that cannot be wrapped.

use crate::data_parallel::DataParallelError;
use crate::sharded::slot::OtherDevice;

/// A placed model that cannot be wrapped.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum PlacedError {
    /// The mesh has axes that are not the context's.
    #[error(
        "the mesh's axes over {of} are of ranks {axes:?}, the context's group for them of ranks {group:?}: make the \
         mesh by Mesh::of(&context); for parameters that are cut over data-parallel ranks, too, give \
         context.fully_sharded(), for hybrid sharding a context whose tensor_parallel_size counts the ranks of a \
         replica"
    )]
    Mesh {
        of: &'static str,
        axes: Vec<Vec<usize>>,
        group: Vec<usize>,
    },
    /// A parameter has no place in it.
    #[error(transparent)]
    Parameter(#[from] LocalParameterError),
    /// The model is on another device.
    #[error(transparent)]
    OtherDevice(#[from] OtherDevice),
    /// The parts could not be wrapped.
    #[error(transparent)]
    DataParallel(#[from] DataParallelError),
}

/// A parameter that [`LocalParameters`](super::LocalParameters) cannot hold.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum LocalParameterError {
    #[error(
        "parameter {name} is cut over the data-parallel ranks {ranks:?}, which the context counts as ranks that hold \
         the same parameters: give context.fully_sharded() (for hybrid sharding a context whose tensor_parallel_size \
         counts the ranks of a replica), or leave fully_shard out of the plan and shard the optimizer's state alone by \
         DataParallelConfig::with_sharding(ShardingStrategy::Optim)"
    )]
    CutOverReplicas { name: String, ranks: Vec<usize> },
    #[error("parameter {name} has {dimensions} dimensions; those of a model in DistributedDataParallel have 6 at most")]
    Dimensions { name: String, dimensions: usize },
}
