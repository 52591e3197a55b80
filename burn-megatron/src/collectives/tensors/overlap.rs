//! Linear products whose rows are gathered or reduce-scattered in chunks: while one chunk is multiplied, the next is on
//! its way.
//!
//! Every rank starts the same calls in the same order, and waits for them in this order. Where the device has NCCL and
//! cuBLASLt, a chunk is sent from where it is and received where it belongs, and multiplied there: no activation is
//! copied.

use std::ops::Range;

use burn::tensor::{Tensor, backend::Backend, ops::FloatTensor};
use cubecl_kernels::KernelBackend;
use cubecl_kernels::linear::blocks::{BlockProduct, RowBlocks, unwritten};
use cubecl_kernels::linear::{LinearInputs, WeightOrder};
use cubecl_kernels::tape::{float, primitive};

use super::{PendingTensor, RowChunks, unwrap_or_unwind};
use crate::collectives::CollectiveError;

/// A chunk on its way to rows of an output.
#[must_use = "the rows come with `wait`"]
pub struct PendingRows<B: Backend> {
    pending: PendingTensor<B>,
    /// The output's rows to copy them to; `None` if they arrive in the output's memory.
    copied_to: Option<RowBlocks>,
}

/// The gradient of a product's output, of all ranks, and that of its input.
#[derive(Clone, Debug)]
pub struct GatheredGradient<B: Backend> {
    /// `[tokens, d_output]`
    pub output: Tensor<B, 2>,
    /// `[tokens, d_input / tp]`
    pub input: Tensor<B, 2>,
}

impl<B: Backend> PendingRows<B> {
    /// Returns the handles of rows that come into memory of their own.
    pub(super) fn all_apart(pending: Vec<PendingTensor<B>>, to: &[RowBlocks]) -> Vec<Self> {
        let apart = |(pending, to): (_, &RowBlocks)| Self {
            pending,
            copied_to: Some(*to),
        };
        pending.into_iter().zip(to).map(apart).collect()
    }

    /// Returns the handle of rows that come to the output's memory.
    #[cfg(feature = "nccl")]
    pub(super) fn in_output(pending: PendingTensor<B>) -> Self {
        Self {
            pending,
            copied_to: None,
        }
    }

    /// Waits for the rows, and returns the output with them. Bounded, because the call is.
    ///
    /// # Errors
    /// The error of the call.
    pub fn wait(self, output: FloatTensor<B>) -> Result<FloatTensor<B>, CollectiveError> {
        let rows = self.pending.wait()?;
        Ok(match self.copied_to {
            None => output,
            Some(to) => primitive(put_rows::<B>(float(output), float(rows), to)),
        })
    }
}

/// Returns the output with these rows in their places.
fn put_rows<B: Backend>(output: Tensor<B, 2>, rows: Tensor<B, 2>, to: RowBlocks) -> Tensor<B, 2> {
    let [_, columns] = output.dims();
    let from = RowBlocks::adjacent(to.rows, to.count);
    from.ranges().zip(to.ranges()).fold(output, |output, (from, to)| {
        output.slice_assign([to, 0..columns], rows.clone().slice([from]))
    })
}

/// `input · weight + bias` of the rows of all ranks, of which the chunks are being gathered: each is multiplied as soon
/// as it has come.
#[track_caller]
pub(super) fn multiply_gathered<B: KernelBackend>(
    inputs: LinearInputs<B>,
    chunks: RowChunks,
    ranks: usize,
    gathering: Vec<PendingTensor<B>>,
) -> Tensor<B, 2> {
    let output = output_of(&inputs, ranks * chunks.rows());
    let gathering = chunks.ranges().into_iter().zip(gathering);
    gathering.fold(output, |output, (range, gathered)| {
        let gathered = float(unwrap_or_unwind(gathered.wait()));
        B::affine_blocks(BlockProduct {
            inputs: LinearInputs {
                input: gathered,
                ..inputs.clone()
            },
            from: RowBlocks::adjacent(range.len(), ranks),
            output,
            to: chunks.blocks(&range, ranks),
        })
    })
}

/// This rank's rows of the sum of `input · weight` over the ranks. `reduce` starts to reduce-scatter a chunk's part of
/// the product to rows of the output, while the next one is multiplied. The ranks' parts of an element are added in the
/// order in which those of the whole are.
#[track_caller]
pub(super) fn multiply_and_scatter<B: KernelBackend>(
    inputs: LinearInputs<B>,
    chunks: RowChunks,
    ranks: usize,
    reduce: impl Fn(FloatTensor<B>, &FloatTensor<B>, RowBlocks) -> Vec<PendingRows<B>>,
) -> Tensor<B, 2> {
    let output = primitive(output_of(&inputs, chunks.rows()));
    let start = |range: Range<usize>| {
        let part = B::affine_blocks(BlockProduct {
            inputs: inputs.clone(),
            from: chunks.blocks(&range, ranks),
            output: output_of(&inputs, ranks * range.len()),
            to: RowBlocks::adjacent(range.len(), ranks),
        });
        reduce(primitive(part), &output, RowBlocks::range(range))
    };
    let reducing: Vec<_> = chunks.ranges().into_iter().flat_map(start).collect();
    let arrived = |output, pending: PendingRows<B>| unwrap_or_unwind(pending.wait(output));
    float(reducing.into_iter().fold(output, arrived))
}

/// The gradient of an output of which each rank holds its own rows, and that of its input: `gradient · weightᵀ`.
/// `gather` starts to gather the chunks to these rows of a matrix; each is multiplied as soon as it has come.
#[track_caller]
pub(super) fn gather_gradient<B: KernelBackend>(
    gradient: Tensor<B, 2>,
    (weight, order): (Tensor<B, 2>, WeightOrder),
    chunks: RowChunks,
    ranks: usize,
    gather: impl FnOnce(FloatTensor<B>, &FloatTensor<B>, &[RowBlocks]) -> Vec<PendingRows<B>>,
) -> GatheredGradient<B> {
    let ([_, d_output], rows) = (gradient.dims(), ranks * chunks.rows());
    let mut whole = primitive(unwritten::<B>([rows, d_output], &gradient.device(), gradient.dtype()));
    let inputs = LinearInputs {
        input: gradient.clone(),
        weight,
        bias: None,
        order: order.turned(),
    };
    let mut of_input = output_of(&inputs, rows);
    let ranges = chunks.ranges();
    let to: Vec<_> = ranges.iter().map(|range| chunks.blocks(range, ranks)).collect();
    let gathering = gather(primitive(gradient), &whole, &to);
    for (to, pending) in to.into_iter().zip(gathering) {
        whole = unwrap_or_unwind(pending.wait(whole));
        of_input = B::affine_blocks(BlockProduct {
            inputs: LinearInputs {
                input: float(whole.clone()),
                ..inputs.clone()
            },
            from: to,
            output: of_input,
            to,
        });
    }
    GatheredGradient {
        output: float(whole),
        input: of_input,
    }
}

/// A product's output with this number of rows, to be written.
fn output_of<B: KernelBackend>(inputs: &LinearInputs<B>, rows: usize) -> Tensor<B, 2> {
    let [first, second] = inputs.weight.dims();
    let columns = match inputs.order {
        WeightOrder::InputFirst => second,
        WeightOrder::OutputFirst => first,
    };
    unwritten([rows, columns], &inputs.input.device(), inputs.input.dtype())
}
