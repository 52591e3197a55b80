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

/// The axes along which the ranks of a group differ.
#[derive(Clone, Copy)]
struct Axes {
    tensor: bool,
    data: bool,
    pipeline: bool,
}

impl Axes {
    fn of(kind: GroupKind) -> Self {
        let [tensor, data, pipeline] = match kind {
            GroupKind::World => [true, true, true],
            GroupKind::Tensor => [true, false, false],
            GroupKind::Data => [false, true, false],
            GroupKind::Pipeline | GroupKind::Embedding => [false, false, true],
            GroupKind::Model => [true, false, true],
        };
        Self { tensor, data, pipeline }
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
        let spans = Axes::of(kind);
        let last_stage = self.pipeline_size - 1;
        if kind == GroupKind::Embedding && here.pipeline != 0 && here.pipeline != last_stage {
            return None;
        }
        let axis = |is_spanned: bool, size: usize, here: usize| if is_spanned { 0..size } else { here..here + 1 };
        let tensors = axis(spans.tensor, self.tensor_size, here.tensor);
        let datas = axis(spans.data, self.data_size, here.data);
        let pipelines = axis(spans.pipeline, self.pipeline_size, here.pipeline);
        let has_part = |&stage: &usize| kind != GroupKind::Embedding || stage == 0 || stage == last_stage;
        let mut ranks = Vec::new();
        for pipeline in pipelines.filter(has_part) {
            for data in datas.clone() {
                ranks.extend(
                    tensors
                        .clone()
                        .map(|tensor| self.rank(Coordinates { tensor, data, pipeline })),
                );
            }
        }
        Some(ranks)
    }

    /// Returns the ranks of every group of `kind`, in the order of their first ranks.
    pub fn groups(&self, kind: GroupKind) -> impl Iterator<Item = Vec<usize>> {
        let spans = Axes::of(kind);
        let is_first = move |rank: &usize| {
            let at = self.coordinates(*rank);
            (at.tensor == 0 || !spans.tensor) && (at.data == 0 || !spans.data) && (at.pipeline == 0 || !spans.pipeline)
        };
        let firsts = (0..self.world_size()).filter(is_first);
        firsts.filter_map(move |rank| self.group(kind, rank))
    }
}
