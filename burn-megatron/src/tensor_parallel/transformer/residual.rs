//! The sums of a transformer layer, and its norms as a conversion makes them.

use burn::nn;
use burn::tensor::{Tensor, backend::Backend};
use cubecl_kernels::Kernels;
use cubecl_kernels::bias_dropout_add::bias_dropout_add;
use cubecl_kernels::norm::Addends;

use crate::collectives::CollectiveBackend;
use crate::context::ParallelContext;
use crate::random::{Dropout, StepCoordinates};
use crate::tensor_parallel::conversion::{ConversionError, check_epsilon, module_name};
use crate::tensor_parallel::{LayerNorm, LayerNormConfig, checked};

/// Returns `residual + dropout(output + bias)`.
///
/// # Shapes
/// - `output`, `residual`: `[tokens, d_model]`, this rank's tokens, which `step` places
pub(super) fn add<B: CollectiveBackend>(
    residual: Tensor<B, 2>,
    (output, bias): (Tensor<B, 2>, Option<Tensor<B, 1>>),
    dropout: &Dropout,
    step: Option<&StepCoordinates>,
    kernels: Kernels,
) -> Tensor<B, 2> {
    if kernels == Kernels::Fused {
        let device = output.device();
        return checked(bias_dropout_add(Addends {
            input: output,
            bias,
            residual,
            dropout: step.and_then(|step| dropout.of_rows::<B>(step, &device)),
        }));
    }
    let output = match bias {
        Some(bias) => output + bias.unsqueeze(),
        None => output,
    };
    residual
        + match step {
            Some(step) => dropout.forward(output, step),
            None => output,
        }
}

/// Returns a norm of a composite, whose epsilon is that of the composite's configuration.
pub(super) fn convert_norm<B: Backend>(
    norm: nn::LayerNorm<B>,
    epsilon: f64,
    context: &ParallelContext,
) -> Result<LayerNorm<B>, ConversionError> {
    check_epsilon(&module_name(context, "layer norm"), "layer_norm_eps", &norm, epsilon)?;
    LayerNormConfig::of(&norm)
        .with_epsilon(epsilon)
        .from_layer_norm(norm, context)
}
