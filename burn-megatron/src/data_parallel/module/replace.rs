//! Puts new values into a module's trained parameters, and reads the old ones.

use std::sync::Arc;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor};

use super::binding::Binding;
use super::bucket_in_flight::BucketInFlight;
use crate::collectives::{CollectiveError, as_constant, has_device_memory, unwrap_or_unwind};
use crate::data_parallel::buckets::gradient_entry::GradientEntry;
use crate::data_parallel::replicas::undrawn::{Undrawn, is_plain};
use crate::data_parallel::shards::parameter_shards::ParameterShards;

/// Returns the module with new values for the trained parameters that `value` gives some for, by number, `[len]`.
pub(in crate::data_parallel) fn replace_parameters<M: Module>(
    module: M,
    binding: &Binding,
    value: impl FnMut(usize) -> Option<Tensor<1>>,
) -> M {
    struct Replacer<'a, F> {
        binding: &'a Binding,
        value: F,
    }
    impl<F> ModuleMapper for Replacer<'_, F>
    where
        F: FnMut(usize) -> Option<Tensor<1>>,
    {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let fresh = self
                .binding
                .numbers
                .get(&param.id)
                .and_then(|&number| (self.value)(number));
            let Some(fresh) = fresh else {
                return param;
            };
            let (id, tensor, mapper) = param.consume();
            let fresh = as_constant(fresh.reshape(tensor.dims()), &tensor.device()).require_grad();
            Param::from_mapped_value(id, fresh, mapper)
        }
    }
    module.map(&mut Replacer { binding, value })
}

/// Returns the module with the trained parameters that a bucket brings: each is waited for when it is first read.
///
/// One that is transformed as it is loaded or saved is waited for now: burn has no such parameter without a value.
pub(in crate::data_parallel) fn await_parameters<M: Module>(
    module: M,
    binding: &Binding,
    bucket: &Arc<BucketInFlight>,
) -> (M, Result<(), CollectiveError>) {
    struct Awaiter<'a> {
        binding: &'a Binding,
        bucket: &'a Arc<BucketInFlight>,
        result: Result<(), CollectiveError>,
    }
    impl ModuleMapper for Awaiter<'_> {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let number = self.binding.numbers.get(&param.id).copied();
            let Some(number) = number.filter(|&number| self.bucket.brings(number)) else {
                return param;
            };
            let (shape, device) = (param.lazy_shape(), param.lazy_device());
            let is_plain = is_plain(&param);
            let (id, tensor, mapper) = param.consume();
            if is_plain {
                let (bucket, dims) = (self.bucket.clone(), shape.dims::<D>());
                let arrive = move |device: &Device, requires_grad| {
                    let value = unwrap_or_unwind(bucket.value(number));
                    as_constant(value.reshape(dims), device).set_require_grad(requires_grad)
                };
                return Param::uninitialized(id, arrive, device, true, shape);
            }
            let value = match self.bucket.value(number) {
                Ok(value) => as_constant(value.reshape(tensor.dims()), &tensor.device()).require_grad(),
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

/// Returns the module with trained parameters that are gathered when they are read, in place of those that are there.
///
/// # Errors
/// The path of a parameter that is transformed as it is loaded or saved: burn has no such parameter without a value.
pub(in crate::data_parallel) fn shard_parameters<M: Module>(
    module: M,
    binding: &Binding,
    shards: &Arc<ParameterShards>,
) -> (M, Option<String>) {
    struct Sharder<'a> {
        binding: &'a Binding,
        shards: &'a Arc<ParameterShards>,
        transformed: Option<String>,
    }
    impl ModuleMapper for Sharder<'_> {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            let Some(&number) = self.binding.numbers.get(&param.id) else {
                return param;
            };
            if !is_plain(&param) {
                let name = self.binding.entries[number].name.clone();
                self.transformed.get_or_insert(name);
                return param;
            }
            gathered(&param, number, self.shards.clone())
        }
    }
    let mut sharder = Sharder {
        binding,
        shards,
        transformed: None,
    };
    let module = module.map(&mut sharder);
    (module, sharder.transformed)
}

/// Returns the module with sharded parameters that are gathered by themselves when they are read: clones as burn makes
/// them share what one of them has gathered, and would keep it as long as the module.
pub(in crate::data_parallel) fn gather_anew<M: Module>(module: M, binding: &Binding) -> M {
    struct Gatherer<'a> {
        binding: &'a Binding,
        shards: &'a Arc<ParameterShards>,
    }
    impl ModuleMapper for Gatherer<'_> {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            match self.binding.numbers.get(&param.id) {
                Some(&number) if !param.is_initialized() => gathered(&param, number, self.shards.clone()),
                _ => param,
            }
        }
    }
    match &binding.shards {
        Some(shards) => module.map(&mut Gatherer { binding, shards }),
        None => module,
    }
}

/// Returns a parameter in place of another, which is gathered when it is read.
fn gathered<const D: usize>(param: &Param<Tensor<D>>, number: usize, shards: Arc<ParameterShards>) -> Param<Tensor<D>> {
    let (shape, device) = (param.lazy_shape(), param.lazy_device());
    let dims = shape.dims::<D>();
    let gather = move |device: &Device, requires_grad| {
        let value = unwrap_or_unwind(shards.parameter(number));
        // A graph may keep vectors, and is not to keep their bucket with them.
        let value = if D == 1 { apart(value) } else { value };
        as_constant(value.reshape(dims), device).set_require_grad(requires_grad)
    };
    Param::uninitialized(param.id, gather, device, true, shape)
}

/// The same values in memory of their own.
fn apart(values: Tensor<1>) -> Tensor<1> {
    let (device, dtype) = (values.device(), values.dtype());
    if has_device_memory(&device) {
        return values.mul_scalar(1.0);
    }
    Tensor::from_data(values.into_data(), (&device, dtype))
}

/// Gives every parameter of a module that is waited for its value.
pub(in crate::data_parallel) fn touch_parameters<M: Module>(module: &M) {
    struct Toucher;
    impl ModuleVisitor for Toucher {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
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
pub(in crate::data_parallel) fn make_leaves<M: Module>(module: M) -> (M, bool) {
    struct LeafMaker {
        has_made: bool,
    }
    impl ModuleMapper for LeafMaker {
        fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
            // One without a value is the output of nothing.
            if !param.is_initialized() {
                return param;
            }
            let (id, tensor, mapper) = param.consume();
            let is_output = !tensor.is_require_grad() && tensor.is_tracked();
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
pub(in crate::data_parallel) fn read_parameters<M: Module>(
    module: &M,
    binding: &Binding,
    undrawn: &Undrawn,
) -> Vec<Option<Tensor<1>>> {
    struct Reader<'a> {
        binding: &'a Binding,
        undrawn: &'a Undrawn,
        values: Vec<Option<Tensor<1>>>,
    }
    impl ModuleVisitor for Reader<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
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
