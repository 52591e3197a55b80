//! Which columns of a column-parallel layer a rank holds.

use std::ops::Range;

use burn::module::Param;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::take_shard;
use crate::collectives::ProcessGroup;
use crate::context::{ParameterScope, ParameterSpec};
use crate::parameters::{Distribution, ParameterInit, Placement, ShardIdentity};
use crate::topology::{TopologyError, check_divides};

/// Columns in adjacent groups of equal width, each shared out as a whole while there are enough of them.
///
/// A group that several ranks hold is shared out in part: each has its own of the group's first columns, and all have
/// the last `shared` ones, of whose gradient each computes one term.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ColumnGroups {
    /// The number of groups. It and the tensor-parallel size divide one another.
    pub count: usize,
    /// The columns at the end of each group that its ranks share.
    pub shared: usize,
}

/// The columns of a whole layer.
#[derive(Clone, Copy, Debug)]
pub(super) struct ColumnSizes {
    pub d_input: usize,
    pub d_output: usize,
    /// The number of adjacent matrices, each shared out by itself.
    pub fused: usize,
    pub groups: Option<ColumnGroups>,
}

/// Where the columns of this rank are.
pub(super) struct Cut {
    pub own: Columns,
    /// Those that it shares with other ranks.
    pub shared: Option<Columns>,
}

/// Where the columns of an adapter of some of the features are.
pub(super) struct PartCut {
    /// Of the adapter's second factor.
    pub placement: Placement,
    pub distribution: Distribution,
    /// The number of equal groups of this rank's columns of the layer.
    pub groups: usize,
    /// Where the features are in each.
    pub place: Range<usize>,
}

/// Adjacent columns of each matrix, and who holds them.
pub(super) struct Columns {
    pub width: usize,
    pub weight: Placement,
    pub bias: Placement,
    pub distribution: Distribution,
}

impl Cut {
    /// What the layer's record says of its shards.
    pub fn identity(&self, has_bias: bool, scope: &ParameterScope) -> ShardIdentity {
        let mut shards = vec![("weight", &self.own.weight), ("bias", &self.own.bias)];
        if let Some(shared) = &self.shared {
            shards.extend([("shared.weight", &shared.weight), ("shared.bias", &shared.bias)]);
        }
        shards.retain(|(name, _)| has_bias || !name.ends_with("bias"));
        scope.shard_identity(&shards)
    }
}

impl Columns {
    pub fn weight_spec(&self, init: ParameterInit) -> ParameterSpec {
        self.spec(&self.weight, init)
    }

    pub fn bias_spec(&self, init: ParameterInit) -> ParameterSpec {
        self.spec(&self.bias, init)
    }

    fn spec(&self, placement: &Placement, init: ParameterInit) -> ParameterSpec {
        ParameterSpec {
            placement: placement.clone(),
            distribution: self.distribution,
            init,
        }
    }

    pub fn take_weight(&self, whole: &Param<Tensor<2>>, scope: &ParameterScope) -> Param<Tensor<2>> {
        let d_input = self.weight.local_shape()[0];
        take_shard(whole, &self.weight, [d_input, self.width], scope)
    }

    pub fn take_bias(&self, whole: &Param<Tensor<1>>, scope: &ParameterScope) -> Param<Tensor<1>> {
        take_shard(whole, &self.bias, [self.width], scope)
    }
}

impl ColumnSizes {
    /// Returns which columns this rank holds.
    ///
    /// # Errors
    /// When they cannot be shared out.
    ///
    /// # Panics
    /// When several fused matrices have groups of columns.
    pub fn cut(&self, scope: &ParameterScope) -> Result<Cut, TopologyError> {
        if self.fused == 0 {
            return Err(TopologyError::Zero { name: "fused" });
        }
        check_divides("d_output", self.d_output, "fused", self.fused)?;
        if let Some(groups) = self.groups {
            assert_eq!(
                self.fused, 1,
                "the number of fused matrices that have groups of columns"
            );
            if scope.context().tensor_group().size() > groups.count {
                return self.cut_groups(groups, scope);
            }
            scope.check_tensor_divides("the number of groups of columns", groups.count)?;
        }
        let group = scope.context().tensor_group();
        let matrix = self.d_output / self.fused;
        scope.check_tensor_divides("the width of a column-parallel matrix", matrix)?;
        // The dimension before the last counts the fused matrices; each is cut along the last.
        let shard = |shape: &[usize]| {
            Placement::shard(shape, shape.len() - 1, group.rank(), group.size()).with_fused_dimension(shape.len() - 2)
        };
        let own = Columns {
            width: self.d_output / group.size(),
            weight: shard(&[self.d_input, self.fused, matrix]),
            bias: shard(&[self.fused, matrix]),
            distribution: Distribution::Sharded,
        };
        Ok(Cut { own, shared: None })
    }

    /// Cuts groups of columns, each of which several ranks hold.
    fn cut_groups(&self, groups: ColumnGroups, scope: &ParameterScope) -> Result<Cut, TopologyError> {
        let ColumnGroups { count, shared } = groups;
        let group = scope.context().tensor_group();
        check_divides("d_output", self.d_output, "the number of groups of columns", count)?;
        check_divides(
            "tensor_parallel_size",
            group.size(),
            "the number of groups of columns",
            count,
        )?;
        let (width, copies) = (self.d_output / count, group.size() / count);
        assert!(shared <= width, "{shared} shared columns of a group of {width}");
        check_divides(
            "the columns of a group that are not shared",
            width - shared,
            "its ranks",
            copies,
        )?;
        let own = (width - shared) / copies;
        let first = group.rank() / copies * width;
        let columns = |start: usize, width: usize, distribution| Columns {
            width,
            weight: Placement::new(
                [self.d_input, 1, self.d_output],
                [0, 0, start],
                [self.d_input, 1, width],
            )
            .with_fused_dimension(1),
            bias: Placement::new([1, self.d_output], [0, start], [1, width]).with_fused_dimension(0),
            distribution,
        };
        Ok(Cut {
            own: columns(first + group.rank() % copies * own, own, Distribution::Sharded),
            shared: Some(columns(first + width - shared, shared, Distribution::Shared { copies })),
        })
    }

    /// Returns where an adapter's second factor of `rank` rows is cut, whose columns are `features` of each of `groups`
    /// equal groups of the layer's; none where ranks cannot share these out.
    pub fn part(&self, groups: usize, features: &Range<usize>, rank: usize, tensor: &ProcessGroup) -> Option<PartCut> {
        let (index, size) = (tensor.rank(), tensor.size());
        let sharded = |shape: &[usize]| Placement::shard(shape, shape.len() - 1, index, size);
        let matrix = self.d_output / self.fused;
        let copies = self.groups.map_or(1, |of| (size / of.count).max(1));
        if groups == 1 && *features == (0..self.d_output) && copies == 1 {
            let placement = match self.fused {
                1 => sharded(&[rank, self.d_output]),
                fused => sharded(&[rank, fused, matrix]).with_fused_dimension(1),
            };
            return Some(PartCut {
                placement,
                distribution: Distribution::Sharded,
                groups: 1,
                place: 0..self.d_output / size,
            });
        }
        if self.fused > 1 && groups == 1 && features.len() == matrix && features.start.is_multiple_of(matrix) {
            let local = matrix / size;
            let start = features.start / matrix * local;
            return Some(PartCut {
                placement: sharded(&[rank, matrix]),
                distribution: Distribution::Sharded,
                groups: 1,
                place: start..start + local,
            });
        }
        let ColumnGroups { count, shared } = self.groups.filter(|of| of.count == groups)?;
        let width = self.d_output / count;
        if features.is_empty() || features.end > width {
            return None;
        }
        let own = width.checked_sub(shared)?;
        let shape = [rank, count * features.len()];
        if copies == 1 {
            return Some(PartCut {
                placement: sharded(&shape),
                distribution: Distribution::Sharded,
                groups: count / size,
                place: features.clone(),
            });
        }
        if *features == (0..own) {
            return Some(PartCut {
                placement: sharded(&shape),
                distribution: Distribution::Sharded,
                groups: 1,
                place: 0..own / copies,
            });
        }
        // Of what its ranks share.
        let start = own / copies + features.start.checked_sub(own)?;
        Some(PartCut {
            placement: Placement::shard(&shape, 1, index / copies, count),
            distribution: Distribution::Shared { copies },
            groups: 1,
            place: start..start + features.len(),
        })
    }
}
