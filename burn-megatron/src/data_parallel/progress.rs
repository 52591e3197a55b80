//! [`Progress`]: how far a rank has come with its module.

use std::fmt;

/// What a rank has done to its module since it was wrapped; the same on all ranks that hold the same parameters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Steps of the optimizer.
    pub steps: u32,
    /// Calls of [`update`](super::DistributedDataParallel::update) and loaded records.
    pub updates: u32,
}

impl fmt::Display for Progress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = |count: u32| if count == 1 { "" } else { "s" };
        let Self { steps, updates } = *self;
        write!(
            formatter,
            "{steps} step{} and {updates} update{}",
            plural(steps),
            plural(updates)
        )
    }
}

impl Progress {
    /// Elements of [`to_maxima`](Self::to_maxima).
    pub(super) const NUM_MAXIMA: usize = 4;

    /// Returns the numbers whose maxima over the ranks show whether the ranks have come equally far.
    pub(super) fn to_maxima(self) -> [i32; Self::NUM_MAXIMA] {
        let [steps, updates] = [self.steps, self.updates].map(|count| (count & i32::MAX as u32) as i32);
        [steps, -steps, updates, -updates]
    }

    /// Whether ranks with these maxima have come equally far: the largest number is the smallest.
    pub(super) fn is_equal(maxima: &[i32]) -> bool {
        maxima.chunks_exact(2).all(|pair| pair[0] == -pair[1])
    }
}
