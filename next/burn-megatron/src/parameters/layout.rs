//! `Placement` and `Distribution`: which elements of a logical parameter a rank holds, and who else holds them.
//!
//! Pure integers.

use serde::{Deserialize, Serialize};

/// The box of a logical parameter that this rank holds, and the local array that stores it.
///
/// Both have the same number of dimensions. A fused query-key-value weight has the logical shape
/// `[d_model, 3, n_heads, d_head]`, so that a tensor-parallel shard of it, a third of each of q, k and v, is one box.
/// Where the local array reaches beyond the logical shape (a padded vocabulary), the rest of it is padding: zero,
/// and part of nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Placement {
    logical_shape: Vec<usize>,
    offset: Vec<usize>,
    local_shape: Vec<usize>,
    fused_dimension: Option<usize>,
}

impl Placement {
    /// Returns the placement of an array of `local_shape` at `offset` of a parameter of `logical_shape`.
    ///
    /// # Panics
    /// When the three do not have the same number of dimensions.
    pub fn new(
        logical_shape: impl Into<Vec<usize>>,
        offset: impl Into<Vec<usize>>,
        local_shape: impl Into<Vec<usize>>,
    ) -> Self {
        let (logical_shape, offset, local_shape) = (logical_shape.into(), offset.into(), local_shape.into());
        assert!(
            logical_shape.len() == offset.len() && offset.len() == local_shape.len(),
            "logical shape {logical_shape:?}, offset {offset:?} and local shape {local_shape:?} must agree in rank"
        );
        Self {
            logical_shape,
            offset,
            local_shape,
            fused_dimension: None,
        }
    }

    /// Says that a dimension counts adjacent matrices, such as queries, keys and values.
    pub fn with_fused_dimension(mut self, dimension: usize) -> Self {
        self.fused_dimension = Some(dimension);
        self
    }

    /// Returns the placement of a whole parameter.
    pub fn whole(shape: impl Into<Vec<usize>>) -> Self {
        let shape = shape.into();
        Self::new(shape.clone(), vec![0; shape.len()], shape)
    }

    /// Returns the placement of the `index`-th of `count` equal shards along `dimension`.
    ///
    /// # Panics
    /// When `count` does not divide the dimension.
    pub fn shard(shape: &[usize], dimension: usize, index: usize, count: usize) -> Self {
        assert!(
            shape[dimension].is_multiple_of(count),
            "{count} shards of dimension {dimension} of {shape:?}"
        );
        let mut local = shape.to_vec();
        local[dimension] /= count;
        let mut offset = vec![0; shape.len()];
        offset[dimension] = index * local[dimension];
        Self::new(shape, offset, local)
    }

    /// The shape of the whole parameter, without padding.
    pub fn logical_shape(&self) -> &[usize] {
        &self.logical_shape
    }

    /// Where the local array starts in the logical parameter.
    pub fn offset(&self) -> &[usize] {
        &self.offset
    }

    /// The shape of the local array, padding included.
    pub fn local_shape(&self) -> &[usize] {
        &self.local_shape
    }

    /// The number of elements of the local array, padding included.
    pub fn local_len(&self) -> usize {
        self.local_shape.iter().product()
    }

    /// The number of elements of the whole parameter, without padding.
    pub fn logical_len(&self) -> usize {
        self.logical_shape.iter().product()
    }

    /// Whether the local array reaches beyond the logical shape.
    pub fn has_padding(&self) -> bool {
        let ends = self
            .offset
            .iter()
            .zip(&self.local_shape)
            .map(|(offset, local)| offset + local);
        ends.zip(&self.logical_shape).any(|(end, &logical)| end > logical)
    }

    /// The dimension that counts adjacent matrices, if one does.
    pub fn fused_dimension(&self) -> Option<usize> {
        self.fused_dimension
    }

    /// The number of adjacent matrices; 1 where there is but one.
    pub fn num_fused(&self) -> usize {
        self.fused_dimension.map_or(1, |d| self.logical_shape[d])
    }

    /// Returns which of the adjacent matrices an element of the logical parameter belongs to.
    pub fn fused_part(&self, logical: usize) -> usize {
        self.fused_dimension.map_or(0, |d| {
            let inner: usize = self.logical_shape[d + 1..].iter().product();
            logical / inner % self.logical_shape[d]
        })
    }

    /// Returns the runs of elements that are adjacent in both arrays.
    ///
    /// Together they cover the local array without its padding, in ascending order, each once.
    pub fn runs(&self) -> Vec<Run> {
        let dimensions = self.logical_shape.len();
        let extent: Vec<usize> = (0..dimensions)
            .map(|d| self.local_shape[d].min(self.logical_shape[d].saturating_sub(self.offset[d])))
            .collect();
        if extent.contains(&0) {
            return Vec::new();
        }
        let Some(last) = dimensions.checked_sub(1) else {
            return vec![Run {
                local: 0,
                logical: 0,
                length: 1,
            }];
        };
        let rows: usize = extent[..last].iter().product();
        let mut runs: Vec<Run> = Vec::with_capacity(rows);
        let mut index = vec![0; last];
        for _ in 0..rows {
            let (mut local, mut logical) = (0, 0);
            for (d, i) in index.iter().enumerate() {
                local = local * self.local_shape[d] + i;
                logical = logical * self.logical_shape[d] + i + self.offset[d];
            }
            let run = Run {
                local: local * self.local_shape[last],
                logical: logical * self.logical_shape[last] + self.offset[last],
                length: extent[last],
            };
            match runs.last_mut() {
                Some(previous) if previous.is_followed_by(&run) => previous.length += run.length,
                _ => runs.push(run),
            }
            for d in (0..last).rev() {
                index[d] += 1;
                if index[d] < extent[d] {
                    break;
                }
                index[d] = 0;
            }
        }
        runs
    }
}

/// A stretch of elements that is contiguous both here and in the logical parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Index of the first element in the local array.
    pub local: usize,
    /// Index of the first element in the logical parameter.
    pub logical: usize,
    /// Number of elements.
    pub length: usize,
}

impl Run {
    fn is_followed_by(&self, next: &Run) -> bool {
        self.local + self.length == next.local && self.logical + self.length == next.logical
    }
}

/// Who holds a parameter, and what its local gradient is, over the tensor-parallel group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Every rank holds a different part, and its gradient is complete.
    Sharded,
    /// Every rank holds the same, and computes the same complete gradient.
    Replicated,
    /// Every rank holds the same, but its gradient comes from its own tokens or its own heads only and must be summed
    /// over the group: norms and row-parallel biases under sequence parallelism, norms of heads and what every rank
    /// holds of low-rank adapters always.
    PartialOverTensor,
    /// Each `copies` adjacent ranks of the group hold the same part, and each computes one term of its gradient, which
    /// is summed over these ranks: keys and values that the query heads of several ranks share.
    Shared {
        /// The number of ranks that hold the same part: it divides the size of the group.
        copies: usize,
    },
}

impl Distribution {
    /// Whether each rank of the group, or each few, hold a part only.
    pub fn is_cut(self) -> bool {
        matches!(self, Self::Sharded | Self::Shared { .. })
    }

    /// Of a group of `tensor_size` ranks, returns how many hold the same elements.
    pub fn copies(self, tensor_size: usize) -> usize {
        match self {
            Self::Sharded => 1,
            Self::Replicated | Self::PartialOverTensor => tensor_size,
            Self::Shared { copies } => copies,
        }
    }

    /// Whether `tensor_rank` is the first of the ranks that hold the same elements: it stores them, and counts them in
    /// norms.
    pub fn is_first_holder(self, tensor_rank: usize) -> bool {
        match self {
            Self::Sharded => true,
            Self::Replicated | Self::PartialOverTensor => tensor_rank == 0,
            Self::Shared { copies } => tensor_rank.is_multiple_of(copies),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Logical indices that a placement covers, in the order of the local array.
    fn covered(placement: &Placement) -> Vec<usize> {
        placement
            .runs()
            .iter()
            .flat_map(|run| run.logical..run.logical + run.length)
            .collect()
    }

    proptest! {
        #[test]
        fn shards_cover_each_element_once(
            outer in 1usize..4, parts in 1usize..4, inner in 1usize..4, count in 1usize..5, dimension in 0usize..3,
        ) {
            let mut shape = [outer, parts, inner];
            shape[dimension] *= count;
            let mut all: Vec<usize> = (0..count)
                .flat_map(|index| covered(&Placement::shard(&shape, dimension, index, count)))
                .collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..shape.iter().product()).collect::<Vec<_>>());
        }

        #[test]
        fn placements_have_padding_where_runs_leave_elements_out(
            logical in [1usize..5, 1usize..5], offset in [0usize..5, 0usize..5], local in [1usize..5, 1usize..5],
        ) {
            let placement = Placement::new(logical, offset, local);
            prop_assert_eq!(placement.has_padding(), covered(&placement).len() < placement.local_len());
        }
    }

    #[test]
    fn a_whole_parameter_is_one_run() {
        let runs = Placement::whole([3, 4, 5]).runs();
        assert_eq!(
            runs,
            [Run {
                local: 0,
                logical: 0,
                length: 60
            }]
        );
    }

    #[test]
    fn padding_is_part_of_no_run() {
        // A vocabulary of 5 rows padded to 8, the second of two shards: row 4 and three rows of padding.
        let placement = Placement::new([5, 3], [4, 0], [4, 3]);
        assert_eq!(covered(&placement), [12, 13, 14]);
        // The third of four shards of 2 rows holds padding only.
        assert!(Placement::new([5, 3], [6, 0], [2, 3]).runs().is_empty());
    }

    #[test]
    fn a_shard_of_fused_query_key_value_takes_its_heads_of_each() {
        // [d_model 1, 3, heads 4, d_head 2], the second of two ranks.
        let placement = Placement::new([1, 3, 4, 2], [0, 0, 2, 0], [1, 3, 2, 2]);
        assert_eq!(covered(&placement), [4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23]);
    }
}
