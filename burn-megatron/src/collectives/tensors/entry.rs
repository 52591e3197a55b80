//! A linear product whose input enters a tensor-parallel region: while the ranks add up the parts of the input's
//! gradient, each computes the gradient of its own weight.

use burn::tensor::Tensor;
use cubecl_kernels::linear::destination::{self, LinearSinks};
use cubecl_kernels::linear::retained::RetainedWeight;
use cubecl_kernels::linear::{
    LinearGradients, LinearInputs, LinearWanted, WeightOrder, affine, affine_backward, record_linear,
};
use cubecl_kernels::tape::{Kept, keep};

use super::{PendingTensor, RegionEntry, TensorCall, move_data, overlap, start, unwrap_or_unwind};
use crate::collectives::{ProcessGroup, ReduceOp};

/// Returns the linear product of an input that enters a tensor-parallel region, each rank with its own columns of the
/// weight.
///
/// The gradients of weight and bias are computed while that of the input is added up over the group; rows that were
/// gathered are not kept, but gathered once more while that of the input is computed.
///
/// # Panics
/// As [`move_differentiable`](super::move_differentiable).
#[track_caller]
pub fn linear_into_region(inputs: LinearInputs, entry: RegionEntry, group: &ProcessGroup) -> Tensor<2> {
    let own = inputs.inner();
    let product = Product {
        input: keep(own.input.clone()),
        weight: RetainedWeight::of(&inputs.weight),
        order: own.order,
        entry,
        group: group.clone(),
    };
    let output = multiply(own, entry, group);
    record_linear(inputs, output, |gradient, wanted, sinks| {
        product.backward(gradient, wanted, sinks)
    })
}

/// Returns the product of the input of all ranks.
#[track_caller]
fn multiply(inputs: LinearInputs, entry: RegionEntry, group: &ProcessGroup) -> Tensor<2> {
    if let RegionEntry::GatherRows { chunks } = entry
        && !chunks.is_whole()
    {
        let gathering = overlap::gather_rows(&inputs.input, &chunks.ranges(), group);
        return overlap::multiply_gathered(inputs, chunks, group.size(), gathering);
    }
    let input = unwrap_or_unwind(move_data(inputs.input, entry.movement(), group));
    affine(LinearInputs { input, ..inputs })
}

/// State of the backward pass.
struct Product {
    /// This rank's rows.
    input: Kept<2>,
    weight: RetainedWeight,
    order: WeightOrder,
    entry: RegionEntry,
    group: ProcessGroup,
}

impl Product {
    fn backward(self, gradient: Tensor<2>, wanted: LinearWanted, sinks: LinearSinks) -> LinearGradients {
        let Self {
            input,
            weight,
            order,
            entry,
            group,
        } = self;
        let (input, weight) = (input.get(), weight.get());
        let gathering = (matches!(entry, RegionEntry::GatherRows { .. }) && wanted.weight)
            .then(|| start(input.clone(), TensorCall::AllGather, &group));
        let reducing = wanted.input.then(|| {
            let only_input = LinearWanted {
                input: true,
                weight: false,
                bias: false,
            };
            let (input, weight, gradient) = (input.clone(), weight.clone(), gradient.clone());
            let part = affine_backward(input, weight, order, gradient, only_input).input;
            let part = part.expect("it was wanted");
            let call = match entry {
                RegionEntry::Copy => TensorCall::AllReduce(ReduceOp::Sum),
                RegionEntry::GatherRows { .. } => TensorCall::ReduceScatter(ReduceOp::Sum),
            };
            start(part, call, &group)
        });
        let finished = |pending: PendingTensor| unwrap_or_unwind(pending.tensor());
        let input = gathering.map_or(input, finished);
        let of_rank = LinearWanted { input: false, ..wanted };
        let gradients = destination::gradients(input, weight, order, gradient, of_rank, sinks);
        LinearGradients {
            input: reducing.map(finished),
            ..gradients
        }
    }
}
