//! `HookBackend`: catches a parameter's gradient in the middle of a backward pass.
//!
//! burn runs a backward pass by depth, deepest first, and an identity on a leaf has depth 1, so a plain hook on a
//! parameter would fire after everything else. Here the identity has two parents: a leaf, and an *anchor*, an
//! untracked node of raised depth. The hooked parameter of number `i` in its module lies at depth `ANCHOR_STRIDE * i`,
//! just below the layer that uses it, so its hook fires right after that layer's own backward step. A module that uses
//! its parameters in another order than it lists them is right all the same; some hooks then fire late.
//!
//! The leaf is the hook's own and not the parameter's, so that graphs share no node. burn 0.21 puts graphs that share one
//! into one table, by merging tables, and does not move every name of a table that is merged a second time: with the
//! graphs of several micro-batches under way, the backward pass of one can then find another incomplete and delete it.
//!
//! Called by [`DistributedDataParallel`](super::DistributedDataParallel), once per parameter and forward pass.

use std::sync::{Arc, OnceLock};

use burn::backend::Autodiff;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{
    DType, Shape, Tensor, TensorMetadata, TensorPrimitive,
    backend::{AutodiffBackend, Backend},
    ops::FloatTensor,
};

use cubecl_kernels::linear::destination::{self, LedWeight, WeightSink};

use super::binding::Binding;
use crate::collectives::CollectiveBackend;

/// Depths between the anchors of neighbouring parameters. Where more operations lie between two uses of parameters, the
/// hook of the second fires late, and is right all the same.
const ANCHOR_STRIDE: usize = 32;

/// What receives a parameter's gradient in the backward pass.
pub trait GradientSink<B: Backend>: std::fmt::Debug + Send + Sync {
    /// Takes the whole gradient of parameter number `index` of the micro-batch at hand.
    fn receive(&self, index: usize, gradient: FloatTensor<B>);

    /// What adds up products that are the gradient of parameter number `index`, if anything does. Behind them,
    /// [`receive`](Self::receive) is given what of the gradient is no such product: a zero of one element where that is all.
    fn product_sink(self: Arc<Self>, _index: usize) -> Option<Arc<dyn WeightSink<B>>> {
        None
    }
}

/// An autodiff backend whose parameters can be hooked.
pub trait HookBackend: AutodiffBackend<InnerBackend: CollectiveBackend> + CollectiveBackend {
    /// Returns anchors for `count` parameters, each deeper than the one before. Made once, used for ever.
    fn anchors(count: usize, device: &Self::Device) -> Vec<FloatTensor<Self>>;

    /// Whether a gradient of the tensor is computed, be it a leaf or the output of an operation.
    fn is_tracked(tensor: &FloatTensor<Self>) -> bool;

    /// Returns the tensor with its gradient led to `sink` instead of to the tensor.
    fn hook(
        tensor: FloatTensor<Self>,
        anchor: &FloatTensor<Self>,
        sink: Arc<dyn GradientSink<Self::InnerBackend>>,
        index: usize,
    ) -> FloatTensor<Self>;
}

impl<B: CollectiveBackend, C: CheckpointStrategy> HookBackend for Autodiff<B, C> {
    fn anchors(count: usize, device: &Self::Device) -> Vec<FloatTensor<Self>> {
        let scalar = B::float_zeros(Shape::new([1]), device, DType::F32.into());
        let mut deepest = FloatTensor::<Self>::new(scalar);
        (0..count)
            .map(|_| {
                let anchor = deepest.clone();
                for _ in 0..ANCHOR_STRIDE {
                    let node = &deepest.node;
                    // One deeper than its parent, registered nowhere: it is a number with a name.
                    deepest = FloatTensor::<Self>::from_parents(
                        deepest.primitive.clone(),
                        std::slice::from_ref(node),
                        node.requirement,
                        node.properties.clone(),
                    );
                }
                anchor
            })
            .collect()
    }

    fn is_tracked(tensor: &FloatTensor<Self>) -> bool {
        tensor.is_tracked()
    }

    fn hook(
        tensor: FloatTensor<Self>,
        anchor: &FloatTensor<Self>,
        sink: Arc<dyn GradientSink<B>>,
        index: usize,
    ) -> FloatTensor<Self> {
        if !tensor.is_tracked() {
            return tensor;
        }
        let is_matrix = tensor.primitive.shape().num_dims() == 2;
        let product_sink = if is_matrix {
            sink.clone().product_sink(index)
        } else {
            None
        };
        let leaf = FloatTensor::<Self>::new(tensor.primitive).require_grad();
        let led = Arc::new(OnceLock::new());
        let hooked = match LeadGradient
            .prepare::<C>([leaf.node, anchor.node.clone()])
            .compute_bound()
            .stateful()
        {
            OpsKind::Tracked(prep) => {
                let hook = Hook {
                    sink,
                    index,
                    _led: led.clone(),
                };
                prep.finish(hook, leaf.primitive)
            }
            OpsKind::UnTracked(_) => unreachable!("the leaf is tracked"),
        };
        if let Some(product_sink) = product_sink {
            let _ = led.set(destination::lead::<B, C>(&hooked, product_sink));
        }
        hooked
    }
}

/// The backward step of a hooked parameter.
#[derive(Debug)]
struct LeadGradient;

/// What the step keeps.
#[derive(Clone, Debug)]
struct Hook<B: Backend> {
    sink: Arc<dyn GradientSink<B>>,
    index: usize,
    /// Leads products of the parameter to their sink, as long as the step may come.
    _led: Arc<OnceLock<LedWeight>>,
}

impl<B: Backend> Backward<B, 2> for LeadGradient {
    type State = Hook<B>;

    fn backward(self, ops: Ops<Self::State, 2>, grads: &mut Gradients, _checkpointer: &mut Checkpointer) {
        let Hook { sink, index, .. } = ops.state;
        sink.receive(index, grads.consume::<B>(&ops.node));
    }
}

/// Returns a clone of the module, for one forward pass, whose bound parameters are hooked.
pub(super) fn hook_module<B: HookBackend, M: Module<B>>(
    module: M,
    binding: &Binding<B>,
    sink: &Arc<dyn GradientSink<B::InnerBackend>>,
) -> M {
    module.map(&mut Hooker { binding, sink })
}

struct Hooker<'a, B: HookBackend> {
    binding: &'a Binding<B>,
    sink: &'a Arc<dyn GradientSink<B::InnerBackend>>,
}

impl<B: HookBackend> ModuleMapper<B> for Hooker<'_, B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let (id, tensor, mapper) = param.consume();
        let Some(&number) = self.binding.numbers.get(&id) else {
            return Param::from_mapped_value(id, tensor, mapper);
        };
        let hooked = B::hook(
            tensor.into_primitive().tensor(),
            &self.binding.anchors[number],
            self.sink.clone(),
            number,
        );
        let hooked = Tensor::from_primitive(TensorPrimitive::Float(hooked));
        Param::from_mapped_value(id, hooked, mapper)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use burn::nn::{Linear, LinearConfig};
    use burn_flex::Flex;

    use super::*;
    use crate::context::ParallelContext;
    use crate::data_parallel::binding::BindingOptions;
    use crate::parameters::list_parameters;

    type B = Autodiff<Flex>;

    const OPTIONS: BindingOptions = BindingOptions {
        bucket_size: 1,
        is_sharded: false,
        overlaps: true,
    };

    #[derive(Debug, Default)]
    struct Arrivals(Mutex<Vec<usize>>);

    impl GradientSink<Flex> for Arrivals {
        fn receive(&self, index: usize, _gradient: FloatTensor<Flex>) {
            self.0.lock().expect("no panic").push(index);
        }
    }

    #[test]
    fn a_gradient_arrives_before_the_backward_pass_reaches_the_layer_below() {
        let device = Default::default();
        let model: Vec<Linear<B>> = (0..4).map(|_| LinearConfig::new(3, 3).init(&device)).collect();
        let arrivals = Arc::new(Arrivals::default());
        let sink: Arc<dyn GradientSink<Flex>> = arrivals.clone();
        let parameters = list_parameters::<B, _>(&model);
        let binding =
            Binding::new(parameters, OPTIONS, &ParallelContext::single(0), &device, None).expect("plain layers");
        let hooked = hook_module::<B, _>(model, &binding, &sink);
        let mut hidden = Tensor::<B, 2>::ones([2, 3], &device).require_grad();
        for layer in &hooked {
            // The backward pass runs from the deepest node up: the hooks lie deeper than all that came before.
            let below = hidden.clone().into_primitive().tensor().node.order;
            let bias = layer.bias.as_ref().expect("there is one").val();
            for hook in [
                layer.weight.val().into_primitive().tensor().node.order,
                bias.into_primitive().tensor().node.order,
            ] {
                assert!(hook > below, "a hook at depth {hook}, the layer below at {below}");
            }
            hidden = layer.forward(hidden).tanh();
        }
        hidden.sum().backward();
        let order = arrivals.0.lock().expect("no panic").clone();
        let layers: Vec<usize> = order.iter().map(|index| index / 2).collect();
        assert_eq!(layers, [3, 3, 2, 2, 1, 1, 0, 0], "{order:?}");
    }

    /// What burn loses depends on the order of a hash table, so once is not enough.
    #[test]
    fn graphs_of_many_micro_batches_do_not_delete_each_other() {
        let device = Default::default();
        for round in 0..20 {
            let model: Vec<Linear<B>> = (0..6).map(|_| LinearConfig::new(3, 3).init(&device)).collect();
            let arrivals = Arc::new(Arrivals::default());
            let sink: Arc<dyn GradientSink<Flex>> = arrivals.clone();
            let parameters = list_parameters::<B, _>(&model);
            let binding =
                Binding::new(parameters, OPTIONS, &ParallelContext::single(0), &device, None).expect("plain layers");
            let run = |layers: std::ops::Range<usize>| {
                let hooked = hook_module::<B, _>(model.clone(), &binding, &sink);
                let input = Tensor::<B, 2>::ones([2, 3], &device).require_grad();
                let output = hooked[layers]
                    .iter()
                    .fold(input, |hidden, layer| layer.forward(hidden).tanh());
                output.sum()
            };
            let ends: Vec<_> = (0..8).map(|_| run(4..6)).collect();
            for end in ends {
                end.backward();
                for layer in (0..4).rev() {
                    run(layer..layer + 1).backward();
                }
            }
            let count = arrivals.0.lock().expect("no panic").len();
            assert_eq!(count, 8 * 12, "gradients of round {round}");
        }
    }
}
