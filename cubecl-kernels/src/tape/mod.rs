//! Nodes of burn's autodiff graph with a backward rule of their own.
//!
//! Rules run on tensors that are not tracked: what a rule needs is captured as [`inner`] gives it; activations as what
//! [`keep`] makes of them, which may be elsewhere until the rule runs.

mod kept;
mod parents;
mod redirect;
mod zero;

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "slot")]
use burn::backend::NdArray;
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, AutodiffBackend, Backend, BackendTensor, DispatchAutodiffContext, DispatchKindConversion, DispatchTensor,
    DispatchTensorKind, Flex, GradientCheckpointingStrategy,
};
use burn::tensor::Tensor;
use burn_autodiff::NodeId;
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
#[cfg(feature = "cubecl")]
use burn_cubecl::Cube;
use parking_lot::Mutex;

use crate::operation::Tensors;
pub use kept::{Keeper, Kept, Return, keep, keeping};
pub use parents::Parents;
pub use redirect::GradientRedirect;
pub(crate) use redirect::{lead, led};
pub use zero::zero;

/// Parents of a node, at most; where there are fewer, nodes that no gradient goes to are in their place.
const MOST: usize = 5;

/// Runs `$work` with `$backend` for the backend of a kind of tensors.
macro_rules! of_kind {
    ($kind:expr, $backend:ident => $work:expr) => {
        match $kind {
            DispatchTensorKind::Flex(_) => {
                type $backend = Flex;
                $work
            }
            #[cfg(feature = "cubecl")]
            DispatchTensorKind::Cube(_) => {
                type $backend = Cube;
                $work
            }
            #[cfg(feature = "slot")]
            DispatchTensorKind::NdArray(_) => {
                type $backend = NdArray;
                $work
            }
            #[allow(unreachable_patterns, reason = "of other backends, if burn has them")]
            other => unimplemented!("operations on {other:?}: turn on the feature of cubecl-kernels for its backend"),
        }
    };
}

/// Returns the same tensors, not tracked.
pub fn inner<T: Tensors + Clone>(tensors: &T) -> T {
    T::from_dispatch(T::map(tensors.clone().into_dispatch(), &mut untracked))
}

fn untracked(mut tensor: DispatchTensor) -> DispatchTensor {
    if let DispatchTensorKind::Autodiff(kind) = &tensor.kind {
        return of_kind!(&**kind, B => wrap::<B>(tracked::<B>(tensor).into_primitive()));
    }
    // Whole numbers and booleans, which belong to a graph by name alone.
    tensor.autodiff = DispatchAutodiffContext::Disabled;
    tensor
}

/// Returns the node of a tensor, if it is of a graph.
pub fn node_id<const D: usize>(tensor: &Tensor<D>) -> Option<NodeId> {
    let tensor = tensor.clone().into_dispatch();
    match &tensor.kind {
        DispatchTensorKind::Autodiff(kind) => Some(of_kind!(&**kind, B => tracked::<B>(tensor).node().id())),
        _ => None,
    }
}

/// Returns `output`, which is not tracked, as a node of the parents' graph, with `rule` for its backward step.
///
/// The rule is given the output's gradient, and for each of the parents whether its gradient is wanted; a gradient that
/// is not wanted is dropped. It runs once at most, so that what it captured can be written in place; where no parent is
/// tracked it is dropped at once.
pub fn record<P: Parents, const D: usize>(
    parents: P,
    output: Tensor<D>,
    rule: impl FnOnce(Tensor<D>, P::Wanted) -> P::Gradients + Send + 'static,
) -> Tensor<D> {
    let mut tensors = Vec::new();
    parents.flatten(&mut tensors);
    let contexts = tensors.iter().flatten().map(|tensor| tensor.autodiff);
    let context = contexts.fold(DispatchAutodiffContext::Disabled, DispatchAutodiffContext::merge);
    if context == DispatchAutodiffContext::Disabled {
        return output;
    }
    let rule = move |gradient, wanted: [bool; MOST]| {
        let gradients = rule(Tensor::from_dispatch(gradient), P::wanted(&mut wanted.into_iter()));
        let mut flat = Vec::new();
        P::flatten_gradients(gradients, &mut flat);
        flat
    };
    let output = output.into_dispatch();
    let mut output = of_kind!(&output.kind, B => record_on::<B>(tensors, output, Box::new(rule)));
    output.autodiff = context;
    Tensor::from_dispatch(output)
}

/// From the output's gradient and which parents want one, the parents' gradients.
type Rule = Box<dyn FnOnce(DispatchTensor, [bool; MOST]) -> Vec<Option<DispatchTensor>> + Send>;

fn record_on<B: Backend>(parents: Vec<Option<DispatchTensor>>, output: DispatchTensor, rule: Rule) -> DispatchTensor
where
    DispatchTensor: DispatchKindConversion<B> + DispatchKindConversion<Autodiff<B, NoCheckpointing>>,
{
    let output = of_backend::<B>(output).float();
    let mut parents = parents.into_iter().map(|tensor| {
        let tensor = tensor?;
        // Constants have no node.
        matches!(tensor.kind, DispatchTensorKind::Autodiff(_)).then(|| tracked::<B>(tensor).into_parts().1)
    });
    let stand_in = Autodiff::<B>::from_inner(output.clone());
    // Referenced until the node after them is registered: after every backward pass, even one of another thread, burn
    // frees what no tensor refers to.
    let nodes: [NodeGuard; MOST] = std::array::from_fn(|_| parents.next().flatten().unwrap_or_else(|| stand_in.node()));
    assert!(parents.next().is_none(), "a node of more than {MOST} parents");
    let output = match Step.prepare::<NoCheckpointing>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => prep.finish(State(Arc::new(Mutex::new(Some(rule)))), output),
        OpsKind::UnTracked(prep) => prep.finish(output),
    };
    <DispatchTensor as DispatchKindConversion<Autodiff<B, NoCheckpointing>>>::from_backend(BackendTensor::Float(output))
}

/// Returns a dispatched tensor of a graph as the backend's.
fn tracked<B: Backend>(mut tensor: DispatchTensor) -> FloatTensor<Autodiff<B, NoCheckpointing>>
where
    DispatchTensor: DispatchKindConversion<Autodiff<B, NoCheckpointing>>,
{
    // Nothing is computed again for a rule, whatever else of the graph may be.
    tensor.autodiff = DispatchAutodiffContext::Enabled(GradientCheckpointingStrategy::Disabled);
    of_backend::<Autodiff<B, NoCheckpointing>>(tensor).float()
}

/// Returns a dispatched tensor as one of the backend.
fn of_backend<B: Backend>(tensor: DispatchTensor) -> BackendTensor<B>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    DispatchTensor::try_into_backend(tensor).unwrap_or_else(|error| panic!("a tensor is of another backend: {error}"))
}

/// Returns a tensor of the backend, not tracked, as a dispatched one.
fn wrap<B: Backend>(tensor: FloatTensor<B>) -> DispatchTensor
where
    DispatchTensor: DispatchKindConversion<B>,
{
    DispatchTensor::from_backend(BackendTensor::<B>::Float(tensor))
}

#[derive(Debug)]
struct Step;

#[derive(Clone)]
struct State(Arc<Mutex<Option<Rule>>>);

impl fmt::Debug for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("State")
    }
}

impl<B: Backend> Backward<B, MOST> for Step
where
    DispatchTensor: DispatchKindConversion<B>,
{
    type State = State;

    fn backward(self, ops: Ops<Self::State, MOST>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let gradient = grads.consume::<B>(&ops.node);
        let wanted = std::array::from_fn(|index| ops.parents[index].is_some());
        let rule = ops.state.0.lock().take();
        let gradients = rule.expect("burn runs a backward step once")(wrap::<B>(gradient), wanted);
        for (parent, gradient) in ops.parents.into_iter().zip(gradients) {
            if let (Some(parent), Some(gradient)) = (parent, gradient) {
                grads.register::<B>(parent.id, of_backend::<B>(gradient).float());
            }
        }
    }
}

/// As [`record`], for an operation with two outputs of one shape: the rule is given the gradient of each that has one.
///
/// A node of burn's has one output. So a node that carries nothing stands for the operation, and each output is a node
/// after it, which leaves its gradient where the operation's step finds it. The first of them to do so makes that step
/// follow, by a gradient that carries nothing either.
pub fn record_two<P: Parents, const D: usize>(
    parents: P,
    outputs: [Tensor<D>; 2],
    rule: impl FnOnce([Option<Tensor<D>>; 2], P::Wanted) -> P::Gradients + Send + 'static,
) -> [Tensor<D>; 2] {
    let left: Arc<Mutex<[Option<Tensor<D>>; 2]>> = Default::default();
    let nothing = zero::<1>(&outputs[0].device(), outputs[0].dtype());
    let found = left.clone();
    let carrier = record(parents, nothing.clone(), move |_, wanted| {
        let gradients = std::mem::take(&mut *found.lock());
        rule(gradients, wanted)
    });
    let mut index = 0;
    outputs.map(|output| {
        let (left, nothing, which) = (left.clone(), nothing.clone(), index);
        index += 1;
        record(carrier.clone(), output, move |gradient, _| {
            let mut left = left.lock();
            let is_first = left.iter().all(Option::is_none);
            left[which] = Some(gradient);
            is_first.then_some(nothing)
        })
    })
}
