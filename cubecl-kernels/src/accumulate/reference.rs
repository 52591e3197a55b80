//! The sums in burn's operations.

use burn::tensor::Tensor;

use super::{GradientPlace, GradientSums};
use crate::precision::narrow;

/// Returns the sums with the gradient added to its place.
pub fn add(sums: GradientSums, gradient: Tensor<1>, place: GradientPlace) -> GradientSums {
    let [length] = gradient.dims();
    if length == 0 {
        return sums;
    }
    let gradient = narrow(gradient, sums.sums.dtype());
    let range = place.offset..place.offset + length;
    // Nothing but an infinite number, or none, differs from itself by something else than zero.
    let is_finite = (gradient.clone() - gradient.clone()).equal_elem(0.0).all();
    let flag = place.parameter..place.parameter + 1;
    let noted = sums.non_finite.clone().slice(flag.clone());
    let noted = noted.mask_fill(is_finite.bool_not(), 1.0);
    let sum = if place.is_first {
        gradient
    } else {
        sums.sums.clone().slice(range.clone()) + gradient
    };
    GradientSums {
        sums: sums.sums.slice_assign(range, sum),
        non_finite: sums.non_finite.slice_assign(flag, noted),
    }
}
