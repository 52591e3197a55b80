//! The sum of squares on the host in f64: what the tests compare with.

/// Returns the sum over all buffers.
pub fn sum_of_squares(buffers: &[Vec<f64>]) -> f64 {
    buffers.iter().flatten().map(|x| x * x).sum()
}
