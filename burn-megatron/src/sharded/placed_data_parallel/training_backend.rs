//! [`PlacedTrainingBackend`]: the backend that a placed model is trained on, and the one of this rank's parts.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;

use crate::autodiff::TrainingBackend;
use crate::collectives::CollectiveBackend;
use crate::sharded::Sharded;
use crate::sharded::parallelize::ShardedBackend;

/// [`Autodiff`] around [`Sharded`], and around the backend inside.
pub trait PlacedTrainingBackend: ShardedBackend + TrainingBackend<InnerBackend = Sharded<Self::Local>> {
    /// The backend that this rank's parts are trained on.
    type LocalTraining: TrainingBackend<InnerBackend = Self::Local>;
}

impl<B: CollectiveBackend, C: CheckpointStrategy> PlacedTrainingBackend for Autodiff<Sharded<B>, C> {
    type LocalTraining = Autodiff<B, C>;
}
