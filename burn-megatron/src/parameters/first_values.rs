//! `FirstValues`: what a parameter starts with, before it has values, in any range of its elements.

use std::ops::Range;

use super::{ParameterInit, Placement};

/// What a parameter starts with.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FirstValues {
    pub(crate) name: String,
    pub(crate) seed: u64,
    pub(crate) init: ParameterInit,
    pub(crate) placement: Placement,
}

impl FirstValues {
    /// Returns the values of a range of this rank's elements, padding zero.
    pub(crate) fn range(&self, range: Range<usize>) -> Vec<f64> {
        self.init.values_in(self.seed, &self.name, &self.placement, range)
    }
}
