//! A linear product whose output leaves a tensor-parallel region for a sequence-parallel one, in chunks: each rank
//! computes one term of a sum, and keeps its own rows of it.

use burn::tensor::Tensor;
use cubecl_kernels::linear::destination::{self, LinearSinks};
use cubecl_kernels::linear::retained::RetainedWeight;
use cubecl_kernels::linear::{LinearGradients, LinearInputs, LinearWanted, WeightOrder, record_linear};
use cubecl_kernels::tape::{Kept, keep};

use super::{RowChunks, TensorCall, overlap, run, unwrap_or_unwind};
use crate::collectives::ProcessGroup;

/// Returns this rank's rows of the sum over the ranks of a linear product without bias, each rank with its own rows of
/// the weight: each chunk is reduce-scattered while the next one is multiplied, and the chunks of the output's gradient
/// are gathered likewise.
///
/// # Panics
/// As [`move_differentiable`](super::move_differentiable).
#[track_caller]
pub fn linear_out_of_region(inputs: LinearInputs, chunks: RowChunks, group: &ProcessGroup) -> Tensor<2> {
    let own = inputs.inner();
    let product = Product {
        input: keep(own.input.clone()),
        weight: RetainedWeight::of(&inputs.weight),
        order: own.order,
        chunks,
        group: group.clone(),
    };
    let output = overlap::multiply_and_scatter(own, chunks, group);
    record_linear(inputs, output, |gradient, wanted, sinks| {
        product.backward(gradient, wanted, sinks)
    })
}

/// State of the backward pass.
struct Product {
    input: Kept<2>,
    weight: RetainedWeight,
    order: WeightOrder,
    chunks: RowChunks,
    group: ProcessGroup,
}

impl Product {
    fn backward(self, gradient: Tensor<2>, wanted: LinearWanted, sinks: LinearSinks) -> LinearGradients {
        let weight = self.weight.clone().get();
        let (gradient, of_input) = self.gathered(gradient, &weight, wanted.input);
        let of_rank = LinearWanted { input: false, ..wanted };
        let gradients = destination::gradients(self.input.get(), weight, self.order, gradient, of_rank, sinks);
        LinearGradients {
            input: of_input,
            ..gradients
        }
    }

    /// Returns the gradient of all rows, and that of the input if it is wanted.
    fn gathered(&self, gradient: Tensor<2>, weight: &Tensor<2>, is_wanted: bool) -> (Tensor<2>, Option<Tensor<2>>) {
        if is_wanted {
            let weight = (weight.clone(), self.order);
            let gathered = overlap::gather_gradient(gradient, weight, self.chunks, &self.group);
            (gathered.output, Some(gathered.input))
        } else {
            let whole = run(gradient, TensorCall::AllGather, &self.group);
            (unwrap_or_unwind(whole), None)
        }
    }
}
