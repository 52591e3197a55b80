//! Nodes of burn's autodiff graph with a backward rule of their own, on the inner backend's tensors.
//!
//! A backward step cannot run tracked operations, so what a rule needs is captured on the inner backend; activations as
//! what [`keep`] makes of them, which may be elsewhere until the rule runs.

mod kept;
mod redirect;
mod zero;

use std::sync::Arc;

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::tensor::{Tensor, TensorPrimitive, backend::Backend, ops::FloatTensor};
use parking_lot::Mutex;

pub use kept::{Keeper, Kept, Return, keep, keeping};
pub use redirect::GradientRedirect;
pub(crate) use redirect::{lead, led};
pub use zero::zero;

/// From the output's gradient and which parents want one, the parents' gradients.
type Rule<B, const N: usize> = Box<dyn FnOnce(FloatTensor<B>, [bool; N]) -> [Option<FloatTensor<B>>; N] + Send>;

/// The inner backend's tensor.
pub fn inner<B: Backend, C: CheckpointStrategy, const D: usize>(tensor: &Tensor<Autodiff<B, C>, D>) -> Tensor<B, D> {
    float(tensor.clone().into_primitive().tensor().primitive)
}

/// The tensor of a primitive.
pub fn float<B: Backend, const D: usize>(primitive: FloatTensor<B>) -> Tensor<B, D> {
    Tensor::from_primitive(TensorPrimitive::Float(primitive))
}

/// The primitive of a tensor.
pub fn primitive<B: Backend, const D: usize>(tensor: Tensor<B, D>) -> FloatTensor<B> {
    tensor.into_primitive().tensor()
}

/// An optional tensor as a parent of a node; where there is none, one like another in its place, that no gradient goes
/// to.
pub(crate) fn or_stand_in<B: Backend, C: CheckpointStrategy, const D: usize, const E: usize>(
    tensor: Option<Tensor<Autodiff<B, C>, D>>,
    like: &Tensor<Autodiff<B, C>, E>,
) -> FloatTensor<Autodiff<B, C>> {
    let stand_in = || primitive(Tensor::<Autodiff<B, C>, E>::from_inner(inner(like)));
    tensor.map_or_else(stand_in, primitive)
}

/// Returns `output` as a node of the graph, with `rule` for its backward step.
///
/// The rule is given the output's gradient, and for each of the parents whether its gradient is wanted. It runs once at
/// most, so that what it captured can be written in place; where no parent is tracked it is dropped at once.
pub fn record<B: Backend, C: CheckpointStrategy, const N: usize, const D: usize>(
    parents: [FloatTensor<Autodiff<B, C>>; N],
    output: Tensor<B, D>,
    rule: impl FnOnce(Tensor<B, D>, [bool; N]) -> [Option<FloatTensor<B>>; N] + Send + 'static,
) -> Tensor<Autodiff<B, C>, D> {
    // Referenced until the node after them is registered: after every backward pass, even one of another thread, burn
    // frees what no tensor refers to.
    let nodes = parents.each_ref().map(|parent| parent.node.clone());
    let output = primitive(output);
    let tracked = match Step.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let rule: Rule<B, N> = Box::new(move |gradient, wanted| rule(float(gradient), wanted));
            prep.finish(State::<B, N>(Arc::new(Mutex::new(Some(rule)))), output)
        }
        OpsKind::UnTracked(prep) => prep.finish(output),
    };
    drop(parents);
    Tensor::from_primitive(TensorPrimitive::Float(tracked))
}

#[derive(Debug)]
struct Step;

struct State<B: Backend, const N: usize>(Arc<Mutex<Option<Rule<B, N>>>>);

impl<B: Backend, const N: usize> Clone for State<B, N> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B: Backend, const N: usize> std::fmt::Debug for State<B, N> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("State")
    }
}

impl<B: Backend, const N: usize> Backward<B, N> for Step {
    type State = State<B, N>;

    fn backward(self, ops: Ops<Self::State, N>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let gradient = grads.consume::<B>(&ops.node);
        let wanted = std::array::from_fn(|index| ops.parents[index].is_some());
        let rule = ops.state.0.lock().take();
        let gradients = rule.expect("burn runs a backward step once")(gradient, wanted);
        for (parent, gradient) in ops.parents.into_iter().zip(gradients) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                grads.register::<B>(parent.id, gradient);
            }
        }
    }
}

/// As [`record`], for an operation with two outputs of one shape: the rule is given the gradient of each that has one.
///
/// A node of burn's has one output. So a node that carries nothing stands for the operation, and each output is a node
/// after it, which leaves its gradient where the operation's step finds it. The first of them to do so makes that step
/// follow, by a gradient that carries nothing either.
pub fn record_two<B: Backend, C: CheckpointStrategy, const N: usize, const D: usize>(
    parents: [FloatTensor<Autodiff<B, C>>; N],
    outputs: [Tensor<B, D>; 2],
    rule: impl FnOnce([Option<Tensor<B, D>>; 2], [bool; N]) -> [Option<FloatTensor<B>>; N] + Send + 'static,
) -> [Tensor<Autodiff<B, C>, D>; 2] {
    let left: Arc<Mutex<[Option<Tensor<B, D>>; 2]>> = Default::default();
    let nothing = zero::<B, 1>(&outputs[0].device(), outputs[0].dtype());
    let found = left.clone();
    let carrier = record::<B, C, N, 1>(parents, nothing.clone(), move |_, wanted| {
        let gradients = std::mem::take(&mut *found.lock());
        rule(gradients, wanted)
    });
    let mut index = 0;
    outputs.map(|output| {
        let (left, nothing, which) = (left.clone(), nothing.clone(), index);
        index += 1;
        record::<B, C, 1, D>([primitive(carrier.clone())], output, move |gradient, _| {
            let mut left = left.lock();
            let is_first = left.iter().all(Option::is_none);
            left[which] = Some(gradient);
            [is_first.then(|| primitive(nothing))]
        })
    })
}
