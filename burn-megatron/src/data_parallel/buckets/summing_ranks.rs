//! [`SummingRanks`]: the ranks that add up gradients of what they all hold.

use burn::tensor::Tensor;

use crate::collectives::ProcessGroup;

/// All ranks of a group, or each few adjacent ones of it by themselves.
///
/// The few have no group of their own: one all-reduce over the whole group sums for all of them, each in a part of its
/// array that is zero on the others.
#[derive(Clone, Copy, Debug)]
pub(in crate::data_parallel) struct SummingRanks<'a> {
    pub(in crate::data_parallel) group: &'a ProcessGroup,
    /// The number of ranks that add up.
    copies: usize,
}

impl<'a> SummingRanks<'a> {
    /// Returns all ranks of a group.
    pub(in crate::data_parallel) fn all(group: &'a ProcessGroup) -> Self {
        let copies = group.size();
        Self { group, copies }
    }

    /// Returns each `copies` adjacent ranks of a group.
    ///
    /// # Panics
    /// When `copies` does not divide the size of the group.
    pub(in crate::data_parallel) fn each(copies: usize, group: &'a ProcessGroup) -> Self {
        let size = group.size();
        assert!(
            copies > 0 && size.is_multiple_of(copies),
            "{copies} ranks with the same part in a {group} of {size}"
        );
        Self { group, copies }
    }

    /// Returns whether there is nothing to add.
    pub(in crate::data_parallel) fn is_alone(&self) -> bool {
        self.copies == 1
    }

    /// The number of parts of the array that is reduced.
    pub(in crate::data_parallel) fn num_parts(&self) -> usize {
        self.group.size() / self.copies
    }

    /// The part of it that this rank adds to.
    pub(in crate::data_parallel) fn part(&self) -> usize {
        self.group.rank() / self.copies
    }

    /// Returns the array of all parts, `[num_parts * len]`, in which `mine`, `[len]`, is this rank's.
    pub(in crate::data_parallel) fn among_all(&self, mine: Tensor<1>) -> Tensor<1> {
        if self.num_parts() == 1 {
            return mine;
        }
        let ([length], device) = (mine.dims(), mine.device());
        let all = Tensor::zeros([self.num_parts() * length], (&device, mine.dtype()));
        let start = self.part() * length;
        all.slice_assign(start..start + length, mine)
    }

    /// Returns this rank's part of the array of all parts: the inverse of [`among_all`](Self::among_all).
    pub(in crate::data_parallel) fn of_all(&self, all: Tensor<1>) -> Tensor<1> {
        let length = all.dims()[0] / self.num_parts();
        all.narrow(0, self.part() * length, length)
    }
}
