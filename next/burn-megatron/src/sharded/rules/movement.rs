//! Rules of operations that move elements: reshape, permute, slice, cat, expand, repeat.

use super::super::placement::AxisPlacement::{Replicated, Shard};
use super::super::placement::PARTIAL_SUM;
use super::{AxisPlan, AxisView, Operand, Rule};

/// Dimensions in another order.
#[derive(Clone, Debug)]
pub struct Permute {
    /// For each dimension of the result, that of the operand.
    pub from: Vec<usize>,
}

impl Permute {
    /// Two dimensions swapped, of `rank`.
    pub fn swap(rank: usize, first: usize, second: usize) -> Self {
        let mut from: Vec<usize> = (0..rank).collect();
        from.swap(first, second);
        Self { from }
    }
}

impl Rule for Permute {
    fn shapes(&self, operands: &[Operand]) -> Vec<Vec<usize>> {
        vec![
            self.from
                .iter()
                .map(|&dimension| operands[0].shape[dimension])
                .collect(),
        ]
    }

    fn plan(&self, view: &AxisView) -> AxisPlan {
        let place = view.place(0);
        let result = match place {
            Shard(cut) => {
                let to = self.from.iter().position(|&dimension| dimension == cut);
                Shard(to.expect("a permutation has every dimension"))
            }
            place => place,
        };
        AxisPlan::new([place], [result])
    }
}

/// The elements in the same order under another shape.
#[derive(Clone, Debug)]
pub struct Reshape {
    /// The shape of the result.
    pub to: Vec<usize>,
}

impl Rule for Reshape {
    fn shapes(&self, _operands: &[Operand]) -> Vec<Vec<usize>> {
        vec![self.to.clone()]
    }

    fn plan(&self, view: &AxisView) -> AxisPlan {
        let place = view.place(0);
        let Shard(cut) = place else {
            return AxisPlan::new([place], [place]);
        };
        let shape = view.shape(0);
        let parts = view.mesh.parts(&view.operands[0].places, cut);
        match reshaped(shape, &self.to, cut) {
            // The same dimension: any cut of it stays.
            Some(to) if self.to[to] == shape[cut] => AxisPlan::new([place], [Shard(to)]),
            Some(to) if self.to[to].is_multiple_of(parts) && shape[cut].is_multiple_of(parts) => {
                AxisPlan::new([place], [Shard(to)])
            }
            _ => AxisPlan::new([Replicated], [Replicated]),
        }
    }
}

/// The dimension of `to` that an even cut of a dimension of `from` is a cut of: the first of those that the dimension
/// becomes part of, if it is the first itself.
fn reshaped(from: &[usize], to: &[usize], dimension: usize) -> Option<usize> {
    if from.contains(&0) {
        return None;
    }
    let (mut i, mut j) = (0, 0);
    while i < from.len() || j < to.len() {
        // The next dimensions of both that have the same number of elements.
        let (first_from, first_to) = (i, j);
        let (mut left, mut right) = (1, 1);
        if i < from.len() {
            left = from[i];
            i += 1;
        }
        if j < to.len() {
            right = to[j];
            j += 1;
        }
        while left != right {
            if left < right {
                left *= from[i];
                i += 1;
            } else {
                right *= to[j];
                j += 1;
            }
        }
        if (first_from..i).contains(&dimension) {
            if (first_from..dimension).any(|before| from[before] != 1) {
                return None;
            }
            return (first_to..j).find(|&dimension| to[dimension] != 1);
        }
    }
    None
}

/// Dimensions of length 1, and new ones before the others, repeated without a copy.
#[derive(Clone, Debug)]
pub struct Expand {
    /// The shape of the result.
    pub to: Vec<usize>,
}

impl Rule for Expand {
    fn shapes(&self, _operands: &[Operand]) -> Vec<Vec<usize>> {
        vec![self.to.clone()]
    }

    fn plan(&self, view: &AxisView) -> AxisPlan {
        let new = self.to.len() - view.shape(0).len();
        let place = view.place(0);
        let result = match place {
            Shard(cut) => Shard(cut + new),
            place => place,
        };
        AxisPlan::new([place], [result])
    }
}

/// Some dimensions are touched, each of which must be whole: a part is taken, elements are turned round, repeated, or
/// seen through windows.
#[derive(Clone, Debug)]
pub struct Touch {
    /// The dimensions.
    pub dimensions: Vec<usize>,
    /// The shape of the result, whose first dimensions are the operand's.
    pub to: Vec<usize>,
}

impl Rule for Touch {
    fn shapes(&self, _operands: &[Operand]) -> Vec<Vec<usize>> {
        vec![self.to.clone()]
    }

    fn plan(&self, view: &AxisView) -> AxisPlan {
        let place = match view.place(0) {
            Shard(cut) if self.dimensions.contains(&cut) => Replicated,
            place => place,
        };
        AxisPlan::new([place], [place])
    }
}

/// A part of the first operand replaced by the second.
#[derive(Clone, Debug)]
pub struct Assign {
    /// The dimensions of which the part has not everything.
    pub dimensions: Vec<usize>,
}

impl Rule for Assign {
    fn plan(&self, view: &AxisView) -> AxisPlan {
        let (tensor, value) = (view.place_of_sum(0), view.place_of_sum(1));
        let untouched = |place| matches!(place, Shard(cut) if !self.dimensions.contains(&cut));
        let place = match (tensor, value) {
            (PARTIAL_SUM, _) | (_, PARTIAL_SUM) => PARTIAL_SUM,
            (place, _) | (_, place) if untouched(place) => place,
            _ => Replicated,
        };
        AxisPlan::new([place; 2], [place])
    }
}

/// Operands one after the other along a dimension.
#[derive(Clone, Copy, Debug)]
pub struct Concatenate {
    /// The dimension.
    pub dimension: usize,
}

impl Rule for Concatenate {
    fn shapes(&self, operands: &[Operand]) -> Vec<Vec<usize>> {
        let mut shape = operands[0].shape.clone();
        shape[self.dimension] = operands.iter().map(|operand| operand.shape[self.dimension]).sum();
        vec![shape]
    }

    fn plan(&self, view: &AxisView) -> AxisPlan {
        let places: Vec<_> = (0..view.operands.len())
            .map(|operand| view.place_of_sum(operand))
            .collect();
        let place = if places.iter().all(|&place| place == PARTIAL_SUM) {
            PARTIAL_SUM
        } else {
            let cut = places
                .iter()
                .find(|place| place.cut().is_some_and(|cut| cut != self.dimension));
            cut.copied().unwrap_or(Replicated)
        };
        AxisPlan::new(vec![place; places.len()], [place])
    }
}
