//! Where a tensor's elements are on the ranks of a mesh: [`AxisPlacement`], one per axis, and the ranges that follow.
//!
//! Pure integers.

use std::fmt;
use std::ops::Range;

/// The most axes that a mesh can have.
pub const MAX_AXES: usize = 4;

/// How the terms of a partial tensor are put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// The tensor is the sum of the ranks' terms.
    Sum,
    /// The largest of the ranks' values, element by element.
    Max,
    /// The smallest.
    Min,
}

/// How a tensor is spread over the ranks of one axis of a mesh.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AxisPlacement {
    /// Every rank has all of it.
    #[default]
    Replicated,
    /// Each rank has its own range of a dimension.
    Shard(usize),
    /// Each rank has a term of the same shape.
    Partial(Reduction),
}

/// A sum that has not been made yet.
pub(super) const PARTIAL_SUM: AxisPlacement = AxisPlacement::Partial(Reduction::Sum);

impl AxisPlacement {
    /// Whether ranks have terms.
    pub fn is_partial(self) -> bool {
        matches!(self, AxisPlacement::Partial(_))
    }

    /// The dimension that is cut, if one is.
    pub fn cut(self) -> Option<usize> {
        match self {
            AxisPlacement::Shard(dimension) => Some(dimension),
            _ => None,
        }
    }
}

/// `R`, `S(1)`, `P(sum)`.
impl fmt::Display for AxisPlacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AxisPlacement::Replicated => f.write_str("R"),
            AxisPlacement::Shard(dimension) => write!(f, "S({dimension})"),
            AxisPlacement::Partial(Reduction::Sum) => f.write_str("P(sum)"),
            AxisPlacement::Partial(Reduction::Max) => f.write_str("P(max)"),
            AxisPlacement::Partial(Reduction::Min) => f.write_str("P(min)"),
        }
    }
}

/// A tensor's placement on each axis; axes that a mesh does not have are `Replicated`.
pub type Placements = [AxisPlacement; MAX_AXES];

/// On every axis whole.
pub const REPLICATED: Placements = [AxisPlacement::Replicated; MAX_AXES];

/// The placements of a tensor whose sums have been made.
pub(super) fn without_sums(places: Placements) -> Placements {
    places.map(|place| {
        if place.is_partial() {
            AxisPlacement::Replicated
        } else {
            place
        }
    })
}

/// What the ranks of an axis are for, which decides who moves where two tensors are cut in different ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AxisRole {
    /// Each rank has its own samples. Activations stay where they are, parameters are gathered.
    Data,
    /// The ranks share each layer. Parameters stay where they are.
    Tensor,
    /// Each rank has its own tokens of every sample. Activations stay where they are.
    Context,
}

/// The sizes and roles of a mesh's axes, in the order in which they are given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeshShape {
    axes: Vec<(AxisRole, usize)>,
    /// The axes from the outermost cut to the innermost.
    nested: Vec<usize>,
}

impl MeshShape {
    /// Returns the shape of a mesh of these axes.
    ///
    /// # Panics
    /// When there are more than [`MAX_AXES`], or one has no rank.
    pub fn new(axes: impl Into<Vec<(AxisRole, usize)>>) -> Self {
        let axes = axes.into();
        assert!(
            axes.len() <= MAX_AXES,
            "a mesh has {MAX_AXES} axes at most, got {}",
            axes.len()
        );
        assert!(
            axes.iter().all(|&(_, size)| size > 0),
            "an axis without ranks: {axes:?}"
        );
        // Where several axes cut one dimension, those of data are inside: gathering a parameter that is cut for memory
        // then leaves the cut that the layer computes with.
        let is_data = |&axis: &usize| axes[axis].0 == AxisRole::Data;
        let (data, others): (Vec<usize>, Vec<usize>) = (0..axes.len()).partition(is_data);
        let nested = others.into_iter().chain(data).collect();
        Self { axes, nested }
    }

    /// The number of axes.
    pub fn num_axes(&self) -> usize {
        self.axes.len()
    }

    /// The number of ranks along an axis.
    pub fn size(&self, axis: usize) -> usize {
        self.axes[axis].1
    }

    /// What an axis is for.
    pub fn role(&self, axis: usize) -> AxisRole {
        self.axes[axis].0
    }

    /// The axes of a role, in order.
    pub fn axes_of(&self, role: AxisRole) -> impl DoubleEndedIterator<Item = usize> {
        (0..self.axes.len()).filter(move |&axis| self.axes[axis].0 == role)
    }

    /// The axes from the outermost cut of a dimension to the innermost.
    pub fn nested(&self) -> &[usize] {
        &self.nested
    }

    /// Whether `axis` cuts what is left after the cut of `other`.
    pub fn is_inside(&self, axis: usize, other: usize) -> bool {
        let place = |axis| self.nested.iter().position(|&nested| nested == axis);
        place(axis) > place(other)
    }

    /// The placements of a tensor that every axis of a role cuts along a dimension.
    pub fn cut_by(&self, role: AxisRole, dimension: usize) -> Placements {
        let mut places = REPLICATED;
        for axis in self.axes_of(role).filter(|&axis| self.size(axis) > 1) {
            places[axis] = AxisPlacement::Shard(dimension);
        }
        places
    }

    /// The number of parts that a dimension is cut into.
    pub fn parts(&self, places: &Placements, dimension: usize) -> usize {
        let cutting = (0..self.axes.len()).filter(|&axis| places[axis] == AxisPlacement::Shard(dimension));
        cutting.map(|axis| self.size(axis)).product()
    }

    /// Whether a tensor of this shape can be cut along `dimension` on `axis`, next to the cuts of the other axes, so
    /// that every rank has something.
    pub fn can_cut(&self, shape: &[usize], places: &Placements, axis: usize, dimension: usize) -> bool {
        let mut places = *places;
        places[axis] = AxisPlacement::Shard(dimension);
        dimension < shape.len() && shape[dimension] >= self.parts(&places, dimension)
    }

    /// Returns the range of a dimension of `length` that the rank with these indices has.
    pub fn range(&self, length: usize, places: &Placements, dimension: usize, ranks: &[usize]) -> Range<usize> {
        self.range_until(length, places, dimension, ranks, None)
    }

    /// Returns that range before the cut of `axis`, and those inside it.
    pub fn range_outside(
        &self,
        length: usize,
        places: &Placements,
        dimension: usize,
        ranks: &[usize],
        axis: usize,
    ) -> Range<usize> {
        self.range_until(length, places, dimension, ranks, Some(axis))
    }

    fn range_until(
        &self,
        length: usize,
        places: &Placements,
        dimension: usize,
        ranks: &[usize],
        end: Option<usize>,
    ) -> Range<usize> {
        let mut range = 0..length;
        for &axis in &self.nested {
            if Some(axis) == end {
                break;
            }
            if places[axis] == AxisPlacement::Shard(dimension) {
                let part = part(range.len(), self.size(axis), ranks[axis]);
                range = range.start + part.start..range.start + part.end;
            }
        }
        range
    }

    /// The shape of what the rank with these indices has.
    pub fn local_shape(&self, shape: &[usize], places: &Placements, ranks: &[usize]) -> Vec<usize> {
        let length = |(dimension, &length)| self.range(length, places, dimension, ranks).len();
        shape.iter().enumerate().map(length).collect()
    }
}

/// The `index`-th of `count` parts of a length: they differ by one at most.
pub fn part(length: usize, count: usize, index: usize) -> Range<usize> {
    index * length / count..(index + 1) * length / count
}

/// The longest of `count` parts of a length.
pub fn longest_part(length: usize, count: usize) -> usize {
    length.div_ceil(count)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn parts_cover_a_length_once(length in 0usize..40, count in 1usize..9) {
            let parts: Vec<_> = (0..count).map(|index| part(length, count, index)).collect();
            prop_assert_eq!(parts.iter().flat_map(Clone::clone).collect::<Vec<_>>(), (0..length).collect::<Vec<_>>());
            prop_assert_eq!(parts.iter().map(Range::len).max().unwrap_or(0), longest_part(length, count));
            prop_assert!(parts.iter().all(|part| part.len() + 1 >= longest_part(length, count)));
        }

        #[test]
        fn ranges_of_all_ranks_cover_a_dimension_once(
            length in 0usize..60, sizes in [1usize..4, 1usize..4, 1usize..4],
        ) {
            let roles = [AxisRole::Data, AxisRole::Tensor, AxisRole::Context];
            let mesh = MeshShape::new(roles.into_iter().zip(sizes).collect::<Vec<_>>());
            let mut places = REPLICATED;
            places[..3].fill(AxisPlacement::Shard(0));
            let mut covered = Vec::new();
            for tensor in 0..sizes[1] {
                for context in 0..sizes[2] {
                    for data in 0..sizes[0] {
                        covered.extend(mesh.range(length, &places, 0, &[data, tensor, context]));
                    }
                }
            }
            // In this order: the cut of the data axis is the innermost.
            prop_assert_eq!(covered, (0..length).collect::<Vec<_>>());
        }
    }
}
