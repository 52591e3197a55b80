//! Puts new values into a module's trained parameters, and reads the old ones.

use std::sync::Arc;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Tensor, TensorPrimitive};

use super::binding::Binding;
use super::bucket_in_flight::BucketInFlight;
use crate::autodiff::TrainingBackend;
use crate::collectives::{CollectiveBackend, CollectiveError, unwrap_or_unwind};
use crate::data_parallel::buckets::gradient_entry::GradientEntry;
use crate::data_parallel::replicas::undrawn::{Undrawn, is_plain};
use crate::data_parallel::shards::parameter_shards::ParameterShards;

/// Returns the module with new values for the trained parameters that `value` gives some for, by number, `[len]`.
pub(in crate::data_parallel) fn replace_parameters<B: TrainingBackend, M: Module<B>>(
    module: M,
    binding: &Binding<B>,
    value: impl FnMut(usize) -> Option<Tensor<B::InnerBackend, 1>>,
) -> M {
    struct Replacer<'a, B: TrainingBackend, F> {
        binding: &'a Binding<B>,
        value: F,
    }
    impl<B: TrainingBackend, F> ModuleMapper<B> for Replacer<'_, B, F>
    where
        F: FnMut(usize) -> Option<Tensor<B::InnerBackend, 1>>,
    {
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

/// Returns the module with the trained parameters that a bucket brings: each is waited for when it is first read.
///
/// One that is transformed as it is loaded or saved is waited for now: burn has no such parameter without a value.
pub(in crate::data_parallel) fn await_parameters<B: TrainingBackend, M: Module<B>>(
    module: M,
    binding: &Binding<B>,
    bucket: &Arc<BucketInFlight<B::InnerBackend>>,
) -> (M, Result<(), CollectiveError>) {
    struct Awaiter<'a, B: TrainingBackend> {
        binding: &'a Binding<B>,
        bucket: &'a Arc<BucketInFlight<B::InnerBackend>>,
        result: Result<(), CollectiveError>,
    }
    impl<B: TrainingBackend> ModuleMapper<B> for Awaiter<'_, B> {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
            let number = self.binding.numbers.get(&param.id).copied();
            let Some(number) = number.filter(|&number| self.bucket.brings(number)) else {
                return param;
            };
            let (shape, device) = (param.lazy_shape(), param.lazy_device());
            let is_plain = is_plain(&param);
            let (id, tensor, mapper) = param.consume();
            if is_plain {
                let (bucket, dims) = (self.bucket.clone(), shape.dims::<D>());
                let arrive = move |_: &B::Device, requires_grad| {
                    let value = unwrap_or_unwind(bucket.value(number));
                    Tensor::from_inner(value.reshape(dims)).set_require_grad(requires_grad)
                };
                return Param::uninitialized(id, arrive, device, true, shape);
            }
            let value = match self.bucket.value(number) {
                Ok(value) => Tensor::from_inner(value.reshape(tensor.dims())).require_grad(),
                Err(error) => {
                    self.result = Err(error);
                    tensor
                }
            };
            Param::from_mapped_value(id, value, mapper)
        }
    }
    let mut awaiter = Awaiter {
        binding,
        bucket,
        result: Ok(()),
    };
    let module = module.map(&mut awaiter);
    (module, awaiter.result)
}

/// Returns the module with trained parameters that are gathered when they are read, each clone's by itself, in place
/// of those that are there, and of those that are undrawn.
///
/// # Errors
/// The path of a parameter that is transformed as it is loaded or saved: burn has no such parameter without a value.
pub(in crate::data_parallel) fn shard_parameters<B: TrainingBackend, M: Module<B>>(
    module: M,
    binding: &Binding<B>,
    shards: &Arc<ParameterShards<B::InnerBackend>>,
    undrawn: &Undrawn,
) -> (M, Option<String>) {
    struct Sharder<'a, B: TrainingBackend> {
        binding: &'a Binding<B>,
        undrawn: &'a Undrawn,
        shards: &'a Arc<ParameterShards<B::InnerBackend>>,
        transformed: Option<String>,
    }
    impl<B: TrainingBackend> ModuleMapper<B> for Sharder<'_, B> {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
            let number = self.binding.numbers.get(&param.id).copied();
            let is_undrawn = self.undrawn.contains(param.id);
            let Some(number) = number.filter(|_| is_undrawn || param.is_initialized()) else {
                return param;
            };
            let (id, shape, device) = (param.id, param.lazy_shape(), param.lazy_device());
            if !is_plain(&param) {
                let name = self.binding.entries[number].name.clone();
                self.transformed.get_or_insert(name);
                return param;
            }
            let (shards, dims) = (self.shards.clone(), shape.dims::<D>());
            let gather = move |_: &B::Device, requires_grad| {
                let value = unwrap_or_unwind(shards.parameter(number));
                // A graph may keep vectors, and is not to keep their bucket with them.
                let value = if D == 1 { apart(value) } else { value };
                Tensor::from_inner(value.reshape(dims)).set_require_grad(requires_grad)
            };
            Param::uninitialized(id, gather, device, true, shape)
        }
    }
    let mut sharder = Sharder {
        binding,
        undrawn,
        shards,
        transformed: None,
    };
    let module = module.map(&mut sharder);
    (module, sharder.transformed)
}

/// The same values in memory of their own.
fn apart<B: CollectiveBackend>(values: Tensor<B, 1>) -> Tensor<B, 1> {
    if B::HAS_DEVICE_MEMORY {
        return values.mul_scalar(1.0);
    }
    let (device, dtype) = (values.device(), values.dtype());
    Tensor::from_data(values.into_data(), (&device, dtype))
}

/// Gives every parameter of a module that is waited for its value.
pub(in crate::data_parallel) fn touch_parameters<B: TrainingBackend, M: Module<B>>(module: &M) {
    struct Toucher;
    impl<B: TrainingBackend> ModuleVisitor<B> for Toucher {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            let _ = param.val();
        }
    }
    module.visit(&mut Toucher);
}

/// Returns the module with every parameter that is the output of an operation made a trained leaf of its own, and
/// whether there was one.
///
/// `Module::to_device` of burn leaves such parameters: the move is differentiable, and the gradient belongs to the
/// tensor on the old device, which nothing refers to any more.
pub(in crate::data_parallel) fn make_leaves<B: TrainingBackend, M: Module<B>>(module: M) -> (M, bool) {
    struct LeafMaker {
        has_made: bool,
    }
    impl<B: TrainingBackend> ModuleMapper<B> for LeafMaker {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<B, D>>) -> Param<Tensor<B, D>> {
            // One without a value is the output of nothing.
            if !param.is_initialized() {
                return param;
            }
            let (id, tensor, mapper) = param.consume();
            let is_leaf = tensor.is_require_grad();
            let primitive = tensor.into_primitive().tensor();
            let is_output = !is_leaf && B::is_tracked(&primitive);
            let tensor = Tensor::from_primitive(TensorPrimitive::Float(primitive));
            self.has_made |= is_output;
            let tensor = if is_output {
                tensor.detach().require_grad()
            } else {
                tensor
            };
            Param::from_mapped_value(id, tensor, mapper)
        }
    }
    let mut maker = LeafMaker { has_made: false };
    let module = module.map(&mut maker);
    (module, maker.has_made)
}

/// Returns the values of the trained parameters, by number, `[len]`; none of those that are undrawn.
pub(in crate::data_parallel) fn read_parameters<B: TrainingBackend, M: Module<B>>(
    module: &M,
    binding: &Binding<B>,
    undrawn: &Undrawn,
) -> Vec<Option<Tensor<B::InnerBackend, 1>>> {
    struct Reader<'a, B: TrainingBackend> {
        binding: &'a Binding<B>,
        undrawn: &'a Undrawn,
        values: Vec<Option<Tensor<B::InnerBackend, 1>>>,
    }
    impl<B: TrainingBackend> ModuleVisitor<B> for Reader<'_, B> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<B, D>>) {
            let number = self.binding.numbers.get(&param.id);
            if let Some(&number) = number.filter(|_| !self.undrawn.contains(param.id)) {
                let value = param.val().inner();
                let length = value.shape().num_elements();
                self.values[number] = Some(value.reshape([length]));
            }
        }
    }
    let mut reader = Reader {
        binding,
        undrawn,
        values: vec![None; binding.entries.len()],
    };
    module.visit(&mut reader);
    let is_there = |(value, entry): (&Option<_>, &GradientEntry)| value.is_some() || undrawn.contains(entry.id);
    assert!(
        reader.values.iter().zip(&*binding.entries).all(is_there),
        "the module has the parameters that it was wrapped with"
    );
    reader.values
}
