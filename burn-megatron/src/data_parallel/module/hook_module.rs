//! [`hook_module`]: a clone of a module whose parameters' gradients go to a sink.

use std::sync::Arc;

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::Tensor;

use super::binding::Binding;
use super::replace::gather_anew;
use crate::autodiff::{GradientSink, hook};
use crate::parameters::map_once;

/// Returns a clone of the module, for one forward pass, whose bound parameters are hooked.
pub(in crate::data_parallel) fn hook_module<M: Module>(
    module: M,
    binding: &Binding,
    sink: &Arc<dyn GradientSink>,
) -> M {
    gather_anew(module, binding).map(&mut Hooker { binding, sink })
}

struct Hooker<'a> {
    binding: &'a Binding,
    sink: &'a Arc<dyn GradientSink>,
}

impl ModuleMapper for Hooker<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some(&number) = self.binding.numbers.get(&param.id) else {
            return param;
        };
        let anchor = self.binding.anchors[number].clone();
        let sink = self.sink.clone();
        let source = self.binding.weight_source(number);
        map_once(param, move |tensor| hook(tensor, &anchor, sink, number, source))
    }
}

#[cfg(test)]
mod tests {
    use burn::backend::DispatchTensor;
    use burn::nn::{Linear, LinearConfig};
    use burn::tensor::Device;
    use parking_lot::Mutex;

    use super::*;
    use crate::context::ParallelContext;
    use crate::data_parallel::ShardingStrategy;
    use crate::data_parallel::module::binding::BindingOptions;
    use crate::parameters::list_parameters;

    const OPTIONS: BindingOptions = BindingOptions {
        bucket_size: 1,
        sharding: ShardingStrategy::NoShard,
        overlaps: true,
        gathers_ahead: true,
    };

    #[derive(Debug, Default)]
    struct Arrivals(Mutex<Vec<usize>>);

    impl GradientSink for Arrivals {
        fn receive(&self, index: usize, _gradient: DispatchTensor) {
            self.0.lock().push(index);
        }
    }

    #[test]
    fn a_gradient_arrives_before_the_backward_pass_reaches_the_layer_below() {
        let device = Device::flex().autodiff();
        let model: Vec<Linear> = (0..4).map(|_| LinearConfig::new(3, 3).init(&device)).collect();
        let arrivals = Arc::new(Arrivals::default());
        let sink: Arc<dyn GradientSink> = arrivals.clone();
        let parameters = list_parameters(&model);
        let binding =
            Binding::new(parameters, OPTIONS, &ParallelContext::single(0), &device, None).expect("plain layers");
        let hooked = hook_module(model, &binding, &sink);
        let mut hidden = Tensor::<2>::ones([2, 3], &device).require_grad();
        for layer in &hooked {
            hidden = layer.forward(hidden).tanh();
        }
        hidden.sum().backward();
        let order = arrivals.0.lock().clone();
        let layers: Vec<usize> = order.iter().map(|index| index / 2).collect();
        assert_eq!(layers, [3, 3, 2, 2, 1, 1, 0, 0], "{order:?}");
    }

    /// Many rounds: which nodes burn would drop depends on the order of a hash table.
    #[test]
    fn graphs_of_many_micro_batches_do_not_delete_each_other() {
        let device = Device::flex().autodiff();
        for round in 0..20 {
            let model: Vec<Linear> = (0..6).map(|_| LinearConfig::new(3, 3).init(&device)).collect();
            let arrivals = Arc::new(Arrivals::default());
            let sink: Arc<dyn GradientSink> = arrivals.clone();
            let parameters = list_parameters(&model);
            let binding =
                Binding::new(parameters, OPTIONS, &ParallelContext::single(0), &device, None).expect("plain layers");
            let run = |layers: std::ops::Range<usize>| {
                let hooked = hook_module(model.clone(), &binding, &sink);
                let input = Tensor::<2>::ones([2, 3], &device).require_grad();
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
