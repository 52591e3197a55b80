//! The sums of a transformer layer, and its norms as a conversion makes them.

use burn::nn;
use burn::tensor::Tensor;
use cubecl_kernels::bias_dropout_add::bias_dropout_add;
use cubecl_kernels::norm::Addends;

use crate::context::ParameterScope;
use crate::random::{Dropout, StepCoordinates};
use crate::tensor_parallel::conversion::{ConversionError, check_epsilon, module_name};
use crate::tensor_parallel::{LayerNorm, LayerNormConfig, checked};

/// Returns `residual + dropout(output + bias)`.
///
/// # Shapes
/// - `output`, `residual`: `[tokens, d_model]`, this rank's tokens, which `step` places
pub(super) fn add(
    residual: Tensor<2>,
    (output, bias): (Tensor<2>, Option<Tensor<1>>),
    dropout: &Dropout,
    step: Option<&StepCoordinates>,
) -> Tensor<2> {
    let device = output.device();
    checked(bias_dropout_add(Addends {
        input: output,
        bias,
        residual,
        dropout: step.and_then(|step| dropout.of_rows(step, &device)),
    }))
}

/// Whether the norms of a layer come before its sublayers, and not after their sums.
#[derive(Clone, Copy, Debug)]
pub(super) struct NormFirst(pub bool);

impl NormFirst {
    /// Returns what the first sublayer sees of the layer's input.
    pub fn before<T: Clone>(self, input: &T, norm: impl FnOnce(T) -> T) -> T {
        if self.0 { norm(input.clone()) } else { input.clone() }
    }

    /// Returns of a sum within the layer the residual stream, and what the next sublayer sees.
    pub fn between<T: Clone>(self, sum: T, norm: impl FnOnce(T) -> T) -> [T; 2] {
        let normal = norm(sum.clone());
        if self.0 {
            [sum, normal]
        } else {
            [normal.clone(), normal]
        }
    }

    /// Returns of the last sum what the layer returns.
    pub fn after<T>(self, sum: T, norm: impl FnOnce(T) -> T) -> T {
        if self.0 { sum } else { norm(sum) }
    }
}

/// Returns a norm of a composite, whose epsilon is that of the composite's configuration.
pub(super) fn convert_norm(
    norm: nn::LayerNorm,
    epsilon: f64,
    scope: &ParameterScope,
) -> Result<LayerNorm, ConversionError> {
    check_epsilon(&module_name(scope, "layer norm"), "layer_norm_eps", &norm, epsilon)?;
    LayerNormConfig::of(&norm)
        .with_epsilon(epsilon)
        .from_layer_norm(norm, scope)
}
