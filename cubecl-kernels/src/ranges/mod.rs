//! Ranges of flat buffers: copied into one buffer side by side and back, which is how several parameters' gradients are
//! reduced in one call; and cleared.

mod flex;
pub mod host;
#[cfg(feature = "cubecl")]
mod kernel;
#[cfg(feature = "cubecl")]
mod launch;
mod reference;

use std::ops::Range;

use burn::tensor::Tensor;
#[cfg(feature = "cubecl")]
use burn_cubecl::tensor::CubeTensor;
use burn_flex::FlexTensor;

use crate::error::{Check, KernelError};
use crate::operation::{Operation, Spec, apply};

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
pub fn gather_ranges(buffers: Vec<Tensor<1>>, ranges: &[BufferRange]) -> Result<Option<Tensor<1>>, KernelError> {
    let check = Check("gather_ranges");
    let Some(first) = buffers.first() else {
        return Ok(None);
    };
    let dtype = first.dtype();
    check.float("buffer 0", dtype, &first.device())?;
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
    Ok(Some(apply(&Gather(ranges.to_vec()), buffers)))
}

/// Writes values to ranges of a buffer, in one launch. Ranges are apart from each other.
///
/// # Shapes
/// - `buffer`: `[elements]`, given up by the caller, so that it can be written in place
/// - `values`: any number of elements, in the buffer's type
///
/// # Errors
/// When the types differ or are not computed with, or a range is outside the buffer or the values.
pub fn scatter_ranges(buffer: Tensor<1>, values: Tensor<1>, targets: &[RangeTarget]) -> Result<Tensor<1>, KernelError> {
    let check = Check("scatter_ranges");
    let ([elements], [available]) = (buffer.dims(), values.dims());
    check.float("the buffer", buffer.dtype(), &buffer.device())?;
    check.same_type("the values", values.dtype(), buffer.dtype())?;
    for RangeTarget { range, start } in targets {
        check_range(check, range, elements)?;
        let fits = available.checked_sub(range.len()).is_some_and(|last| *start <= last);
        check.value("a range's first value", *start as f64, fits, || {
            format!("such that {} values end at {available} at most", range.len())
        })?;
    }
    Ok(apply(&Scatter(targets.to_vec()), [buffer, values]))
}

/// Writes zeros to ranges of a buffer, in one launch.
///
/// # Shapes
/// - `buffer`: `[elements]`, given up by the caller, so that it can be written in place
///
/// # Errors
/// When the type is not computed with, or a range is outside the buffer.
pub fn clear_ranges(buffer: Tensor<1>, ranges: &[Range<usize>]) -> Result<Tensor<1>, KernelError> {
    let check = Check("clear_ranges");
    let [elements] = buffer.dims();
    check.float("the buffer", buffer.dtype(), &buffer.device())?;
    for range in ranges {
        check_range(check, range, elements)?;
    }
    Ok(apply(&Clear(ranges.to_vec()), buffer))
}

fn check_range(check: Check, range: &Range<usize>, length: usize) -> Result<(), KernelError> {
    let is_inside = range.start <= range.end && range.end <= length;
    check.value("a range's end", range.end as f64, is_inside, || {
        format!("{} at least and {length} at most", range.start)
    })
}

/// Buffers to the elements of their ranges.
#[derive(Clone, Debug)]
struct Gather(Vec<BufferRange>);

impl Operation for Gather {
    type Inputs = Vec<Tensor<1>>;
    type Outputs = Tensor<1>;

    const NAME: &'static str = "gather_ranges";

    fn outputs(&self, buffers: Vec<Spec>) -> Spec {
        let count = self.0.iter().map(|range| range.range.len()).sum::<usize>();
        ([count].into(), buffers[0].1)
    }

    fn reference(&self, buffers: Vec<Tensor<1>>) -> Tensor<1> {
        reference::gather(buffers, &self.0)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, buffers: Vec<CubeTensor>) -> CubeTensor {
        launch::gather(buffers, &self.0)
    }
}

/// A buffer and values to the buffer with these in its ranges.
#[derive(Clone, Debug)]
struct Scatter(Vec<RangeTarget>);

impl Operation for Scatter {
    type Inputs = [Tensor<1>; 2];
    type Outputs = Tensor<1>;

    const NAME: &'static str = "scatter_ranges";

    fn outputs(&self, [buffer, _]: [Spec; 2]) -> Spec {
        buffer
    }

    fn reference(&self, [buffer, values]: [Tensor<1>; 2]) -> Tensor<1> {
        reference::scatter(buffer, values, &self.0)
    }

    fn flex(&self, [buffer, values]: [FlexTensor; 2]) -> FlexTensor {
        flex::scatter(buffer, values, &self.0)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, [buffer, values]: [CubeTensor; 2]) -> CubeTensor {
        launch::scatter(buffer, values, &self.0)
    }
}

/// A buffer to the buffer with zeros in its ranges.
#[derive(Clone, Debug)]
struct Clear(Vec<Range<usize>>);

impl Operation for Clear {
    type Inputs = Tensor<1>;
    type Outputs = Tensor<1>;

    const NAME: &'static str = "clear_ranges";

    fn outputs(&self, buffer: Spec) -> Spec {
        buffer
    }

    fn reference(&self, buffer: Tensor<1>) -> Tensor<1> {
        reference::clear(buffer, &self.0)
    }

    fn flex(&self, buffer: FlexTensor) -> FlexTensor {
        flex::clear(buffer, &self.0)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, buffer: CubeTensor) -> CubeTensor {
        launch::clear(buffer, &self.0)
    }
}
