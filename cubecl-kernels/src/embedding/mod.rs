//! Tables of embeddings: looking tokens up, and adding the gradients of what was looked up to the table's.
//!
//! The lookup reads the tokens' rows alone, in the table's type. The gradients of a row are added up in f32, in the
//! order of its tokens, and then to the table's gradient once: no pass over the table, and the same bits every time.

pub(crate) mod autodiff;
pub(crate) mod flex;
pub mod host;
#[cfg(feature = "cubecl")]
mod kernel;
#[cfg(feature = "cubecl")]
pub(crate) mod launch;
pub mod reference;

use burn::tensor::{DType, Int, Tensor};

use crate::KernelBackend;
use crate::error::{Check, KernelError};
pub use crate::token_range::TokenRange;

/// Looks tokens up: the output's row is the table's for a token of the range, and zeros for any other.
///
/// # Shapes
/// - `table`: `[rows, columns]`, `range.count` rows at least
/// - `tokens`: `[tokens]`
/// - output: `[tokens, columns]`, in the table's type
///
/// # Errors
/// When the range is longer than the table, or the type is not computed with.
pub fn embedding<B: KernelBackend>(
    table: Tensor<B, 2>,
    tokens: Tensor<B, 1, Int>,
    range: TokenRange,
) -> Result<Tensor<B, 2>, KernelError> {
    let check = Check("embedding");
    check.float::<B>("the table", table.dtype(), &table.device())?;
    let [rows, _] = table.dims();
    check.value("the number of tokens", range.count as f64, range.count <= rows, || {
        format!("at most {rows}, as the table has rows")
    })?;
    Ok(B::embedding_rows(table, tokens, range))
}

/// Adds the gradients of embeddings to that of their table, which is in a flat buffer from `offset` on.
///
/// For each token of the range: the sum of its rows of `gradient`, in f32 or f64 and in the tokens' order, is added to
/// the table's row. Rows of other tokens do not count.
///
/// # Shapes
/// - `sums`: `[elements]`, given up by the caller, so that it can be written in place
/// - `tokens`: `[tokens]`
/// - `gradient`: `[tokens, columns]`
///
/// # Errors
/// When the range's rows do not fit in the sums, the shapes differ, or a type is not computed with.
pub fn add_rows<B: KernelBackend>(
    sums: Tensor<B, 1>,
    offset: usize,
    tokens: Tensor<B, 1, Int>,
    gradient: Tensor<B, 2>,
    range: TokenRange,
) -> Result<Tensor<B, 1>, KernelError> {
    let check = Check("add_rows");
    let ([elements], [count], [rows, columns]) = (sums.dims(), tokens.dims(), gradient.dims());
    check.float::<B>("the sums", sums.dtype(), &sums.device())?;
    check.float::<B>("the gradient", gradient.dtype(), &gradient.device())?;
    check.shape("the gradient", &[rows, columns], &[count, columns])?;
    let is_wide = |dtype| dtype == DType::F64;
    if is_wide(sums.dtype()) != is_wide(gradient.dtype()) {
        check.same_type("the gradient", gradient.dtype(), sums.dtype())?;
    }
    let end = range
        .count
        .checked_mul(columns)
        .and_then(|length| length.checked_add(offset));
    check.value(
        "the offset",
        offset as f64,
        end.is_some_and(|end| end <= elements),
        || format!("such that {} rows of {columns} end at {elements} at most", range.count),
    )?;
    Ok(B::add_rows(sums, offset, tokens, gradient, range))
}
