//! Ranges of buffers on the host in f64: what the tests compare with.

use super::{BufferRange, RangeTarget};

/// Returns the elements of ranges one after the other.
pub fn gather(buffers: &[Vec<f64>], ranges: &[BufferRange]) -> Vec<f64> {
    let of_range = |range: &BufferRange| buffers[range.buffer][range.range.clone()].to_vec();
    ranges.iter().flat_map(of_range).collect()
}

/// Writes values to ranges of a buffer.
pub fn scatter(buffer: &mut [f64], values: &[f64], targets: &[RangeTarget]) {
    for RangeTarget { range, start } in targets {
        buffer[range.clone()].copy_from_slice(&values[*start..][..range.len()]);
    }
}
