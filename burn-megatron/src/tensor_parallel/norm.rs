//! `LayerNorm`, whose parameters are declared, alone or fused with the sum before it; `apply_layer_norm` for burn's
//! own.
//!
//! A norm is between tensor-parallel regions, so under sequence parallelism it sees this rank's tokens only, and its
//! gradients are summed over the tensor group at the end of the step.

use burn::config::Config;
use burn::module::{Module, Param};
use burn::nn;
use burn::tensor::{Device, Tensor};
use cubecl_kernels::norm::{self, Addends, NormKind, NormParameters};

use super::checked;
use super::conversion::{ConversionError, check_epsilon, module_name};
use crate::context::ParameterScope;
use crate::precision::{assert_dtype, is_half, narrow, widen};

/// Configuration of [`LayerNorm`].
#[derive(Config, Debug)]
pub struct LayerNormConfig {
    /// The size of each token.
    pub d_model: usize,
    /// The number that is added to the variance.
    #[config(default = 1e-5)]
    pub epsilon: f64,
    /// Whether a bias is added.
    #[config(default = true)]
    pub bias: bool,
}

/// `(x − mean) / √(var + ε) · γ + β` over the last dimension.
///
/// # Reference
/// Ba et al. 2016, arXiv:1607.06450.
#[derive(Module, Debug)]
pub struct LayerNorm {
    /// burn's norm, which holds the parameters: `[d_model]` each.
    pub norm: nn::LayerNorm,
    epsilon: f64,
}

impl LayerNormConfig {
    /// Returns the configuration with the sizes of an existing norm, and burn's default epsilon: burn keeps a norm's
    /// own to itself.
    pub fn of(norm: &nn::LayerNorm) -> Self {
        let [d_model] = norm.gamma.lazy_shape().dims();
        Self::new(d_model).with_bias(norm.beta.is_some())
    }

    /// Returns a new norm, its weight one and its bias zero, declared under the context's scope.
    pub fn init(&self, device: &Device, scope: &ParameterScope) -> LayerNorm {
        let config = nn::LayerNormConfig::new(self.d_model).with_epsilon(self.epsilon);
        self.declared(config.with_bias(self.bias).init(device), scope)
    }

    /// Returns an existing norm, which every rank holds in full, declared under the context's scope. `bias` is not
    /// looked at.
    ///
    /// A norm without values gets them here: burn's are ones and zeros, so it does not matter when.
    ///
    /// # Errors
    /// When the norm's epsilon is not that of this configuration.
    ///
    /// # Panics
    /// When the norm is not `[d_model]`.
    pub fn from_layer_norm(&self, norm: nn::LayerNorm, scope: &ParameterScope) -> Result<LayerNorm, ConversionError> {
        assert_eq!(
            norm.gamma.lazy_shape().to_vec(),
            [self.d_model],
            "the norm's shape against the configured [d_model]"
        );
        check_epsilon(&module_name(scope, "layer norm"), "epsilon", &norm, self.epsilon)?;
        scope.context().registry().mark_converted(norm.gamma.id);
        Ok(self.declared(norm, scope))
    }

    fn declared(&self, norm: nn::LayerNorm, scope: &ParameterScope) -> LayerNorm {
        let norm = scope.drawn(norm);
        scope.declare_token_wise("weight", &norm.gamma);
        if let Some(beta) = &norm.beta {
            scope.declare_token_wise("bias", beta);
        }
        LayerNorm {
            norm,
            epsilon: self.epsilon,
        }
    }
}

impl LayerNorm {
    /// Returns an existing norm, which every rank holds in full, with burn's default epsilon; for another see
    /// [`LayerNormConfig::from_layer_norm`].
    ///
    /// # Errors
    /// When the norm's epsilon is another.
    pub fn from_layer_norm(norm: nn::LayerNorm, scope: &ParameterScope) -> Result<Self, ConversionError> {
        LayerNormConfig::of(&norm).from_layer_norm(norm, scope)
    }
}

impl LayerNorm {
    /// Applies the norm.
    ///
    /// # Shapes
    /// - `input`: `[..., d_model]`
    /// - output: as `input`
    ///
    /// # Panics
    /// When the input is not of the parameters' shape and type.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        {
            let NormParameters { weight, bias, .. } = self.parameters();
            checked(norm::layer_norm(input, weight, bias, self.epsilon))
        }
    }

    /// Applies the norm to a residual stream that is used again after it; returns the stream and its norm. Fused, the
    /// norm's backward pass adds up the gradients of both.
    ///
    /// # Shapes
    /// - `stream` and outputs: `[tokens, d_model]`
    ///
    /// # Panics
    /// When the stream is not of the parameters' shape and type.
    pub fn forward_of_stream(&self, stream: Tensor<2>) -> [Tensor<2>; 2] {
        checked(norm::norm_of_stream(stream, self.parameters()))
    }

    /// Adds to a residual stream and applies the norm to the sum, in one operation; returns the sum and its norm.
    ///
    /// # Shapes
    /// - addends and outputs: `[tokens, d_model]`
    ///
    /// # Panics
    /// When the addends are not of the parameters' shape and type.
    pub fn forward_of_sum(&self, addends: Addends) -> [Tensor<2>; 2] {
        checked(norm::add_norm(addends, self.parameters()))
    }

    fn parameters(&self) -> NormParameters {
        NormParameters {
            kind: NormKind::Layer,
            weight: self.norm.gamma.val(),
            bias: self.norm.beta.as_ref().map(|beta| beta.val()),
            epsilon: self.epsilon,
        }
    }
}

/// Applies burn's layer norm: its own way where input and parameters are f32 or f64.
///
/// In 16 bits, burn rounds means and variances to 16 bits when it differentiates, and the squares of f16 overflow; here
/// input and parameters are widened to f32 first, and the output narrowed.
///
/// # Shapes
/// - `input`: `[..., d_model]`
/// - output: as `input`
///
/// # Panics
/// When the input is not of the parameters' type.
pub fn apply_layer_norm<const D: usize>(norm: &nn::LayerNorm, input: Tensor<D>) -> Tensor<D> {
    let dtype = norm.gamma.val().dtype();
    assert_dtype("layer norm", "the input", input.dtype(), dtype);
    if !is_half(dtype) {
        return norm.forward(input);
    }
    // burn keeps the epsilon to itself, so the norm is copied for it.
    let wide = |param: &Param<Tensor<1>>| Param::initialized(param.id, widen(param.val()));
    let mut widened = norm.clone();
    widened.gamma = wide(&norm.gamma);
    widened.beta = norm.beta.as_ref().map(wide);
    narrow(widened.forward(widen(input)), dtype)
}
