//! Rules of operations that take elements by index.
//!
//! Where the dimension that is indexed is cut, each rank looks up what it has; what others have is zero, and the sum
//! over the ranks is the result.

use super::super::placement::AxisPlacement::{Replicated, Shard};
use super::super::placement::{AxisRole, PARTIAL_SUM};
use super::{AxisPlan, AxisView, Operand, Rule};

/// `result[.., i, ..] = tensor[.., indices[i], ..]`: a tensor, indices of one dimension.
#[derive(Clone, Copy, Debug)]
pub struct Select {
    /// The dimension that is indexed.
    pub dimension: usize,
    /// Says that the elements of other ranks can be zero here.
    pub has_zero: bool,
}

impl Rule for Select {
    fn shapes(&self, operands: &[Operand]) -> Vec<Vec<usize>> {
        let mut shape = operands[0].shape.clone();
        shape[self.dimension] = operands[1].shape[0];
        vec![shape]
    }

    fn plan(&self, view: &AxisView) -> AxisPlan {
        let (tensor, indices) = (view.place_of_sum(0), view.settled(1));
        let [tensor, indices, result] = match (tensor, indices) {
            (Replicated, Replicated) => [Replicated; 3],
            (PARTIAL_SUM, Replicated) => [PARTIAL_SUM, Replicated, PARTIAL_SUM],
            // The table stays where it is on a tensor axis.
            (Shard(cut), _) if cut == self.dimension && self.has_zero && keeps_table(view) => {
                [tensor, Replicated, PARTIAL_SUM]
            }
            (Shard(cut), Replicated) if cut != self.dimension => [tensor, Replicated, tensor],
            (Shard(cut), Shard(_)) if cut != self.dimension && keeps_table(view) => [tensor, Replicated, tensor],
            (_, Shard(_)) => [Replicated, Shard(0), Shard(self.dimension)],
            (Shard(cut), _) if cut == self.dimension && self.has_zero => [tensor, Replicated, PARTIAL_SUM],
            _ => [Replicated; 3],
        };
        AxisPlan::new([tensor, indices], [result])
    }
}

fn keeps_table(view: &AxisView) -> bool {
    view.role() == AxisRole::Tensor
}

/// `tensor[.., indices[i], ..] += value[.., i, ..]`: a tensor, indices of one dimension, values.
#[derive(Clone, Copy, Debug)]
pub struct SelectAdd {
    /// The dimension that is indexed.
    pub dimension: usize,
    /// Says that the operation adds, so that terms of a sum stay terms.
    pub is_linear: bool,
}

impl Rule for SelectAdd {
    fn plan(&self, view: &AxisView) -> AxisPlan {
        let (tensor, indices, value) = (view.place_of_sum(0), view.settled(1), view.place_of_sum(2));
        let others = |cut: usize| AxisPlan::new([Shard(cut), Replicated, Shard(cut)], [Shard(cut)]);
        match (tensor, indices, value) {
            (_, _, Shard(cut)) | (Shard(cut), _, _) if cut != self.dimension => others(cut),
            _ if !self.is_linear => AxisPlan::new([Replicated; 3], [Replicated]),
            (Replicated, Replicated, Replicated) => AxisPlan::new([Replicated; 3], [Replicated]),
            (_, _, PARTIAL_SUM) => AxisPlan::new([PARTIAL_SUM, Replicated, PARTIAL_SUM], [PARTIAL_SUM]),
            (_, Shard(_), _) | (_, _, Shard(_)) => {
                AxisPlan::new([PARTIAL_SUM, Shard(0), Shard(self.dimension)], [PARTIAL_SUM])
            }
            (PARTIAL_SUM, _, _) => AxisPlan::new([PARTIAL_SUM, Replicated, PARTIAL_SUM], [PARTIAL_SUM]),
            _ => AxisPlan::new([Replicated; 3], [Replicated]),
        }
    }
}

/// `result[.., i, ..] = tensor[.., indices[.., i, ..], ..]`: a tensor, indices of its number of dimensions.
#[derive(Clone, Copy, Debug)]
pub struct Gather {
    /// The dimension that is indexed.
    pub dimension: usize,
    /// Says that the elements of other ranks can be zero here.
    pub has_zero: bool,
}

impl Rule for Gather {
    fn shapes(&self, operands: &[Operand]) -> Vec<Vec<usize>> {
        vec![operands[1].shape.clone()]
    }

    fn plan(&self, view: &AxisView) -> AxisPlan {
        let (tensor, indices) = (view.place_of_sum(0), view.settled(1));
        let is_common = |cut: usize| cut != self.dimension && view.shape(0)[cut] == view.shape(1)[cut];
        let [tensor, indices, result] = match (tensor, indices) {
            (Shard(cut), _) if cut == self.dimension && self.has_zero => [tensor, Replicated, PARTIAL_SUM],
            (Shard(cut), _) | (_, Shard(cut)) if is_common(cut) => [Shard(cut); 3],
            (PARTIAL_SUM, Replicated) => [PARTIAL_SUM, Replicated, PARTIAL_SUM],
            (_, Shard(cut)) if cut == self.dimension => [Replicated, indices, indices],
            _ => [Replicated; 3],
        };
        AxisPlan::new([tensor, indices], [result])
    }
}

/// `tensor[.., indices[.., i, ..], ..] += value[.., i, ..]`: a tensor, indices and values of its number of dimensions.
#[derive(Clone, Copy, Debug)]
pub struct ScatterAdd {
    /// The dimension that is indexed.
    pub dimension: usize,
    /// Says that the operation adds, so that terms of a sum stay terms.
    pub is_linear: bool,
}

impl Rule for ScatterAdd {
    fn plan(&self, view: &AxisView) -> AxisPlan {
        let (tensor, indices, value) = (view.place_of_sum(0), view.settled(1), view.place_of_sum(2));
        let is_common = |cut: usize| {
            cut != self.dimension
                && view.shape(0)[cut] == view.shape(1)[cut]
                && view.shape(1)[cut] == view.shape(2)[cut]
        };
        let plan = |needs: [_; 3], result| AxisPlan::new(needs, [result]);
        let terms = plan([PARTIAL_SUM, Replicated, PARTIAL_SUM], PARTIAL_SUM);
        match (tensor, indices, value) {
            (_, _, PARTIAL_SUM) if self.is_linear => terms,
            (Shard(cut), _, _) | (_, Shard(cut), _) | (_, _, Shard(cut)) if is_common(cut) => {
                plan([Shard(cut); 3], Shard(cut))
            }
            (_, Shard(cut), _) | (_, _, Shard(cut)) if cut == self.dimension && self.is_linear => {
                plan([PARTIAL_SUM, Shard(cut), Shard(cut)], PARTIAL_SUM)
            }
            (PARTIAL_SUM, _, Replicated) if self.is_linear => terms,
            _ => plan([Replicated; 3], Replicated),
        }
    }
}

/// Rows of a table by index: a table of `[rows, d_model]`, indices of `[batch, seq]`.
#[derive(Clone, Copy, Debug)]
pub struct Embedding;

impl Rule for Embedding {
    fn shapes(&self, operands: &[Operand]) -> Vec<Vec<usize>> {
        let mut shape = operands[1].shape.clone();
        shape.push(operands[0].shape[1]);
        vec![shape]
    }

    fn plan(&self, view: &AxisView) -> AxisPlan {
        let (table, indices) = (view.place_of_sum(0), view.settled(1));
        let last = view.shape(1).len();
        let [table, indices, result] = match (table, indices) {
            (Shard(0), _) if keeps_table(view) => [table, Replicated, PARTIAL_SUM],
            (_, Shard(cut)) => [Replicated, indices, Shard(cut)],
            (Shard(0), Replicated) => [table, Replicated, PARTIAL_SUM],
            (Shard(_), Replicated) => [table, Replicated, Shard(last)],
            (PARTIAL_SUM, Replicated) => [PARTIAL_SUM, Replicated, PARTIAL_SUM],
            _ => [Replicated; 3],
        };
        AxisPlan::new([table, indices], [result])
    }
}

/// The gradient of the table: the table, of which the shape and the placement count alone, the gradient of the rows,
/// indices.
#[derive(Clone, Copy, Debug)]
pub struct EmbeddingGradient;

impl Rule for EmbeddingGradient {
    fn plan(&self, view: &AxisView) -> AxisPlan {
        let (table, gradient, indices) = (view.place(0), view.place_of_sum(1), view.settled(2));
        let last = view.shape(1).len() - 1;
        // The table's own elements are not read: they stay where they are.
        let plan = |gradient, indices, result| AxisPlan::new([table, gradient, indices], [result]);
        match (table, gradient, indices) {
            (Shard(0), _, _) if keeps_table(view) => plan(Replicated, Replicated, Shard(0)),
            (_, PARTIAL_SUM, Replicated) => plan(PARTIAL_SUM, Replicated, PARTIAL_SUM),
            (_, Shard(cut), _) if cut == last => plan(Shard(last), Replicated, Shard(1)),
            (_, Shard(cut), _) | (_, _, Shard(cut)) => plan(Shard(cut), Shard(cut), PARTIAL_SUM),
            _ => plan(Replicated, Replicated, Replicated),
        }
    }
}

/// `result[i, ..] = data[indices[i, ..], ..]`: data, and indices whose last dimension has the place in the first
/// dimensions of the data.
#[derive(Clone, Copy, Debug)]
pub struct GatherNd;

impl Rule for GatherNd {
    fn shapes(&self, operands: &[Operand]) -> Vec<Vec<usize>> {
        let (indexed, indices) = split_indices(&operands[1].shape);
        vec![[indices, &operands[0].shape[indexed..]].concat()]
    }

    fn plan(&self, view: &AxisView) -> AxisPlan {
        let (indexed, indices) = split_indices(view.shape(1));
        let [data, indices, result] = match (view.place_of_sum(0), view.settled(1)) {
            (Shard(cut), _) if cut >= indexed => [Shard(cut), Replicated, Shard(indices.len() + cut - indexed)],
            (PARTIAL_SUM, Replicated) => [PARTIAL_SUM, Replicated, PARTIAL_SUM],
            (_, Shard(cut)) if cut < indices.len() => [Replicated, Shard(cut), Shard(cut)],
            _ => [Replicated; 3],
        };
        AxisPlan::new([data, indices], [result])
    }
}

/// `data[indices[i, ..], ..]` changed by `values[i, ..]`: data, indices as for [`GatherNd`], values.
#[derive(Clone, Copy, Debug)]
pub struct ScatterNd;

impl Rule for ScatterNd {
    fn plan(&self, view: &AxisView) -> AxisPlan {
        let (indexed, indices) = split_indices(view.shape(1));
        let rest = indices.len();
        match (view.place_of_sum(0), view.place_of_sum(2)) {
            (Shard(cut), _) if cut >= indexed => {
                AxisPlan::new([Shard(cut), Replicated, Shard(rest + cut - indexed)], [Shard(cut)])
            }
            (_, Shard(cut)) if cut >= rest => {
                let to = Shard(indexed + cut - rest);
                AxisPlan::new([to, Replicated, Shard(cut)], [to])
            }
            _ => AxisPlan::new([Replicated; 3], [Replicated]),
        }
    }
}

/// The number of dimensions that an index names, and the other dimensions of the indices.
fn split_indices(shape: &[usize]) -> (usize, &[usize]) {
    let (&indexed, indices) = shape.split_last().expect("indices have a dimension for the place");
    (indexed, indices)
}
