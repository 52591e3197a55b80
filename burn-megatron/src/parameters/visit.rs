//! Walks over a module's parameters, and the way of a tensor to host memory and back.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::tensor::{DType, Device, Tensor, TensorData};

/// A float parameter of a module, in the order in which the module lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParameterEntry {
    /// burn's identifier: random, meaningless on other ranks.
    pub id: ParamId,
    /// The path of field names to the parameter.
    pub path: String,
    /// The shape on this rank.
    pub shape: Vec<usize>,
    /// The element type.
    pub dtype: DType,
    /// True for a parameter that is trained; false for a buffer, such as a batch norm's running mean.
    pub requires_grad: bool,
}

impl ParameterEntry {
    /// The number of elements on this rank.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Returns true if the parameter has no element on this rank.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Returns the parameter with another value, made of its own when it is first read: the value may still be in flight.
/// Clones share what is made: a graph has one hook of a parameter, and one gradient.
///
/// burn's own ways are not for this: `init_mapper` takes values out of their graph before it maps them, and
/// `set_require_grad` of a parameter without a value changes all its clones.
pub(crate) fn map_once<const D: usize>(
    param: Param<Tensor<D>>,
    make: impl FnOnce(Tensor<D>) -> Tensor<D> + Send + Sync + 'static,
) -> Param<Tensor<D>> {
    if param.is_initialized() {
        return param.map(make);
    }
    let (id, shape, device) = (param.id, param.lazy_shape(), param.lazy_device());
    Param::uninitialized(id, move |_: &Device, _| make(param.val()), device, true, shape)
}

/// A visitor of float parameters and their paths.
pub(crate) trait PathVisitor {
    fn visit<const D: usize>(&mut self, path: String, param: &Param<Tensor<D>>);
}

/// Shows a visitor a module's float parameters and buffers, in the module's own order.
pub(crate) fn visit_paths<M: Module>(module: &M, visitor: &mut impl PathVisitor) {
    struct Walk<'a, V> {
        path: Vec<String>,
        visitor: &'a mut V,
    }
    impl<V: PathVisitor> ModuleVisitor for Walk<'_, V> {
        fn enter_module(&mut self, name: &str, _container_type: &str) {
            self.path.push(name.to_owned());
        }
        fn exit_module(&mut self, _name: &str, _container_type: &str) {
            self.path.pop();
        }
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.visitor.visit(self.path.join("."), param);
        }
    }
    module.visit(&mut Walk {
        path: Vec::new(),
        visitor,
    });
}

/// Returns a module's float parameters and buffers, in the module's own order. Forces lazy parameters.
pub fn list_parameters<M: Module>(module: &M) -> Vec<ParameterEntry> {
    list_undrawn(module, |_| false)
}

/// Returns what [`list_parameters`] does, without forcing those that are `undrawn`: trained ones of the default type.
pub(crate) fn list_undrawn<M: Module>(module: &M, undrawn: impl Fn(ParamId) -> bool) -> Vec<ParameterEntry> {
    struct Lister<F> {
        entries: Vec<ParameterEntry>,
        undrawn: F,
    }
    impl<F: Fn(ParamId) -> bool> PathVisitor for Lister<F> {
        fn visit<const D: usize>(&mut self, path: String, param: &Param<Tensor<D>>) {
            let (dtype, requires_grad) = if (self.undrawn)(param.id) {
                (param.lazy_device().settings().float_dtype.into(), true)
            } else {
                let tensor = param.val();
                (tensor.dtype(), tensor.is_require_grad())
            };
            self.entries.push(ParameterEntry {
                id: param.id,
                path,
                shape: param.lazy_shape().to_vec(),
                dtype,
                requires_grad,
            });
        }
    }
    let mut lister = Lister {
        entries: Vec::new(),
        undrawn,
    };
    visit_paths(module, &mut lister);
    lister.entries
}

/// Makes a module's running statistics current: takes in what the last forward pass has left pending in a batch norm's
/// running state.
///
/// Without it, what is read lacks the last update, as burn's records do, and what is replaced comes back.
pub fn settle_running_states<M: Module>(module: &M) {
    // For what it does to the running states: burn offers nothing else that does it, and it reads all parameters.
    drop(module.clone().map(&mut WithoutLazy).valid());
}

/// Puts an element in the place of each parameter that has no value yet.
struct WithoutLazy;

impl ModuleMapper for WithoutLazy {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if param.is_initialized() {
            return param;
        }
        Param::initialized(param.id, Tensor::zeros([1; D], &param.lazy_device()))
    }
}

/// Returns the device of a module's first tensor. Where it has none, such as a pipeline stage without layers, this
/// process's: the GPU that it has chosen, or the CPU. burn's default would be a GPU in every build that has one.
pub(crate) fn device_of<M: Module>(module: &M) -> Device {
    module.devices().first().cloned().unwrap_or_else(|| {
        #[cfg(feature = "cuda")]
        if let Some(gpu) = crate::cuda::chosen() {
            return Device::cuda(gpu);
        }
        Device::flex()
    })
}

/// Returns a tensor's elements as f64, exact for every float type.
pub fn read_host<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

/// Returns a tensor of the given type and shape with these elements.
///
/// # Panics
/// When the number of elements is not that of the shape.
pub fn tensor_from_host<const D: usize>(
    values: Vec<f64>,
    shape: [usize; D],
    dtype: DType,
    device: &Device,
) -> Tensor<D> {
    Tensor::from_data(TensorData::new(values, shape), (device, dtype))
}

#[cfg(test)]
mod tests {
    use burn::nn::{BatchNormConfig, LinearConfig};

    use super::*;

    #[test]
    fn a_running_mean_is_settled_and_not_before() {
        let device = Device::flex().autodiff();
        let norm = BatchNormConfig::new(1).init(&device);
        norm.forward(Tensor::<2>::ones([4, 1], &device));
        let mean = || read_host(norm.running_mean.value());
        assert_eq!(mean(), [0.0]);
        settle_running_states(&norm);
        assert!(mean()[0] > 0.0);
    }

    #[test]
    fn parameters_without_values_get_none_while_running_states_are_settled() {
        let linear = LinearConfig::new(2, 3).init(&Device::flex().autodiff());
        settle_running_states(&linear);
        assert!(!linear.weight.is_initialized());
    }
}
