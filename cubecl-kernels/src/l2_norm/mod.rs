//! Sums of squares over parts of buffers, for the norms of a model's gradients.

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
use crate::precision::compute_type;

/// A part of one of several buffers, and the sum that its squares belong to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SquaredPart {
    /// The buffer's number.
    pub buffer: usize,
    /// Its elements.
    pub range: Range<usize>,
    /// The sum's number.
    pub sum: usize,
}

/// Returns sums of the squares of parts of buffers, `[sums]`: f32, or f64 if the buffers are f64. A sum without
/// elements is zero. With no buffer at all, there are none.
///
/// One pass over each buffer, whatever the number of its parts. Each part is added up in shares, so that the rounding
/// error does not grow with the number of elements; the shares of a part depend on its length alone, so that a sum has
/// the same bits whatever the others are.
///
/// # Shapes
/// - `buffers`: any number of elements each, all of one type
///
/// # Errors
/// When the types differ or are not computed with, or a part is outside its buffer or the sums.
pub fn sums_of_squares(
    buffers: Vec<Tensor<1>>,
    parts: &[SquaredPart],
    sums: usize,
) -> Result<Option<Tensor<1>>, KernelError> {
    let check = Check("sums_of_squares");
    let Some(first) = buffers.first() else {
        return Ok(None);
    };
    let dtype = first.dtype();
    check.float("buffer 0", dtype, &first.device())?;
    for (index, buffer) in buffers.iter().enumerate() {
        check.same_type(format!("buffer {index}"), buffer.dtype(), dtype)?;
    }
    for part in parts {
        check.value("a part's sum", part.sum as f64, part.sum < sums, || {
            format!("less than {sums}")
        })?;
        let length = buffers.get(part.buffer).map(|buffer| buffer.dims()[0]);
        check.value("a part's buffer", part.buffer as f64, length.is_some(), || {
            format!("less than {}", buffers.len())
        })?;
        let is_inside = part.range.start <= part.range.end && Some(part.range.end) <= length;
        check.value("a part's end", part.range.end as f64, is_inside, || {
            format!("{} at least and {} at most", part.range.start, length.unwrap_or(0))
        })?;
    }
    let operation = Squares {
        parts: parts.to_vec(),
        sums,
    };
    Ok(Some(apply(&operation, buffers)))
}

/// Returns the sum of the squares of all elements, `[1]`: see [`sums_of_squares`].
///
/// # Errors
/// When the types differ or are not computed with.
pub fn sum_of_squares(buffers: Vec<Tensor<1>>) -> Result<Option<Tensor<1>>, KernelError> {
    let whole = |(buffer, tensor): (usize, &Tensor<1>)| SquaredPart {
        buffer,
        range: 0..tensor.dims()[0],
        sum: 0,
    };
    let parts: Vec<SquaredPart> = buffers.iter().enumerate().map(whole).collect();
    sums_of_squares(buffers, &parts, 1)
}

/// Buffers to sums of the squares of their parts.
#[derive(Clone, Debug)]
struct Squares {
    parts: Vec<SquaredPart>,
    sums: usize,
}

impl Operation for Squares {
    type Inputs = Vec<Tensor<1>>;
    type Outputs = Tensor<1>;

    const NAME: &'static str = "sums_of_squares";

    fn outputs(&self, buffers: Vec<Spec>) -> Spec {
        ([self.sums].into(), compute_type(buffers[0].1))
    }

    fn reference(&self, buffers: Vec<Tensor<1>>) -> Tensor<1> {
        reference::sums_of_squares(buffers, &self.parts, self.sums)
    }

    fn flex(&self, buffers: Vec<FlexTensor>) -> FlexTensor {
        flex::sums_of_squares(buffers, &self.parts, self.sums)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, buffers: Vec<CubeTensor>) -> CubeTensor {
        launch::sums_of_squares(buffers, &self.parts, self.sums)
    }
}
