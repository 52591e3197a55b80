//! The sums on the host in f64: what the tests compare with.

use super::GradientPlace;

/// The sums, and which gradients were not finite.
#[derive(Clone, Debug, PartialEq)]
pub struct Sums {
    /// The sums.
    pub sums: Vec<f64>,
    /// By parameter.
    pub non_finite: Vec<bool>,
}

impl Sums {
    /// Adds a gradient.
    pub fn add(&mut self, gradient: &[f64], place: GradientPlace) {
        let sums = &mut self.sums[place.offset..][..gradient.len()];
        for (sum, gradient) in sums.iter_mut().zip(gradient) {
            *sum = gradient + if place.is_first { 0.0 } else { *sum };
        }
        self.non_finite[place.parameter] |= gradient.iter().any(|gradient| !gradient.is_finite());
    }
}
