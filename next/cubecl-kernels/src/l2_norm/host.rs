//! Sums of squares on the host in f64: what the tests compare with.

use super::SquaredPart;

/// Returns the sum over all buffers.
pub fn sum_of_squares(buffers: &[Vec<f64>]) -> f64 {
    buffers.iter().flatten().map(|x| x * x).sum()
}

/// Returns the sums over parts of buffers.
pub fn sums_of_squares(buffers: &[Vec<f64>], parts: &[SquaredPart], sums: usize) -> Vec<f64> {
    let mut totals = vec![0.0; sums];
    for part in parts {
        let values = &buffers[part.buffer][part.range.clone()];
        totals[part.sum] += values.iter().map(|x| x * x).sum::<f64>();
    }
    totals
}
