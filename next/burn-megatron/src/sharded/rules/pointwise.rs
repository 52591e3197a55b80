//! Rules of operations element by element.

use super::super::placement::AxisPlacement::{self, Replicated, Shard};
use super::super::placement::{AxisRole, PARTIAL_SUM};
use super::{AxisPlan, AxisView, Operand, Rule};

/// One operand, to which something happens that does not commute with sums.
pub const NON_LINEAR: Unary = Unary { is_linear: false };
/// One operand, to which something linear happens: terms of a sum stay terms.
pub const LINEAR: Unary = Unary { is_linear: true };

/// One operand, element by element.
#[derive(Clone, Copy, Debug)]
pub struct Unary {
    is_linear: bool,
}

impl Rule for Unary {
    fn plan(&self, view: &AxisView) -> AxisPlan {
        let place = match view.place(0) {
            PARTIAL_SUM if self.is_linear => PARTIAL_SUM,
            _ => view.settled(0),
        };
        AxisPlan::new([place], [place])
    }
}

/// The kind of an operation on two operands, which decides what becomes of sums that have not been made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Binary {
    /// A sum or a difference.
    Add,
    /// A product: linear in each operand.
    Multiply,
    /// A quotient: linear in the first operand.
    Divide,
    /// Anything else.
    Other,
}

impl Rule for Binary {
    fn shapes(&self, operands: &[Operand]) -> Vec<Vec<usize>> {
        vec![broadcast(operands)]
    }

    fn plan(&self, view: &AxisView) -> AxisPlan {
        let whole = || AxisPlan::new([Replicated; 2], [Replicated]);
        let smaller =
            |operand: usize| view.operands[operand].num_elements() < view.operands[1 - operand].num_elements();
        match (view.place_of_sum(0), view.place_of_sum(1)) {
            (Replicated, Replicated) => whole(),
            (Shard(a), Shard(b)) if a == b => cut_all(view, a),
            // What has fewer elements moves.
            (Shard(a), Shard(b)) => cut_all(view, if smaller(0) { b } else { a }),
            (PARTIAL_SUM, PARTIAL_SUM) => match self {
                Binary::Add => AxisPlan::new([PARTIAL_SUM; 2], [PARTIAL_SUM]),
                Binary::Divide => AxisPlan::new([PARTIAL_SUM, Replicated], [PARTIAL_SUM]),
                Binary::Multiply | Binary::Other => self.settle(view, 0),
            },
            (PARTIAL_SUM, Replicated) => self.with_whole(view, 0, smaller(1)),
            (Replicated, PARTIAL_SUM) => self.with_whole(view, 1, smaller(0)),
            // More terms may follow, as those of query, key and value do: a range is a term, too.
            (Shard(_), PARTIAL_SUM) | (PARTIAL_SUM, Shard(_))
                if self == &Binary::Add
                    && view.is_backward
                    && view.role() == AxisRole::Tensor
                    && view.shape(0) == view.shape(1) =>
            {
                AxisPlan::new([PARTIAL_SUM; 2], [PARTIAL_SUM])
            }
            (Shard(dimension), _) | (_, Shard(dimension)) => {
                let fits = |operand| view.shape(operand)[dimension] == 1 || view.can_cut(operand, dimension);
                if fits(0) && fits(1) {
                    cut_all(view, dimension)
                } else {
                    whole()
                }
            }
            (AxisPlacement::Partial(_), _) | (_, AxisPlacement::Partial(_)) => whole(),
        }
    }
}

impl Binary {
    /// The operand `partial` is a sum that has not been made, the other is whole.
    fn with_whole(self, view: &AxisView, partial: usize, is_other_smaller: bool) -> AxisPlan {
        let keep = |other: AxisPlacement| {
            let mut needs = [other; 2];
            needs[partial] = PARTIAL_SUM;
            AxisPlan::new(needs, [PARTIAL_SUM])
        };
        match self {
            // One rank adds what is whole. In a forward pass the next operation will ask for the sum; then it is made
            // here, unless this is a bias. In a backward pass more terms may follow.
            Binary::Add if is_other_smaller || view.is_backward => keep(PARTIAL_SUM),
            Binary::Multiply if view.sequence_of(partial).is_none() => keep(Replicated),
            Binary::Divide if partial == 0 && view.sequence_of(partial).is_none() => keep(Replicated),
            _ => self.settle(view, partial),
        }
    }

    /// Makes the sums: on each rank its range of the sequence, if it has one.
    fn settle(self, view: &AxisView, partial: usize) -> AxisPlan {
        match view.sequence_of(partial) {
            Some(dimension) if broadcast(view.operands)[dimension] == view.shape(partial)[dimension] => {
                cut_all(view, dimension)
            }
            _ => AxisPlan::new([Replicated; 2], [Replicated]),
        }
    }
}

/// Any number of operands, none of which stays a sum that has not been made.
#[derive(Clone, Copy, Debug)]
pub struct Elementwise;

impl Rule for Elementwise {
    fn shapes(&self, operands: &[Operand]) -> Vec<Vec<usize>> {
        vec![broadcast(operands)]
    }

    fn plan(&self, view: &AxisView) -> AxisPlan {
        // The cut of the largest operand that has one.
        let cuts = (0..view.operands.len()).filter_map(|operand| {
            let dimension = view.settled(operand).cut()?;
            Some((
                view.operands[operand].num_elements(),
                std::cmp::Reverse(operand),
                dimension,
            ))
        });
        match cuts.max() {
            Some((_, _, dimension)) => cut_all(view, dimension),
            None => AxisPlan::new(vec![Replicated; view.operands.len()], [Replicated]),
        }
    }
}

/// Every operand cut along a dimension, apart from those that are broadcast along it.
fn cut_all(view: &AxisView, dimension: usize) -> AxisPlan {
    let needs = view.operands.iter().map(|operand| match operand.shape[dimension] {
        1 => Replicated,
        _ => Shard(dimension),
    });
    AxisPlan::new(needs.collect::<Vec<_>>(), [Shard(dimension)])
}

/// The shape that operands of the same number of dimensions are broadcast to.
pub(super) fn broadcast(operands: &[Operand]) -> Vec<usize> {
    let mut shape = operands[0].shape.clone();
    for operand in &operands[1..] {
        assert_eq!(
            shape.len(),
            operand.shape.len(),
            "operands of different numbers of dimensions: {:?}",
            operands.iter().map(|operand| &operand.shape).collect::<Vec<_>>()
        );
        for (length, &other) in shape.iter_mut().zip(&operand.shape) {
            // A length of 0 stays one next to a 1.
            *length = if *length == 1 { other } else { *length };
        }
    }
    shape
}
