//! `GradientPlace`: a parameter's place in a flat buffer of sums.

/// Place of a parameter's gradient.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GradientPlace {
    /// The first of its elements among the sums.
    pub offset: usize,
    /// The parameter's number.
    pub parameter: usize,
    /// True if it replaces what is there instead of being added to it.
    pub is_first: bool,
}
