//! [`hook_module`]: a clone of a module whose parameters' gradients go to a sink.

use std::sync::Arc;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::backend::Backend;
use burn::tensor::{Tensor, TensorPrimitive};
use parking_lot::Mutex;

use super::binding::Binding;
use crate::autodiff::GradientSink;
use crate::autodiff::TrainingBackend;

/// Returns a clone of the module, for one forward pass, whose bound parameters are hooked.
pub(in crate::data_parallel) fn hook_module<B: TrainingBackend, M: Module<B>>(
    module: M,
    binding: &Binding<B>,
    sink: &Arc<dyn GradientSink<B::InnerBackend>>,
) -> M {
    module.map(&mut Hooker { binding, sink })
}

struct Hooker<'a, B: TrainingBackend> {
    binding: &'a Binding<B>,
    sink: &'a Arc<dyn GradientSink<B::InnerBackend>>,
}

impl<B: TrainingBackend> ModuleMapper<B> for Hooker<'_, B> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
        let Some(&number) = self.binding.numbers.get(&param.id) else {
            return param;
        };
        let anchor = self.binding.anchors[number].clone();
        let sink = self.sink.clone();
        let source = self.binding.weight_source(number);
        map_once(param, move |tensor| {
            let tensor = tensor.into_primitive().tensor();
            let hooked = B::hook(tensor, &anchor, sink.clone(), number, source.clone());
            Tensor::from_primitive(TensorPrimitive::Float(hooked))
        })
    }
}

/// Returns the parameter with another value, made of its own when it is first read: it may be on its way. Clones, of
/// which burn makes each by itself, share what is made: a graph has one hook of a parameter, and one gradient.
pub(crate) fn map_once<B: Backend, const D: usize>(
    param: Param<Tensor<B, D>>,
    make: impl Fn(Tensor<B, D>) -> Tensor<B, D> + Send + Sync + 'static,
) -> Param<Tensor<B, D>> {
    let shared = Mutex::new(None);
    param.init_mapper(move |tensor| {
        let mut shared = shared.lock();
        shared.get_or_insert_with(|| make(tensor)).clone()
    })
}

#[cfg(test)]
mod tests {
    use burn::backend::Autodiff;
    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::ops::FloatTensor;
    use burn_flex::Flex;

    use super::*;
    use crate::context::ParallelContext;
    use crate::data_parallel::ShardingStrategy;
    use crate::data_parallel::module::binding::BindingOptions;
    use crate::parameters::list_parameters;

    type B = Autodiff<Flex>;

    const OPTIONS: BindingOptions = BindingOptions {
        bucket_size: 1,
        sharding: ShardingStrategy::NoShard,
        overlaps: true,
        gathers_ahead: true,
    };

    #[derive(Debug, Default)]
    struct Arrivals(Mutex<Vec<usize>>);

    impl GradientSink<Flex> for Arrivals {
        fn receive(&self, index: usize, _gradient: FloatTensor<Flex>) {
            self.0.lock().push(index);
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
            // The backward pass runs from the deepest node up: the hooks are deeper than all that came before.
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
        let order = arrivals.0.lock().clone();
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
            let count = arrivals.0.lock().len();
            assert_eq!(count, 8 * 12, "gradients of round {round}");
        }
    }
}
