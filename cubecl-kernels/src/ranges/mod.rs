//! Ranges of flat buffers: copied into one buffer side by side and back, which is how several parameters' gradients are
//! reduced in one call; and cleared.

pub(crate) mod flex;
pub mod host;
#[cfg(feature = "cubecl")]
mod kernel;
#[cfg(feature = "cubecl")]
pub(crate) mod launch;
pub mod reference;

use std::ops::Range;

use burn::tensor::Tensor;

use crate::KernelBackend;
use crate::error::{Check, KernelError};

/// A range of one of several buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BufferRange {
    /// The buffer's number.
    pub buffer: usize,
    /// Its elements.
    pub range: Range<usize>,
}

/// A range of a buffer, and where its elements are among the values that are written there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeTarget {
    /// The elements that are written.
    pub range: Range<usize>,
    /// The first value for them.
    pub start: usize,
}

/// Returns the elements of ranges one after the other, `[elements of all]`; none without buffers.
///
/// One launch for each buffer, whatever the number of its ranges.
///
/// # Shapes
/// - `buffers`: any number of elements each, all of one type
///
/// # Errors
/// When the types differ or are not computed with, or a range is outside its buffer.
pub fn gather_ranges<B: KernelBackend>(
    buffers: Vec<Tensor<B, 1>>,
    ranges: &[BufferRange],
) -> Result<Option<Tensor<B, 1>>, KernelError> {
    let check = Check("gather_ranges");
    let Some(first) = buffers.first() else {
        return Ok(None);
    };
    let dtype = first.dtype();
    check.float::<B>("buffer 0", dtype, &first.device())?;
    for (index, buffer) in buffers.iter().enumerate() {
        check.same_type(format!("buffer {index}"), buffer.dtype(), dtype)?;
    }
    for BufferRange { buffer, range } in ranges {
        let length = buffers.get(*buffer).map(|buffer| buffer.dims()[0]);
        check.value("a range's buffer", *buffer as f64, length.is_some(), || {
            format!("less than {}", buffers.len())
        })?;
        check_range(check, range, length.unwrap_or(0))?;
    }
    Ok(Some(B::gather_ranges(buffers, ranges)))
}

/// Writes values to ranges of a buffer, in one launch. Ranges are apart from each other.
///
/// # Shapes
/// - `buffer`: `[elements]`, given up by the caller, so that it can be written in place
/// - `values`: any number of elements, in the buffer's type
///
/// # Errors
/// When the types differ or are not computed with, or a range is outside the buffer or the values.
pub fn scatter_ranges<B: KernelBackend>(
    buffer: Tensor<B, 1>,
    values: Tensor<B, 1>,
    targets: &[RangeTarget],
) -> Result<Tensor<B, 1>, KernelError> {
    let check = Check("scatter_ranges");
    let ([elements], [available]) = (buffer.dims(), values.dims());
    check.float::<B>("the buffer", buffer.dtype(), &buffer.device())?;
    check.same_type("the values", values.dtype(), buffer.dtype())?;
    for RangeTarget { range, start } in targets {
        check_range(check, range, elements)?;
        let fits = available.checked_sub(range.len()).is_some_and(|last| *start <= last);
        check.value("a range's first value", *start as f64, fits, || {
            format!("such that {} values end at {available} at most", range.len())
        })?;
    }
    Ok(B::scatter_ranges(buffer, values, targets))
}

/// Writes zeros to ranges of a buffer, in one launch.
///
/// # Shapes
/// - `buffer`: `[elements]`, given up by the caller, so that it can be written in place
///
/// # Errors
/// When the type is not computed with, or a range is outside the buffer.
pub fn clear_ranges<B: KernelBackend>(
    buffer: Tensor<B, 1>,
    ranges: &[Range<usize>],
) -> Result<Tensor<B, 1>, KernelError> {
    let check = Check("clear_ranges");
    let [elements] = buffer.dims();
    check.float::<B>("the buffer", buffer.dtype(), &buffer.device())?;
    for range in ranges {
        check_range(check, range, elements)?;
    }
    Ok(B::clear_ranges(buffer, ranges))
}

fn check_range(check: Check, range: &Range<usize>, length: usize) -> Result<(), KernelError> {
    let is_inside = range.start <= range.end && range.end <= length;
    check.value("a range's end", range.end as f64, is_inside, || {
        format!("{} at least and {length} at most", range.start)
    })
}
