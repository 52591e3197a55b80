//! Rules of operations along dimensions: sums, largest values, cumulative sums, softmax, sorting.

use super::super::placement::AxisPlacement::{Partial, Replicated, Shard};
use super::super::placement::{PARTIAL_SUM, Reduction};
use super::pointwise::{Elementwise, broadcast};
use super::{AxisPlan, AxisView, Operand, Rule};

/// A reduction over a dimension, or over all: where one is cut, each rank has a term.
#[derive(Clone, Copy, Debug)]
pub struct Reduce {
    /// How the terms are put together.
    pub reduction: Reduction,
    /// The dimension, of which one element is left; `None` for all, of which one element in one dimension is left.
    pub dimension: Option<usize>,
    /// Says that terms that are put together in the same way can be reduced one by one.
    pub keeps_terms: bool,
}

impl Reduce {
    /// Over a dimension.
    pub fn over(reduction: Reduction, dimension: usize) -> Self {
        Self {
            reduction,
            dimension: Some(dimension),
            keeps_terms: true,
        }
    }

    /// Over everything.
    pub fn all(reduction: Reduction) -> Self {
        Self {
            reduction,
            dimension: None,
            keeps_terms: true,
        }
    }

    /// Of something that is made of each element first, such as its absolute value.
    pub fn of_wholes(self) -> Self {
        Self {
            keeps_terms: false,
            ..self
        }
    }
}

impl Rule for Reduce {
    fn shapes(&self, operands: &[Operand]) -> Vec<Vec<usize>> {
        vec![match self.dimension {
            None => vec![1],
            Some(dimension) => {
                let mut shape = operands[0].shape.clone();
                shape[dimension] = 1;
                shape
            }
        }]
    }

    fn plan(&self, view: &AxisView) -> AxisPlan {
        let terms = Partial(self.reduction);
        let (need, result) = match view.place(0) {
            Shard(cut) if self.dimension.is_none_or(|dimension| dimension == cut) => (Shard(cut), terms),
            place if place == terms && self.keeps_terms => (terms, terms),
            _ => match view.settled(0) {
                Shard(cut) if self.dimension.is_none_or(|dimension| dimension == cut) => (Shard(cut), terms),
                place => (place, place),
            },
        };
        AxisPlan::new([need], [result])
    }
}

/// A reduction over everything that is not made of the ranks' terms: every rank has the whole.
#[derive(Clone, Copy, Debug)]
pub struct OfAll;

impl Rule for OfAll {
    fn shapes(&self, _operands: &[Operand]) -> Vec<Vec<usize>> {
        vec![vec![1]]
    }

    fn plan(&self, _view: &AxisView) -> AxisPlan {
        AxisPlan::new([Replicated], [Replicated])
    }
}

/// An operation along a dimension that needs all of it, such as a softmax or a sort.
#[derive(Clone, Copy, Debug)]
pub struct Along {
    /// The dimension.
    pub dimension: usize,
    /// Says that terms of a sum stay terms.
    pub is_linear: bool,
    /// The length of the dimension in the results; that of the operand if `None`.
    pub length: Option<usize>,
    /// The number of results.
    pub num_results: usize,
}

impl Along {
    /// With one result of the operand's shape.
    pub fn new(dimension: usize) -> Self {
        Self {
            dimension,
            is_linear: false,
            length: None,
            num_results: 1,
        }
    }

    /// An operation that is linear.
    pub fn linear(dimension: usize) -> Self {
        Self {
            is_linear: true,
            ..Self::new(dimension)
        }
    }

    /// With this length of the dimension in the results.
    pub fn with_length(self, length: usize) -> Self {
        Self {
            length: Some(length),
            ..self
        }
    }

    /// With two results.
    pub fn with_indices(self) -> Self {
        Self { num_results: 2, ..self }
    }
}

impl Rule for Along {
    fn shapes(&self, operands: &[Operand]) -> Vec<Vec<usize>> {
        let mut shape = operands[0].shape.clone();
        if let Some(length) = self.length {
            shape[self.dimension] = length;
        }
        vec![shape; self.num_results]
    }

    fn plan(&self, view: &AxisView) -> AxisPlan {
        let place = match view.place(0) {
            PARTIAL_SUM if self.is_linear => PARTIAL_SUM,
            _ => match view.settled(0) {
                Shard(cut) if cut == self.dimension => Replicated,
                place => place,
            },
        };
        AxisPlan::new([place], vec![place; self.num_results])
    }
}

/// An operation along a dimension of several operands of one shape, such as a cross product.
#[derive(Clone, Copy, Debug)]
pub struct AlongAll {
    /// The dimension, which must be whole.
    pub dimension: usize,
    /// The length of the dimension in the result; that of the operands if `None`.
    pub length: Option<usize>,
}

impl Rule for AlongAll {
    fn shapes(&self, operands: &[Operand]) -> Vec<Vec<usize>> {
        let mut shape = broadcast(operands);
        if let Some(length) = self.length {
            shape[self.dimension] = length;
        }
        vec![shape]
    }

    fn plan(&self, view: &AxisView) -> AxisPlan {
        let AxisPlan { needs, results } = Elementwise.plan(view);
        if results == [Shard(self.dimension)] {
            AxisPlan::new(vec![Replicated; needs.len()], [Replicated])
        } else {
            AxisPlan::new(needs, results)
        }
    }
}

/// An operation along the last dimension of the first operand with parameters of that dimension, such as a layer norm.
#[derive(Clone, Copy, Debug)]
pub struct Rows;

impl Rule for Rows {
    fn plan(&self, view: &AxisView) -> AxisPlan {
        let place = match view.settled(0) {
            Shard(cut) if cut + 1 == view.shape(0).len() => Replicated,
            place => place,
        };
        let mut needs = vec![Replicated; view.operands.len()];
        needs[0] = place;
        AxisPlan::new(needs, [place])
    }
}
