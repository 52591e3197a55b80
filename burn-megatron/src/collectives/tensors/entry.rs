//! A linear product whose input enters a tensor-parallel region: while the ranks add up the parts of the input's
//! gradient, each computes the gradient of its own weight.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::tensor::Tensor;
use cubecl_kernels::linear::destination::{self, LinearSinks};
use cubecl_kernels::linear::retained::RetainedWeight;
use cubecl_kernels::linear::{LinearGradients, LinearInputs, LinearWanted, WeightOrder, inner_inputs, record_linear};
use cubecl_kernels::tape::{Kept, float, keep, primitive};

use super::{CollectiveBackend, PendingTensor, RegionEntry, TensorCall, unwrap_or_unwind};
use crate::collectives::{ProcessGroup, ReduceOp};

/// The product as a node of the graph. It keeps this rank's rows of the input, not those that are gathered: the
/// backward pass gathers them again.
#[track_caller]
pub(super) fn linear<B: CollectiveBackend, C: CheckpointStrategy>(
    inputs: LinearInputs<Autodiff<B, C>>,
    entry: RegionEntry,
    group: &ProcessGroup,
) -> Tensor<Autodiff<B, C>, 2> {
    let own = inner_inputs(&inputs);
    let product = Product {
        input: keep(own.input.clone()),
        weight: RetainedWeight::of(&inputs.weight),
        order: own.order,
        entry,
        group: group.clone(),
    };
    let output = B::linear_into_region(own, entry, group);
    record_linear(inputs, output, |gradient, wanted, sinks| {
        product.backward(gradient, wanted, sinks)
    })
}

/// What the backward pass needs.
struct Product<B: CollectiveBackend> {
    /// This rank's rows.
    input: Kept<B, 2>,
    weight: RetainedWeight<B>,
    order: WeightOrder,
    entry: RegionEntry,
    group: ProcessGroup,
}

impl<B: CollectiveBackend> Product<B> {
    fn backward(self, gradient: Tensor<B, 2>, wanted: LinearWanted, sinks: LinearSinks<B>) -> LinearGradients<B> {
        let Self {
            input,
            weight,
            order,
            entry,
            group,
        } = self;
        let (input, weight) = (input.get(), weight.get());
        let gathering = (matches!(entry, RegionEntry::GatherRows { .. }) && wanted.weight)
            .then(|| B::start(primitive(input.clone()), TensorCall::AllGather, &group));
        let reducing = wanted.input.then(|| {
            let only_input = LinearWanted {
                input: true,
                weight: false,
                bias: false,
            };
            let (input, weight, gradient) = (input.clone(), weight.clone(), gradient.clone());
            let part = B::affine_backward(input, weight, order, gradient, only_input).input;
            let part = primitive(part.expect("it was wanted"));
            let call = match entry {
                RegionEntry::Copy => TensorCall::AllReduce(ReduceOp::Sum),
                RegionEntry::GatherRows { .. } => TensorCall::ReduceScatter(ReduceOp::Sum),
            };
            B::start(part, call, &group)
        });
        let finished = |pending: PendingTensor<B>| float(unwrap_or_unwind(pending.wait()));
        let input = gathering.map_or(input, finished);
        let of_rank = LinearWanted { input: false, ..wanted };
        let gradients = destination::gradients(input, weight, order, gradient, of_rank, sinks);
        LinearGradients {
            input: reducing.map(finished),
            ..gradients
        }
    }
}
