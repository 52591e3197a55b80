//! The core for `Autodiff`: one node of the graph.
//!
//! A backward step cannot run tracked operations, so the step holds what it needs and works on the inner backend.

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::ops::FloatTensor;
use burn_megatron::collectives::CollectiveBackend;

use super::{AttentionBackend, AttentionKernels, Recompute, WeightRule, steps};

impl<B: AttentionKernels + CollectiveBackend, C: CheckpointStrategy> AttentionBackend for Autodiff<B, C> {
    fn attention_core(inputs: [FloatTensor<Self>; 3], rule: WeightRule, recompute: Recompute) -> FloatTensor<Self> {
        let nodes = [0, 1, 2].map(|index: usize| inputs[index].node.clone());
        let [query, key, value] = inputs.map(|input| input.primitive);
        let weights = steps::weights::<B>(query.clone(), key.clone(), &rule);
        match AttentionGradient.prepare::<C>(nodes).compute_bound().stateful() {
            OpsKind::Tracked(prep) => {
                let kept = (recompute == Recompute::Nothing).then(|| weights.clone());
                let output = steps::output::<B>(weights, value.clone(), &rule);
                let state = State {
                    inputs: [query, key, value],
                    weights: kept,
                    rule,
                };
                prep.finish(state, output)
            }
            OpsKind::UnTracked(prep) => prep.finish(steps::output::<B>(weights, value, &rule)),
        }
    }
}

/// The backward step of the core.
#[derive(Debug)]
struct AttentionGradient;

/// What the backward step holds between the passes.
#[derive(Clone, Debug)]
struct State<B: AttentionKernels> {
    inputs: [FloatTensor<B>; 3],
    /// None where they are computed again.
    weights: Option<FloatTensor<B>>,
    rule: WeightRule,
}

impl<B: AttentionKernels> Backward<B, 3> for AttentionGradient {
    type State = State<B>;

    fn backward(self, ops: Ops<Self::State, 3>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let gradient = grads.consume::<B>(&ops.node);
        let State { inputs, weights, rule } = ops.state;
        let weights = weights.unwrap_or_else(|| {
            let [query, key, _] = inputs.clone();
            steps::weights::<B>(query, key, &rule)
        });
        let wanted = [0, 1, 2].map(|index: usize| ops.parents[index].is_some());
        let gradients = steps::gradients::<B>(inputs, weights, gradient, &rule, wanted);
        for (parent, gradient) in ops.parents.into_iter().zip(gradients) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}
