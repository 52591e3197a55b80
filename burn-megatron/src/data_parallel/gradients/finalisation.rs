//! [`Finalisation`]: what this rank does with a step's gradients once they have come, by its place among the ranks.

use crate::collectives::ReduceOp;
use crate::context::ParallelContext;
use crate::data_parallel::buckets::gradient_entry::GradientEntry;

/// Over whom a step's gradients are reduced, and which of them this rank counts in norms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finalisation {
    /// How the gradients of the data-parallel ranks become one.
    pub(in crate::data_parallel) average: ReduceOp,
    /// Whether partial gradients are summed over the tensor group.
    pub(in crate::data_parallel) sums_partial: bool,
    /// Whether gradients of what some ranks of the tensor group share are summed over these.
    pub(in crate::data_parallel) sums_shared: bool,
    /// Whether the gradients of tied copies are summed over the embedding group.
    pub(in crate::data_parallel) sums_copies: bool,
    /// Whether other ranks may have parts of a parameter or of its gradient, which its norm is made of, too.
    pub(in crate::data_parallel) has_parts_elsewhere: bool,
    /// The place in the tensor group that says whether this rank counts parameters that others hold, too: the first
    /// of them does.
    pub(in crate::data_parallel) counts_as: usize,
    /// Whether this rank counts copies of tied parameters.
    pub(in crate::data_parallel) counts_copies: bool,
}

impl Finalisation {
    /// Returns what a rank does at this place.
    pub(in crate::data_parallel) fn new(context: &ParallelContext) -> Self {
        let (tensor, data) = (context.tensor_group(), context.data_group());
        Self {
            average: ReduceOp::Mean,
            sums_partial: tensor.size() > 1,
            sums_shared: tensor.size() > 1,
            sums_copies: context.embedding_group().is_some_and(|group| group.size() > 1),
            has_parts_elsewhere: tensor.size() > 1 || data.size() > 1,
            counts_as: tensor.rank(),
            counts_copies: context.coordinates().pipeline == 0,
        }
    }

    /// Whether this rank counts a parameter that other ranks may hold, too.
    pub(in crate::data_parallel) fn counts(&self, entry: &GradientEntry) -> bool {
        self.counts_in_group(entry) && (!entry.is_tied || self.counts_copies)
    }

    /// Whether, of its tensor group, this rank counts a parameter.
    pub(in crate::data_parallel) fn counts_in_group(&self, entry: &GradientEntry) -> bool {
        entry.distribution.is_first_holder(self.counts_as)
    }
}
