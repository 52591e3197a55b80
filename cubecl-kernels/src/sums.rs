//! Sums of gradients over micro-batches, in a flat buffer, and a parameter's place in it.

use burn::tensor::{Tensor, backend::Backend};

/// Gradients of many parameters, added up over micro-batches. Given up by the caller, so that they can be written in
/// place.
#[derive(Clone, Debug)]
pub struct GradientSums<B: Backend> {
    /// The sums, `[elements]`: f32, or f64.
    pub sums: Tensor<B, 1>,
    /// For each parameter 0, or 1 once a gradient of it was not finite, `[parameters]`, in the sums' type.
    pub non_finite: Tensor<B, 1>,
}

/// Where a parameter's gradient goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GradientPlace {
    /// The first of its elements among the sums.
    pub offset: usize,
    /// The parameter's number.
    pub parameter: usize,
    /// Whether it replaces what is there instead of being added to it.
    pub is_first: bool,
}
