//! [`Movement`] and [`RegionEntry`]: how tensors move between the ranks of a group.

/// A movement of a tensor's data between the ranks of a group. Dimension counts from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Movement {
    /// The tensor stays as it is.
    Keep,
    /// Each rank receives the sum over all ranks.
    AllReduce,
    /// Each rank keeps its own of `size` equal parts along a dimension.
    Split {
        /// The dimension that is cut.
        dimension: usize,
    },
    /// Each rank receives the parts of all ranks, joined along a dimension.
    AllGather {
        /// The dimension that grows.
        dimension: usize,
    },
    /// Each rank receives its own of `size` equal parts, along dimension 0, of the sum over all ranks.
    ReduceScatter,
}

/// How the ranks of a tensor-parallel group come by the same input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionEntry {
    /// Every rank has it; its gradient is all-reduced.
    Copy,
    /// Each has its own rows, which are gathered; its gradient is reduce-scattered.
    GatherRows,
}

impl RegionEntry {
    /// The movement of the input.
    pub(super) fn movement(self) -> Movement {
        match self {
            RegionEntry::Copy => Movement::Keep,
            RegionEntry::GatherRows => Movement::AllGather { dimension: 0 },
        }
    }
}
