//! Error of an update.

use super::OffloadError;
use crate::collectives::CollectiveError;
use crate::data_parallel::DataParallelError;

/// Error of an update.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum OptimizerError {
    /// The parameters could not be gathered: the module is lost.
    #[error(transparent)]
    Collective(#[from] CollectiveError),
    /// The module cannot be updated.
    #[error(transparent)]
    DataParallel(#[from] DataParallelError),
    /// Offloaded state cannot be read or written, or not be made.
    #[error(transparent)]
    Offload(#[from] OffloadError),
    /// Parameters were frozen or thawed, so that those that are trained are in other shards.
    #[error(
        "this rank's piece of parameter {name} is no longer the one whose state the optimizer holds: other parameters \
         are trained than when it was made; make a new optimizer"
    )]
    PiecesMoved {
        /// The first such parameter.
        name: String,
    },
    #[error("parameter {name} was given to optimizer {group}, but there are {count}")]
    Group { name: String, group: usize, count: usize },
    #[error(
        "Muon updates matrices, and parameter {name} has the shape {shape:?}: give it another optimizer, in a \
         parameter group of its own"
    )]
    NoMatrix { name: String, shape: Vec<usize> },
    /// An optimizer that has taken steps, or loaded a record.
    #[error(
        "the optimizer has state already, in {count} tensors, which cannot be shared out: give ShardedOptimizer a new \
         one, and take up an earlier run by training::restore"
    )]
    HasState { count: usize },
}
