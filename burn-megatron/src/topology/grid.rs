//! `RankGrid`: the arithmetic between a rank and its place on the tensor, data and pipeline axes.
//!
//! Called wherever a group of ranks is needed.

use serde::{Deserialize, Serialize};

/// A grid of ranks: tensor fastest, then data, then pipeline (Megatron's order `tp-dp-pp`).
///
/// `rank = tensor + tensor_size * (data + data_size * pipeline)`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankGrid {
    tensor_size: usize,
    data_size: usize,
    pipeline_size: usize,
}

/// A rank's place on the three axes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coordinates {
    /// Index on the tensor axis.
    pub tensor: usize,
    /// Index on the data axis.
    pub data: usize,
    /// Index on the pipeline axis: the stage.
    pub pipeline: usize,
}

/// The kinds of group that a rank belongs to, one group of each kind at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupKind {
    /// Every rank.
    World,
    /// The ranks that share each layer.
    Tensor,
    /// The ranks that hold the same parameters and see different samples.
    Data,
    /// The stages of one pipeline.
    Pipeline,
    /// The first and the last stage of one pipeline, which hold copies of a tied embedding.
    Embedding,
    /// The ranks that together hold one whole model: tensor × pipeline.
    Model,
}

impl GroupKind {
    /// All kinds, in the order in which their process groups are made.
    pub const ALL: [GroupKind; 6] = [
        GroupKind::World,
        GroupKind::Tensor,
        GroupKind::Data,
        GroupKind::Pipeline,
        GroupKind::Embedding,
        GroupKind::Model,
    ];

    /// The kind's name in messages and in the rendezvous store.
    pub fn name(self) -> &'static str {
        match self {
            GroupKind::World => "world",
            GroupKind::Tensor => "tensor",
            GroupKind::Data => "data",
            GroupKind::Pipeline => "pipeline",
            GroupKind::Embedding => "embedding",
            GroupKind::Model => "model",
        }
    }
}

impl RankGrid {
    /// Returns the grid with these sizes, all at least 1 (see [`ParallelConfig::grid`](super::ParallelConfig::grid)).
    pub(super) fn new(tensor_size: usize, data_size: usize, pipeline_size: usize) -> Self {
        Self {
            tensor_size,
            data_size,
            pipeline_size,
        }
    }

    /// The tensor-parallel size.
    pub fn tensor_parallel_size(&self) -> usize {
        self.tensor_size
    }

    /// The data-parallel size.
    pub fn data_parallel_size(&self) -> usize {
        self.data_size
    }

    /// The pipeline-parallel size.
    pub fn pipeline_parallel_size(&self) -> usize {
        self.pipeline_size
    }

    /// The number of ranks.
    pub fn world_size(&self) -> usize {
        self.tensor_size * self.data_size * self.pipeline_size
    }

    /// Returns the place of `rank` on the axes.
    ///
    /// # Panics
    /// When `rank` is outside the world.
    pub fn coordinates(&self, rank: usize) -> Coordinates {
        assert!(
            rank < self.world_size(),
            "rank {rank} is outside a world of {} ranks",
            self.world_size()
        );
        Coordinates {
            tensor: rank % self.tensor_size,
            data: rank / self.tensor_size % self.data_size,
            pipeline: rank / (self.tensor_size * self.data_size),
        }
    }

    /// Returns the rank at a place on the axes.
    ///
    /// # Panics
    /// When a coordinate is outside its axis.
    pub fn rank(&self, at: Coordinates) -> usize {
        assert!(
            at.tensor < self.tensor_size && at.data < self.data_size && at.pipeline < self.pipeline_size,
            "{at:?} is outside {self:?}"
        );
        at.tensor + self.tensor_size * (at.data + self.data_size * at.pipeline)
    }

    /// Returns the ranks, ascending, of the group of `kind` that `rank` belongs to.
    ///
    /// None for [`GroupKind::Embedding`] on a stage between the first and the last.
    ///
    /// # Panics
    /// When `rank` is outside the world.
    pub fn group(&self, kind: GroupKind, rank: usize) -> Option<Vec<usize>> {
        let here = self.coordinates(rank);
        let last_stage = self.pipeline_size - 1;
        let same_group = |other: &Coordinates| match kind {
            GroupKind::World => true,
            GroupKind::Tensor => other.data == here.data && other.pipeline == here.pipeline,
            GroupKind::Data => other.tensor == here.tensor && other.pipeline == here.pipeline,
            GroupKind::Pipeline => other.tensor == here.tensor && other.data == here.data,
            GroupKind::Embedding => {
                other.tensor == here.tensor
                    && other.data == here.data
                    && (other.pipeline == 0 || other.pipeline == last_stage)
            }
            GroupKind::Model => other.data == here.data,
        };
        let ranks: Vec<usize> = (0..self.world_size())
            .filter(|&other| same_group(&self.coordinates(other)))
            .collect();
        ranks.contains(&rank).then_some(ranks)
    }
}
