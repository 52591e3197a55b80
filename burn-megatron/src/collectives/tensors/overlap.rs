//! Linear products whose rows are gathered or reduce-scattered in chunks: while one chunk is multiplied, the next is on
//! its way.
//!
//! Every rank starts the same calls in the same order, and waits for them in this order. Where the device has NCCL and
//! cuBLASLt, a chunk is sent from where it is and received where it belongs, and multiplied there: no activation is
//! copied.

use std::ops::Range;

use burn::tensor::Tensor;
use cubecl_kernels::linear::blocks::{BlockProduct, RowBlocks, affine_blocks, unwritten};
use cubecl_kernels::linear::{LinearInputs, WeightOrder};

use super::regions::start_into;
use super::{PendingTensor, RowChunks, TensorCall, has_device_memory, start, unwrap_or_unwind};
use crate::collectives::{CollectiveError, ProcessGroup, ReduceOp};

/// A chunk on its way to rows of an output.
enum PendingRows {
    /// In the memory of the output, which is what is waited for.
    InOutput(PendingTensor),
    /// In memory of its own.
    Apart(PendingTensor, RowBlocks),
}

/// The gradient of a product's output, of all ranks, and that of its input.
#[derive(Clone, Debug)]
pub(super) struct GatheredGradient {
    /// `[tokens, d_output]`
    pub output: Tensor<2>,
    /// `[tokens, d_input / tp]`
    pub input: Tensor<2>,
}

impl PendingRows {
    /// Starts a collective on rows of a matrix whose result goes to rows of `output`, there if the device can.
    #[track_caller]
    fn start(
        (matrix, from): (Tensor<2>, Range<usize>),
        call: TensorCall,
        (output, to): (&Tensor<2>, RowBlocks),
        group: &ProcessGroup,
    ) -> Self {
        match start_into((&matrix, from.clone()), call, (output, to), group) {
            Some(pending) => Self::InOutput(pending),
            None => Self::Apart(start(rows_of(matrix, from), call, group), to),
        }
    }

    /// Waits for the rows, and returns the output with them. Bounded, because the call is.
    ///
    /// # Errors
    /// The error of the call.
    fn wait(self, output: Tensor<2>) -> Result<Tensor<2>, CollectiveError> {
        match self {
            Self::InOutput(pending) => pending.tensor(),
            Self::Apart(pending, to) => Ok(put_rows(output, pending.tensor()?, to)),
        }
    }
}

/// Starts to gather each of these ranges of a matrix's rows, in order.
#[track_caller]
pub(super) fn gather_rows(matrix: &Tensor<2>, ranges: &[Range<usize>], group: &ProcessGroup) -> Vec<PendingTensor> {
    let ranks = group.size();
    let ([_, columns], device) = (matrix.dims(), matrix.device());
    let gather = |range: &Range<usize>| {
        if !has_device_memory(&device) {
            return start(rows_of(matrix.clone(), range.clone()), TensorCall::AllGather, group);
        }
        let output = unwritten([ranks * range.len(), columns], &device, matrix.dtype());
        let to = RowBlocks::adjacent(range.len(), ranks);
        let from = (matrix.clone(), range.clone());
        match PendingRows::start(from, TensorCall::AllGather, (&output, to), group) {
            PendingRows::InOutput(gathered) | PendingRows::Apart(gathered, _) => gathered,
        }
    };
    ranges.iter().map(gather).collect()
}

/// Returns rows of a matrix; the matrix itself, if that is all of them.
fn rows_of(matrix: Tensor<2>, range: Range<usize>) -> Tensor<2> {
    let [rows, _] = matrix.dims();
    if range == (0..rows) {
        matrix
    } else {
        matrix.slice([range])
    }
}

/// Returns the output with these rows in their places.
fn put_rows(output: Tensor<2>, rows: Tensor<2>, to: RowBlocks) -> Tensor<2> {
    let [_, columns] = output.dims();
    let from = RowBlocks::adjacent(to.rows, to.count);
    from.ranges().zip(to.ranges()).fold(output, |output, (from, to)| {
        output.slice_assign([to, 0..columns], rows.clone().slice([from]))
    })
}

/// `input · weight + bias` of the rows of all ranks, of which the chunks are being gathered: each is multiplied as soon
/// as it has come.
#[track_caller]
pub(super) fn multiply_gathered(
    inputs: LinearInputs,
    chunks: RowChunks,
    ranks: usize,
    gathering: Vec<PendingTensor>,
) -> Tensor<2> {
    let output = output_of(&inputs, ranks * chunks.rows());
    let gathering = chunks.ranges().into_iter().zip(gathering);
    gathering.fold(output, |output, (range, gathered)| {
        let gathered = unwrap_or_unwind(gathered.tensor());
        affine_blocks(BlockProduct {
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

/// Returns this rank's rows of the sum of `input · weight` over the ranks: each chunk's part of the product is
/// reduce-scattered while the next one is multiplied. The ranks' parts of an element are added in the order in which
/// those of the whole are.
#[track_caller]
pub(super) fn multiply_and_scatter(inputs: LinearInputs, chunks: RowChunks, group: &ProcessGroup) -> Tensor<2> {
    let ranks = group.size();
    let output = output_of(&inputs, chunks.rows());
    let reduce = |range: Range<usize>| {
        let part = affine_blocks(BlockProduct {
            inputs: inputs.clone(),
            from: chunks.blocks(&range, ranks),
            output: output_of(&inputs, ranks * range.len()),
            to: RowBlocks::adjacent(range.len(), ranks),
        });
        let call = TensorCall::ReduceScatter(ReduceOp::Sum);
        let all = 0..ranks * range.len();
        PendingRows::start((part, all), call, (&output, RowBlocks::range(range)), group)
    };
    let reducing: Vec<_> = chunks.ranges().into_iter().map(reduce).collect();
    let arrived = |output, pending: PendingRows| unwrap_or_unwind(pending.wait(output));
    reducing.into_iter().fold(output, arrived)
}

/// Returns the gradient of an output of which each rank holds its own rows, and that of its input:
/// `gradient · weightᵀ`. The chunks are gathered, and each is multiplied as soon as it has come.
#[track_caller]
pub(super) fn gather_gradient(
    gradient: Tensor<2>,
    (weight, order): (Tensor<2>, WeightOrder),
    chunks: RowChunks,
    group: &ProcessGroup,
) -> GatheredGradient {
    let ranks = group.size();
    let ([_, d_output], rows) = (gradient.dims(), ranks * chunks.rows());
    let mut whole = unwritten([rows, d_output], &gradient.device(), gradient.dtype());
    let inputs = LinearInputs {
        input: gradient.clone(),
        weight,
        bias: None,
        order: order.turned(),
    };
    let mut of_input = output_of(&inputs, rows);
    let ranges = chunks.ranges();
    let gather = |range: &Range<usize>| {
        let to = chunks.blocks(range, ranks);
        PendingRows::start(
            (gradient.clone(), range.clone()),
            TensorCall::AllGather,
            (&whole, to),
            group,
        )
    };
    let gathering: Vec<_> = ranges.iter().map(gather).collect();
    for (range, pending) in ranges.iter().zip(gathering) {
        let to = chunks.blocks(range, ranks);
        whole = unwrap_or_unwind(pending.wait(whole));
        of_input = affine_blocks(BlockProduct {
            inputs: LinearInputs {
                input: whole.clone(),
                ..inputs.clone()
            },
            from: to,
            output: of_input,
            to,
        });
    }
    GatheredGradient {
        output: whole,
        input: of_input,
    }
}

/// Returns a product's output with this number of rows, to be written.
fn output_of(inputs: &LinearInputs, rows: usize) -> Tensor<2> {
    let [first, second] = inputs.weight.dims();
    let columns = match inputs.order {
        WeightOrder::InputFirst => second,
        WeightOrder::OutputFirst => first,
    };
    unwritten([rows, columns], &inputs.input.device(), inputs.input.dtype())
}
