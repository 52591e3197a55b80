//! The lookup as a node of the graph: keeps the tokens.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::{Int, Tensor};

use super::TokenRange;
use crate::KernelBackend;
use crate::linear::destination::sink_of;
use crate::precision::zeros;
use crate::tape::{inner, primitive, record, zero};

pub(crate) fn embedding<B: KernelBackend, C: CheckpointStrategy>(
    table: Tensor<Autodiff<B, C>, 2>,
    tokens: Tensor<Autodiff<B, C>, 1, Int>,
    range: TokenRange,
) -> Tensor<Autodiff<B, C>, 2> {
    let (own, tokens, shape @ [rows, columns]) = (inner(&table), tokens.inner(), table.dims());
    let table = primitive(table);
    let sink = sink_of::<B, C>(&table);
    let output = B::embedding_rows(own, tokens.clone(), range);
    record([table], output, move |gradient, _| {
        let is_empty = gradient.dims().contains(&0);
        if let Some(sink) = sink.filter(|_| !is_empty) {
            let nothing = zero::<B, 2>(&gradient.device(), gradient.dtype());
            sink.add_rows(tokens, gradient, range);
            return [Some(primitive(nothing))];
        }
        let device = gradient.device();
        if rows * columns == 0 {
            // burn takes a size of 0 in a reshape for that of before.
            return [Some(primitive(zeros::<B, 2>(shape, &device, gradient.dtype())))];
        }
        let sums = Tensor::zeros([rows * columns], (&device, gradient.dtype()));
        let sums = B::add_rows(sums, 0, tokens, gradient, range);
        [Some(primitive(sums.reshape(shape)))]
    })
}
