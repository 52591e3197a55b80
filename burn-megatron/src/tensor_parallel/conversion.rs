//! `ConversionError`: what a burn layer that is to be shared out must be; and the check of a norm's epsilon, which burn
//! keeps to itself.

use burn::module::{Module, Param};
use burn::nn::{self, LayerNorm};
use burn::tensor::{DType, Tensor, TensorData};

use crate::context::ParameterScope;
use crate::parameters::{RegistryError, read_host, refuse_undrawn};
use crate::random::{Dropout, DropoutConfig, DropoutSite};
use crate::topology::TopologyError;

/// A burn layer that cannot be shared out over the tensor-parallel group as it stands.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum ConversionError {
    /// A size that the group does not divide.
    #[error("{module}: {source}")]
    Topology { module: String, source: TopologyError },
    /// A parameter without values.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    #[error("{module}: {field} = {value} cannot be shared out over tensor-parallel ranks; valid is {valid}")]
    Unsupported {
        module: String,
        field: &'static str,
        value: String,
        valid: &'static str,
    },
    #[error(
        "{module}: the configuration says {field} = {configured}, the module has {actual}; give the configuration that \
         the module was made with"
    )]
    ConfigDiffers {
        module: String,
        field: &'static str,
        configured: String,
        actual: String,
    },
}

/// The name of the module that a context is for, in messages.
pub(super) fn module_name(scope: &ParameterScope, kind: &str) -> String {
    match scope.name() {
        "" => kind.to_owned(),
        name => format!("{kind} {name}"),
    }
}

/// Gives a topology error the module's name; what was checked had no scope to name.
pub(super) fn named(scope: &ParameterScope, kind: &str) -> impl FnOnce(TopologyError) -> ConversionError {
    let module = module_name(scope, kind);
    move |source| ConversionError::Topology { module, source }
}

/// Checks that every parameter of a layer has values: a part of a model draws none.
pub(super) fn check_drawn<M: Module>(layer: &M, scope: &ParameterScope) -> Result<(), ConversionError> {
    Ok(refuse_undrawn::<M>(layer, scope.name())?)
}

/// Returns what replaces burn's dropout in a module, called `site` in the context's scope.
pub(super) fn converted_dropout(
    dropout: &nn::Dropout,
    site: &str,
    kind: &str,
    scope: &ParameterScope,
) -> Result<Dropout, ConversionError> {
    if !(0.0..1.0).contains(&dropout.prob) {
        return Err(ConversionError::Unsupported {
            module: module_name(scope, kind),
            field: "dropout",
            value: dropout.prob.to_string(),
            valid: "a probability in [0, 1)",
        });
    }
    // Reserved, so that two modules of one name do not share their masks.
    let name = scope.context().registry().reserve_name(scope.scope(site).name());
    Ok(DropoutConfig::new(dropout.prob).init(DropoutSite::named(&name)))
}

/// Checks that a field of a configuration is that of the module.
pub(super) fn check_field<T: PartialEq + std::fmt::Debug>(
    module: &str,
    field: &'static str,
    configured: T,
    actual: T,
) -> Result<(), ConversionError> {
    if configured == actual {
        Ok(())
    } else {
        Err(ConversionError::ConfigDiffers {
            module: module.to_owned(),
            field,
            configured: format!("{configured:?}"),
            actual: format!("{actual:?}"),
        })
    }
}

/// Checks that a norm adds the epsilon of its configuration to the variance.
pub(super) fn check_epsilon(
    module: &str,
    field: &'static str,
    norm: &LayerNorm,
    configured: f64,
) -> Result<(), ConversionError> {
    let measured = measure_epsilon(norm, configured);
    // Measured in f32: a thousandth is far above its rounding, and far below any other epsilon that is used.
    if (measured - configured).abs() <= 1e-3 * configured.max(SMALLEST_EPSILON) {
        Ok(())
    } else {
        Err(ConversionError::ConfigDiffers {
            module: module.to_owned(),
            field,
            configured: format!("{configured:e}"),
            actual: format!("{measured:.3e}"),
        })
    }
}

/// Below it an epsilon is as good as none.
const SMALLEST_EPSILON: f64 = 1e-12;

/// Returns a norm's epsilon, to some six digits, from what the norm of `[-a, a]` is: `a / √(a² + ε)` with `a²` the
/// expected epsilon.
fn measure_epsilon(norm: &LayerNorm, expected: f64) -> f64 {
    let device = norm.gamma.lazy_device();
    let tensor = |values: [f64; 2]| Tensor::<1>::from_data(TensorData::from(values), (&device, DType::F32));
    let half = expected.max(SMALLEST_EPSILON).sqrt();
    let mut probe: nn::LayerNorm = norm.clone();
    probe.gamma = Param::from_tensor(tensor([1.0; 2]));
    probe.beta = None;
    let output = read_host(probe.forward(tensor([-half, half]).unsqueeze::<2>()))[1];
    half * half * (1.0 / (output * output) - 1.0)
}

/// Checks fields of a configuration that the module has by the same names.
macro_rules! check_fields {
    ($name:expr, $config:expr, $module:ident: $($field:ident),*) => {
        $(check_field(&$name, stringify!($field), $config.$field, $module.$field)?;)*
    };
}
pub(super) use check_fields;

#[cfg(test)]
mod tests {
    use burn::nn::{LayerNormConfig, Linear, LinearConfig};
    use burn::tensor::Device;

    use super::*;
    use crate::context::ParallelContext;
    use crate::data_parallel::{DataParallelConfig, DistributedDataParallel};
    use crate::initialize;
    use crate::tensor_parallel::{ColumnParallelLinear, RowParallelLinear};
    use crate::topology::ParallelConfig;
    use burn_megatron_comm::rank_threads::{TIMEOUT, run_ranks};

    fn linear() -> Linear {
        LinearConfig::new(4, 4).init(&Device::flex())
    }

    #[test]
    fn a_layer_without_values_is_refused_with_the_call_to_make() {
        let context = ParallelContext::single(1).scope("fc");
        for refused in [
            ColumnParallelLinear::from_linear(linear(), &context).err(),
            RowParallelLinear::from_linear(linear(), &context).err(),
        ] {
            let message = refused.expect("it has no values").to_string();
            assert!(
                message.starts_with("parameter fc.weight has no values yet"),
                "{message}"
            );
            assert!(message.contains("burn_megatron::initialize(model)"), "{message}");
        }
        ColumnParallelLinear::from_linear(initialize(linear()), &context).expect("it has values");
    }

    #[test]
    fn a_width_that_does_not_divide_is_refused_with_the_name_of_the_layer_once() {
        run_ranks(2, TIMEOUT, |world| {
            let context = ParallelConfig::new().with_tensor_parallel_size(2).init(&world);
            let context = context.unwrap().scope("encoder.fc");
            let column = ColumnParallelLinear::from_linear(LinearConfig::new(4, 9).init(&Device::flex()), &context);
            let row = RowParallelLinear::from_linear(LinearConfig::new(9, 4).init(&Device::flex()), &context);
            let ends = "must be divisible by tensor_parallel_size = 2, got 9; the nearest valid values are 8 and 10";
            assert_eq!(
                column.unwrap_err().to_string(),
                format!("column-parallel linear layer encoder.fc: the width of a column-parallel matrix {ends}")
            );
            assert_eq!(
                row.unwrap_err().to_string(),
                format!("row-parallel linear layer encoder.fc: the input width of a row-parallel matrix {ends}")
            );
        });
    }

    #[test]
    fn what_is_left_of_a_converted_model_is_refused_without_values() {
        let context = ParallelContext::single(1);
        let converted = ColumnParallelLinear::from_linear(initialize(linear()), &context.scope("first"));
        let model = (converted.expect("it has values"), linear());
        let expected = "parameter 1.weight has no values yet";
        let refused = context.root().declare_rest_replicated(&model).unwrap_err();
        assert!(refused.to_string().starts_with(expected), "{refused}");
        let refused = DistributedDataParallel::new(model.clone(), &context, DataParallelConfig::new());
        let refused = refused.expect_err("it is drawn by itself");
        assert!(refused.to_string().starts_with(expected), "{refused}");

        let model = initialize(model);
        context.root().declare_rest_replicated(&model).expect("it has values");
        let names = [model.1.weight.id, model.0.weight.id].map(|id| context.registry().declaration(id));
        let names = names.map(|declaration| declaration.expect("declared").name);
        assert_eq!(names, ["1.weight", "first.weight"]);
    }

    fn check(actual: f64, configured: f64) -> Result<(), ConversionError> {
        let norm: LayerNorm = LayerNormConfig::new(5).with_epsilon(actual).init(&Device::flex());
        check_epsilon("layer norm ln", "epsilon", &norm, configured)
    }

    #[test]
    fn the_epsilon_of_a_norm_is_seen() {
        for epsilon in [1e-3, 1e-5, 1e-6, 1e-8, 1e-12] {
            check(epsilon, epsilon).expect("the same");
        }
        for (actual, configured) in [(1e-6, 1e-5), (1e-5, 1e-6), (1e-5, 1.1e-5), (1e-3, 1e-12)] {
            assert!(matches!(
                check(actual, configured),
                Err(ConversionError::ConfigDiffers { .. })
            ));
        }
        assert_eq!(
            check(1e-6, 1e-5).unwrap_err().to_string(),
            "layer norm ln: the configuration says epsilon = 1e-5, the module has 1.000e-6; give the configuration \
             that the module was made with"
        );
    }
}
