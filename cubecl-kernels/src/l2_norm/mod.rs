//! The sum of squares over many buffers, for the norm of a model's gradients.

pub(crate) mod flex;
pub mod host;
#[cfg(feature = "cubecl")]
mod kernel;
#[cfg(feature = "cubecl")]
pub(crate) mod launch;
pub mod reference;

use burn::tensor::Tensor;

use crate::KernelBackend;
use crate::error::{Check, KernelError};

/// Returns the sum of the squares of all elements, `[1]`: f32, or f64 if the buffers are f64.
///
/// Added up in parts, so that the rounding error does not grow with the number of elements. With no buffer at all,
/// none.
///
/// # Shapes
/// - `buffers`: any number of elements each, all of one type
///
/// # Errors
/// When the types differ or are not computed with.
pub fn sum_of_squares<B: KernelBackend>(buffers: Vec<Tensor<B, 1>>) -> Result<Option<Tensor<B, 1>>, KernelError> {
    let check = Check("sum_of_squares");
    let Some(first) = buffers.first() else {
        return Ok(None);
    };
    let dtype = first.dtype();
    check.float::<B>("buffer 0", dtype, &first.device())?;
    for (index, buffer) in buffers.iter().enumerate() {
        check.same_type(format!("buffer {index}"), buffer.dtype(), dtype)?;
    }
    Ok(Some(B::sum_of_squares(buffers)))
}
