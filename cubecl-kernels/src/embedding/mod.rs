//! Tables of embeddings: looking tokens up, and adding the gradients of what was looked up to the table's.
//!
//! The lookup reads the tokens' rows alone, in the table's type. The gradients of a row are added up in f32, in the
//! order of its tokens, and then to the table's gradient once: no pass over the table, and the same bits every time.

mod flex;
pub mod host;
#[cfg(feature = "cubecl")]
mod kernel;
#[cfg(feature = "cubecl")]
mod launch;
mod reference;

use burn::tensor::{DType, Int, Tensor};
#[cfg(feature = "cubecl")]
use burn_cubecl::tensor::CubeTensor;
use burn_flex::FlexTensor;
#[cfg(feature = "cubecl")]
use cubecl::client::Client;

use crate::error::{Check, KernelError};
use crate::linear::destination::sink_of;
use crate::operation::{Of, Operation, Spec, apply};
use crate::precision::zeros;
use crate::tape::{inner, record, zero};
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
pub fn embedding(table: Tensor<2>, tokens: Tensor<1, Int>, range: TokenRange) -> Result<Tensor<2>, KernelError> {
    let check = Check("embedding");
    check.float("the table", table.dtype(), &table.device())?;
    let [rows, _] = table.dims();
    check.value("the number of tokens", range.count as f64, range.count <= rows, || {
        format!("at most {rows}, as the table has rows")
    })?;
    let (own, tokens, sink) = (inner(&table), inner(&tokens), sink_of(&table));
    let output = apply(&Rows(range), (own, tokens.clone()));
    let shape = table.dims();
    Ok(record(table, output, move |gradient, _| {
        let (device, dtype) = (gradient.device(), gradient.dtype());
        if let Some(sink) = sink.filter(|_| !gradient.dims().contains(&0)) {
            sink.add_rows(tokens, gradient, range);
            return Some(zero(&device, dtype));
        }
        if shape.contains(&0) {
            // burn takes a size of 0 in a reshape for that of before.
            return Some(zeros(shape, &device, dtype));
        }
        let sums = Tensor::zeros([shape.iter().product::<usize>()], (&device, dtype));
        let sums = apply(&AddRows { offset: 0, range }, (sums, tokens, gradient));
        Some(sums.reshape(shape))
    }))
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
pub fn add_rows(
    sums: Tensor<1>,
    offset: usize,
    tokens: Tensor<1, Int>,
    gradient: Tensor<2>,
    range: TokenRange,
) -> Result<Tensor<1>, KernelError> {
    let check = Check("add_rows");
    let ([elements], [count], [rows, columns]) = (sums.dims(), tokens.dims(), gradient.dims());
    check.float("the sums", sums.dtype(), &sums.device())?;
    check.float("the gradient", gradient.dtype(), &gradient.device())?;
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
    let operation = AddRows { offset, range };
    Ok(apply(&operation, (sums, tokens, gradient)))
}

/// Table and tokens to the tokens' rows.
#[derive(Clone, Copy, Debug)]
struct Rows(TokenRange);

impl Operation for Rows {
    type Inputs = (Tensor<2>, Tensor<1, Int>);
    type Outputs = Tensor<2>;

    const NAME: &'static str = "embedding";

    fn outputs(&self, ((mut shape, dtype), (tokens, _)): (Spec, Spec)) -> Spec {
        shape[0] = tokens[0];
        (shape, dtype)
    }

    fn reference(&self, (table, tokens): Self::Inputs) -> Tensor<2> {
        reference::forward(table, tokens, self.0)
    }

    fn flex(&self, (table, tokens): (FlexTensor, FlexTensor)) -> FlexTensor {
        flex::forward(table, tokens, self.0)
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, (table, tokens): (CubeTensor, CubeTensor)) -> CubeTensor {
        launch::rows(table, tokens, self.0)
    }
}

/// Sums, tokens and the gradients of their rows to the sums with these added.
#[derive(Clone, Copy, Debug)]
struct AddRows {
    /// Beginning of the first row among the sums.
    offset: usize,
    range: TokenRange,
}

impl Operation for AddRows {
    type Inputs = (Tensor<1>, Tensor<1, Int>, Tensor<2>);
    type Outputs = Tensor<1>;

    const NAME: &'static str = "add_rows";

    fn outputs(&self, (sums, ..): Of<Self::Inputs, Spec>) -> Spec {
        sums
    }

    fn reference(&self, (sums, tokens, gradient): Self::Inputs) -> Tensor<1> {
        reference::add_rows(sums, tokens, gradient, self)
    }

    fn flex(&self, (sums, tokens, gradient): Of<Self::Inputs, FlexTensor>) -> FlexTensor {
        flex::add_rows(sums, tokens, gradient, self)
    }

    #[cfg(feature = "cubecl")]
    fn is_taken(&self, _client: &Client, _inputs: Of<Self::Inputs, Spec>) -> bool {
        self.range.count > 0
    }

    #[cfg(feature = "cubecl")]
    fn cube(&self, (sums, tokens, gradient): Of<Self::Inputs, CubeTensor>) -> CubeTensor {
        launch::add_rows(sums, tokens, gradient, self)
    }
}
