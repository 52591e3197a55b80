//! Puts new values into a module's trained parameters, and reads the old ones.
//!
//! Called by [`DistributedDataParallel`](super::DistributedDataParallel) for the optimizer and for loaded checkpoints.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::Tensor;

use super::binding::Binding;
use super::hook::HookBackend;

/// Returns the module with new values for the trained parameters that `value` gives some for, by number, `[len]`.
pub(super) fn replace_parameters<B: HookBackend, M: Module<B>>(
    module: M,
    binding: &Binding<B>,
    value: impl FnMut(usize) -> Option<Tensor<B::InnerBackend, 1>>,
) -> M {
    struct Replacer<'a, B: HookBackend, F> {
        binding: &'a Binding<B>,
        value: F,
    }
    impl<B: HookBackend, F: FnMut(usize) -> Option<Tensor<B::InnerBackend, 1>>> ModuleMapper<B> for Replacer<'_, B, F> {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
            let fresh = self
                .binding
                .numbers
                .get(&param.id)
                .and_then(|&number| (self.value)(number));
            let Some(fresh) = fresh else {
                return param;
            };
            let (id, tensor, mapper) = param.consume();
            let fresh = Tensor::from_inner(fresh.reshape(tensor.dims())).require_grad();
            Param::from_mapped_value(id, fresh, mapper)
        }
    }
    module.map(&mut Replacer { binding, value })
}

/// Returns the values of the trained parameters, by number, `[len]`.
pub(super) fn read_parameters<B: HookBackend, M: Module<B>>(
    module: &M,
    binding: &Binding<B>,
) -> Vec<Tensor<B::InnerBackend, 1>> {
    struct Reader<'a, B: HookBackend> {
        binding: &'a Binding<B>,
        values: Vec<Option<Tensor<B::InnerBackend, 1>>>,
    }
    impl<B: HookBackend> ModuleVisitor<B> for Reader<'_, B> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            if let Some(&number) = self.binding.numbers.get(&param.id) {
                let value = param.val().inner();
                let length = value.shape().num_elements();
                self.values[number] = Some(value.reshape([length]));
            }
        }
    }
    let mut reader = Reader {
        binding,
        values: vec![None; binding.entries.len()],
    };
    module.visit(&mut reader);
    let values: Vec<_> = reader.values.into_iter().flatten().collect();
    assert_eq!(
        values.len(),
        binding.entries.len(),
        "the module has the parameters that it was wrapped with"
    );
    values
}
