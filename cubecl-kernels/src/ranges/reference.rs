//! Ranges of buffers in burn's operations.

use std::ops::Range;

use burn::tensor::Tensor;

use super::{BufferRange, RangeTarget};
use crate::precision::zeros;

/// Returns the elements of ranges one after the other; there is a buffer.
pub fn gather(buffers: Vec<Tensor<1>>, ranges: &[BufferRange]) -> Tensor<1> {
    let filled = ranges.iter().filter(|range| !range.range.is_empty());
    let parts: Vec<Tensor<1>> = filled
        .map(|range| buffers[range.buffer].clone().slice(range.range.clone()))
        .collect();
    if parts.is_empty() {
        zeros([0], &buffers[0].device(), buffers[0].dtype())
    } else {
        Tensor::cat(parts, 0)
    }
}

/// Returns the buffer with the values in its ranges.
pub fn scatter(buffer: Tensor<1>, values: Tensor<1>, targets: &[RangeTarget]) -> Tensor<1> {
    let filled = targets.iter().filter(|target| !target.range.is_empty());
    filled.fold(buffer, |buffer, RangeTarget { range, start }| {
        let own = values.clone().slice(*start..start + range.len());
        buffer.slice_assign(range.clone(), own)
    })
}

/// Returns the buffer with zeros in the ranges.
pub fn clear(buffer: Tensor<1>, ranges: &[Range<usize>]) -> Tensor<1> {
    let filled = ranges.iter().filter(|range| !range.is_empty());
    filled.fold(buffer, |buffer, range| {
        let nothing = Tensor::zeros([range.len()], (&buffer.device(), buffer.dtype()));
        buffer.slice_assign(range.clone(), nothing)
    })
}
