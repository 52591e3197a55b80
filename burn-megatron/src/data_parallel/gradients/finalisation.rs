//! [`Finalisation`]: which gradients of a step this rank counts in norms, by its place among the ranks.

use crate::context::ParallelContext;
use crate::data_parallel::buckets::gradient_entry::GradientEntry;

/// Which of a step's gradients this rank counts in norms.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finalisation {
    /// Whether other ranks may have parts of a parameter or of its gradient, which its norm is made of, too.
    pub(in crate::data_parallel) has_parts_elsewhere: bool,
    /// The place in the tensor group that says whether this rank counts parameters that others hold, too: the first
    /// of them does.
    counts_as: usize,
    /// Whether this rank counts copies of tied parameters.
    counts_copies: bool,
}

impl Finalisation {
    /// Returns what a rank counts at this place.
    pub(in crate::data_parallel) fn new(context: &ParallelContext) -> Self {
        let (tensor, data) = (context.tensor_group(), context.data_group());
        Self {
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
