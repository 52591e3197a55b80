//! Operations as nodes of burn's graph, with backward rules of their own.

use std::fmt;
use std::sync::Arc;

use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, AutodiffBackend, Backend, BackendTensor, DispatchAutodiffContext, DispatchKindConversion, DispatchTensor,
    DispatchTensorKind, Flex, GradientCheckpointingStrategy,
};
use burn_autodiff::checkpoint::base::Checkpointer;
use burn_autodiff::checkpoint::strategy::NoCheckpointing;
use burn_autodiff::grads::Gradients;
use burn_autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use parking_lot::Mutex;

use super::{Differentiable, apply};

/// Returns the output of an operation, tracked where an input is.
///
/// On backends other than Flex and CubeCL the reference is tracked, as any of burn's operations.
///
/// # Panics
/// When the inputs are of different backends.
pub fn apply_tracked<O: Differentiable<I>, const I: usize>(
    operation: &O,
    inputs: [DispatchTensor; I],
) -> DispatchTensor {
    let contexts = inputs.iter().map(|tensor| tensor.autodiff);
    let context = contexts.fold(DispatchAutodiffContext::Disabled, DispatchAutodiffContext::merge);
    if context == DispatchAutodiffContext::Disabled {
        let [output] = apply(operation, inputs);
        return output;
    }
    let kind = match &inputs[0].kind {
        DispatchTensorKind::Autodiff(kind) => kind,
        kind => kind,
    };
    let mut output = match kind {
        DispatchTensorKind::Flex(_) => record::<Flex, O, I>(operation, inputs),
        #[cfg(feature = "cuda")]
        DispatchTensorKind::Cube(_) => record::<burn_cubecl::Cube, O, I>(operation, inputs),
        // burn's rules for burn's operations.
        #[allow(unreachable_patterns, reason = "of other backends, if burn has them")]
        _ => {
            let [output] = operation.reference(inputs);
            return output;
        }
    };
    output.autodiff = context;
    output
}

fn record<B, O, const I: usize>(operation: &O, inputs: [DispatchTensor; I]) -> DispatchTensor
where
    B: Backend,
    O: Differentiable<I>,
    DispatchTensor: DispatchKindConversion<B> + DispatchKindConversion<Autodiff<B, NoCheckpointing>>,
{
    let mut nodes: [Option<NodeGuard>; I] = [const { None }; I];
    let mut nodes_left = nodes.iter_mut();
    let inputs = inputs.map(|mut tensor| {
        let node = nodes_left.next().expect("a node for each input");
        if !matches!(tensor.kind, DispatchTensorKind::Autodiff(_)) {
            // Whole numbers, and constants.
            tensor.autodiff = DispatchAutodiffContext::Disabled;
            return tensor;
        }
        // Nothing is computed again for a rule, whatever else of the graph may be.
        tensor.autodiff = DispatchAutodiffContext::Enabled(GradientCheckpointingStrategy::Disabled);
        let tensor: BackendTensor<Autodiff<B, NoCheckpointing>> = of_backend(tensor);
        let (tensor, own) = tensor.float().into_parts();
        *node = Some(own);
        wrap::<B>(tensor)
    });
    let [output] = apply(operation, inputs.clone());
    let inner = unwrap::<B>(output.clone());
    // In the place of inputs that are not tracked, a node that no gradient goes to.
    let stand_in = Autodiff::<B>::from_inner(inner.clone());
    let nodes = nodes.map(|node| node.unwrap_or_else(|| stand_in.node()));
    let output = match Step.prepare::<NoCheckpointing>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prep) => {
            let rule = operation.rule(inputs, output);
            let rule: InnerRule<B, I> = Box::new(move |gradient, wanted| {
                rule(wrap::<B>(gradient), wanted).map(|gradient| gradient.map(unwrap::<B>))
            });
            prep.finish(State(Arc::new(Mutex::new(Some(rule)))), inner)
        }
        OpsKind::UnTracked(prep) => prep.finish(inner),
    };
    <DispatchTensor as DispatchKindConversion<Autodiff<B, NoCheckpointing>>>::from_backend(BackendTensor::Float(output))
}

/// Returns a dispatched tensor as one of the backend.
fn of_backend<B: Backend>(tensor: DispatchTensor) -> BackendTensor<B>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    DispatchTensor::try_into_backend(tensor).unwrap_or_else(|error| panic!("an input is of another backend: {error}"))
}

/// Returns a tensor of the backend, not tracked, as a dispatched one.
fn wrap<B: Backend>(tensor: FloatTensor<B>) -> DispatchTensor
where
    DispatchTensor: DispatchKindConversion<B>,
{
    DispatchTensor::from_backend(BackendTensor::<B>::Float(tensor))
}

/// Returns a dispatched tensor that is not tracked as one of the backend.
fn unwrap<B: Backend>(tensor: DispatchTensor) -> FloatTensor<B>
where
    DispatchTensor: DispatchKindConversion<B>,
{
    of_backend::<B>(tensor).float()
}

/// A [`Rule`](super::Rule) on the backend's tensors.
type InnerRule<B, const I: usize> = Box<dyn FnOnce(FloatTensor<B>, [bool; I]) -> [Option<FloatTensor<B>>; I] + Send>;

#[derive(Debug)]
struct Step;

struct State<B: Backend, const I: usize>(Arc<Mutex<Option<InnerRule<B, I>>>>);

impl<B: Backend, const I: usize> Clone for State<B, I> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<B: Backend, const I: usize> fmt::Debug for State<B, I> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("State")
    }
}

impl<B: Backend, const I: usize> Backward<B, I> for Step {
    type State = State<B, I>;

    fn backward(self, ops: Ops<Self::State, I>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
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
