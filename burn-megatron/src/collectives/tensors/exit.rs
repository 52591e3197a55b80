//! A linear product whose output leaves a tensor-parallel region for a sequence-parallel one, in chunks: each rank
//! computes one term of a sum, and keeps its own rows of it.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::Tensor;
use cubecl_kernels::linear::destination::{self, LinearSinks};
use cubecl_kernels::linear::retained::RetainedWeight;
use cubecl_kernels::linear::{LinearGradients, LinearInputs, LinearWanted, WeightOrder, inner_inputs, record_linear};
use cubecl_kernels::tape::{Kept, float, keep, primitive};

use super::{CollectiveBackend, RowChunks, TensorCall, unwrap_or_unwind};
use crate::collectives::ProcessGroup;

/// The product as a node of the graph.
#[track_caller]
pub(super) fn linear<B: CollectiveBackend, C: CheckpointStrategy>(
    inputs: LinearInputs<Autodiff<B, C>>,
    chunks: RowChunks,
    group: &ProcessGroup,
) -> Tensor<Autodiff<B, C>, 2> {
    let own = inner_inputs(&inputs);
    let product = Product {
        input: keep(own.input.clone()),
        weight: RetainedWeight::of(&inputs.weight),
        order: own.order,
        chunks,
        group: group.clone(),
    };
    let output = B::linear_out_of_region(own, chunks, group);
    record_linear(inputs, output, |gradient, wanted, sinks| {
        product.backward(gradient, wanted, sinks)
    })
}

/// What the backward pass needs.
struct Product<B: CollectiveBackend> {
    input: Kept<B, 2>,
    weight: RetainedWeight<B>,
    order: WeightOrder,
    chunks: RowChunks,
    group: ProcessGroup,
}

impl<B: CollectiveBackend> Product<B> {
    fn backward(self, gradient: Tensor<B, 2>, wanted: LinearWanted, sinks: LinearSinks<B>) -> LinearGradients<B> {
        let weight = self.weight.clone().get();
        let (gradient, of_input) = self.gathered(gradient, &weight, wanted.input);
        let of_rank = LinearWanted { input: false, ..wanted };
        let gradients = destination::gradients(self.input.get(), weight, self.order, gradient, of_rank, sinks);
        LinearGradients {
            input: of_input,
            ..gradients
        }
    }

    /// The gradient of all rows, and that of the input if it is wanted.
    fn gathered(
        &self,
        gradient: Tensor<B, 2>,
        weight: &Tensor<B, 2>,
        is_wanted: bool,
    ) -> (Tensor<B, 2>, Option<Tensor<B, 2>>) {
        if is_wanted {
            let gathered = B::gather_gradient(gradient, weight.clone(), self.order, self.chunks, &self.group);
            (gathered.output, Some(gathered.input))
        } else {
            let whole = B::run(primitive(gradient), TensorCall::AllGather, &self.group);
            (float(unwrap_or_unwind(whole)), None)
        }
    }
}
