//! Rules of matrix products: of two tensors, and of a linear layer with its gradients.
//!
//! Where both operands are cut and cannot both stay so, the axis decides: ranks of data and context keep the
//! activations, those of tensor parallelism the parameters.

use super::super::placement::AxisPlacement::{self, Partial, Replicated, Shard};
use super::super::placement::{AxisRole, PARTIAL_SUM};
use super::{AxisPlan, AxisView, Operand, Rule};

/// `[..., m, k] · [..., k, n]`, with dimensions before these that are equal or 1.
#[derive(Clone, Copy, Debug)]
pub struct Matmul;

impl Rule for Matmul {
    fn shapes(&self, operands: &[Operand]) -> Vec<Vec<usize>> {
        let (left, right) = (&operands[0].shape, &operands[1].shape);
        let rank = left.len();
        assert_eq!(rank, right.len(), "a product of {left:?} and {right:?}");
        let mut shape: Vec<usize> = left
            .iter()
            .zip(right)
            .map(|(&a, &b)| if a == 1 { b } else { a })
            .collect();
        shape[rank - 2] = left[rank - 2];
        shape[rank - 1] = right[rank - 1];
        vec![shape]
    }

    fn plan(&self, view: &AxisView) -> AxisPlan {
        let rank = view.shape(0).len();
        let (m, n) = (rank - 2, rank - 1);
        // The summed dimension of each operand.
        let (left_k, right_k) = (n, m);
        let keeps_left = view.role() != AxisRole::Tensor;
        let (mut left, mut right) = (view.place_of_sum(0), view.place_of_sum(1));
        // Each turn brings one operand nearer to the other.
        loop {
            let result = match (left, right) {
                (Replicated, Replicated) => Some(Replicated),
                // Terms times what is cut along the sum: the terms are put together where they are needed.
                (PARTIAL_SUM, Shard(cut)) if cut == right_k && view.can_cut(0, left_k) => {
                    left = Shard(left_k);
                    None
                }
                (Shard(cut), PARTIAL_SUM) if cut == left_k && view.can_cut(1, right_k) => {
                    right = Shard(right_k);
                    None
                }
                // Linear in each.
                (PARTIAL_SUM, Replicated) | (Replicated, PARTIAL_SUM) => Some(PARTIAL_SUM),
                (Partial(_), _) => {
                    left = Replicated;
                    None
                }
                (_, Partial(_)) => {
                    right = Replicated;
                    None
                }
                (Shard(a), Shard(b)) if a == left_k && b == right_k => Some(PARTIAL_SUM),
                (Shard(a), Shard(b)) if a == b && a < m => Some(Shard(a)),
                (Shard(a), Replicated) => {
                    if a == left_k {
                        right = Shard(right_k);
                        None
                    } else if a < m && view.shape(1)[a] > 1 {
                        right = Shard(a);
                        None
                    } else {
                        Some(Shard(a))
                    }
                }
                (Replicated, Shard(b)) => {
                    if b == right_k {
                        left = Shard(left_k);
                        None
                    } else if b < m && view.shape(0)[b] > 1 {
                        left = Shard(b);
                        None
                    } else {
                        Some(Shard(b))
                    }
                }
                (Shard(_), Shard(_)) if keeps_left => {
                    right = Replicated;
                    None
                }
                // Rows that are cut and a sum that is: the rows' results would need all of the sum.
                (Shard(a), Shard(b)) if a == m && b == right_k => {
                    right = Replicated;
                    None
                }
                (Shard(_), Shard(_)) => {
                    left = Replicated;
                    None
                }
            };
            if let Some(result) = result {
                return AxisPlan::new([left, right], [result]);
            }
        }
    }
}

/// A linear layer: an input of `[..., d_input]`, a weight of `[d_input, d_output]`, and a bias of `[d_output]` if there
/// is a third operand.
#[derive(Clone, Copy, Debug)]
pub struct Linear;

impl Rule for Linear {
    fn shapes(&self, operands: &[Operand]) -> Vec<Vec<usize>> {
        linear_shapes(operands, 1)
    }

    fn plan(&self, view: &AxisView) -> AxisPlan {
        linear_plan(view, 1)
    }
}

/// `free` is the weight's dimension that becomes the last of the output.
fn linear_shapes(operands: &[Operand], free: usize) -> Vec<Vec<usize>> {
    let mut shape = operands[0].shape.clone();
    let last = shape.len() - 1;
    shape[last] = operands[1].shape[free];
    vec![shape]
}

fn linear_plan(view: &AxisView, free: usize) -> AxisPlan {
    let last = view.shape(0).len() - 1;
    let [input, weight, result] = product(view, last, free);
    let mut needs = vec![input, weight];
    if view.operands.len() > 2 {
        needs.push(match result {
            Shard(cut) if cut == last => Shard(0),
            // One rank's term has the bias.
            PARTIAL_SUM => PARTIAL_SUM,
            _ => Replicated,
        });
    }
    AxisPlan::new(needs, [result])
}

/// The gradient of the input: a weight of `[d_input, d_output]`, an output's gradient of `[..., d_output]`.
#[derive(Clone, Copy, Debug)]
pub struct LinearInputGradient;

impl Rule for LinearInputGradient {
    fn shapes(&self, operands: &[Operand]) -> Vec<Vec<usize>> {
        let mut shape = operands[1].shape.clone();
        let last = shape.len() - 1;
        shape[last] = operands[0].shape[0];
        vec![shape]
    }

    fn plan(&self, view: &AxisView) -> AxisPlan {
        let swapped = [view.operands[1].clone(), view.operands[0].clone()];
        let view = AxisView {
            operands: &swapped,
            ..*view
        };
        let last = view.shape(0).len() - 1;
        let [gradient, weight, result] = product(&view, last, 0);
        AxisPlan::new([weight, gradient], [result])
    }
}

/// A product of tokens, `[..., k]`, and a matrix whose dimension `free` becomes the last of the result and whose other
/// is summed over: the placements of both and of the result.
fn product(view: &AxisView, last: usize, free: usize) -> [AxisPlacement; 3] {
    let summed = 1 - free;
    match (view.place_of_sum(0), view.place_of_sum(1)) {
        (Replicated, Replicated) => [Replicated; 3],
        (tokens, Replicated) => match tokens {
            Shard(cut) if cut == last => [tokens, Shard(summed), PARTIAL_SUM],
            _ => [tokens, Replicated, tokens],
        },
        // The matrix's sum would have to be made for each use of it; the tokens are its equals in nothing but this.
        (Replicated, PARTIAL_SUM) => [Replicated, PARTIAL_SUM, PARTIAL_SUM],
        (tokens, Partial(_)) => {
            let place = if tokens == PARTIAL_SUM { Replicated } else { tokens };
            match place {
                Shard(cut) if cut == last => [place, Shard(summed), PARTIAL_SUM],
                _ => [place, Replicated, place],
            }
        }
        (Shard(cut), Shard(side)) if cut == last && side == summed => [Shard(last), Shard(summed), PARTIAL_SUM],
        // The data axis keeps the tokens where they are, and gathers the matrix.
        (Shard(cut), Shard(_)) if cut != last && view.role() != AxisRole::Tensor => {
            [Shard(cut), Replicated, Shard(cut)]
        }
        (_, Shard(side)) if side == summed => [Shard(last), Shard(summed), PARTIAL_SUM],
        (_, Shard(_)) => [Replicated, Shard(free), Shard(last)],
    }
}

/// The gradient of the weight: an input of `[..., d_input]`, an output's gradient of `[..., d_output]`.
#[derive(Clone, Copy, Debug)]
pub struct LinearWeightGradient;

impl Rule for LinearWeightGradient {
    fn shapes(&self, operands: &[Operand]) -> Vec<Vec<usize>> {
        let last = operands[0].shape.len() - 1;
        vec![vec![operands[0].shape[last], operands[1].shape[last]]]
    }

    fn plan(&self, view: &AxisView) -> AxisPlan {
        let last = view.shape(0).len() - 1;
        let (input, gradient) = (view.place_of_sum(0), view.place_of_sum(1));
        let [input, gradient, result] = match (input, gradient) {
            (Replicated, Replicated) => [Replicated; 3],
            (Replicated, PARTIAL_SUM) | (PARTIAL_SUM, Replicated) => [input, gradient, PARTIAL_SUM],
            // Each rank has its columns of one of the two: it needs all tokens of the other.
            (Shard(cut), _) if cut == last && gradient != Shard(last) => [Shard(last), Replicated, Shard(0)],
            (_, Shard(cut)) if cut == last && input != Shard(last) => [Replicated, Shard(last), Shard(1)],
            (Shard(cut), Shard(_)) if cut == last => [Replicated, Shard(last), Shard(1)],
            // Each rank has its tokens.
            (Shard(cut), _) | (_, Shard(cut)) => [Shard(cut), Shard(cut), PARTIAL_SUM],
            (Partial(_), Partial(_)) => [Replicated, PARTIAL_SUM, PARTIAL_SUM],
            (Partial(_), _) | (_, Partial(_)) => [Replicated; 3],
        };
        AxisPlan::new([input, gradient], [result])
    }
}

/// The gradient of the bias: the sum over all but the last dimension.
#[derive(Clone, Copy, Debug)]
pub struct LinearBiasGradient;

impl Rule for LinearBiasGradient {
    fn shapes(&self, operands: &[Operand]) -> Vec<Vec<usize>> {
        vec![operands[0].shape.last().copied().into_iter().collect()]
    }

    fn plan(&self, view: &AxisView) -> AxisPlan {
        let last = view.shape(0).len() - 1;
        let place = view.place_of_sum(0);
        let result = match place {
            Shard(cut) if cut == last => Shard(0),
            Shard(_) => PARTIAL_SUM,
            place => place,
        };
        AxisPlan::new([place], [result])
    }
}
