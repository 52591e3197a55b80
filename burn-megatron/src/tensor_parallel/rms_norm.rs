//! `RmsNorm`, whose weight is declared, alone or fused with the sum before it. As [`LayerNorm`](super::LayerNorm), it
//! is between tensor-parallel regions.

use burn::config::Config;
use burn::module::Module;
use burn::nn;
use burn::tensor::{Device, Tensor};
use cubecl_kernels::norm::{self, Addends, NormKind, NormParameters};

use super::checked;
use crate::context::ParameterScope;

/// Configuration of [`RmsNorm`].
#[derive(Config, Debug)]
pub struct RmsNormConfig {
    /// The size of each token.
    pub d_model: usize,
    /// The number that is added to the mean of the squares.
    #[config(default = 1e-5)]
    pub epsilon: f64,
}

/// `x / √(mean(x²) + ε) · γ` over the last dimension.
///
/// # Reference
/// Zhang and Sennrich 2019, arXiv:1910.07467.
#[derive(Module, Debug)]
pub struct RmsNorm {
    /// burn's norm, which holds the weight: `[d_model]`.
    pub norm: nn::RmsNorm,
}

impl RmsNormConfig {
    /// Returns a new norm, its weight one, declared under the context's scope.
    pub fn init(&self, device: &Device, scope: &ParameterScope) -> RmsNorm {
        let config = nn::RmsNormConfig::new(self.d_model).with_epsilon(self.epsilon);
        RmsNorm::declared(config.init(device), scope)
    }

    /// Returns a new norm of heads of `d_model` elements inside a tensor-parallel region, where each rank has its own
    /// heads: its weight one, the same on every rank, and its gradient summed over the tensor group.
    pub fn init_of_heads(&self, device: &Device, scope: &ParameterScope) -> RmsNorm {
        let config = nn::RmsNormConfig::new(self.d_model).with_epsilon(self.epsilon);
        let norm = scope.drawn(config.init(device));
        scope.declare_head_wise("weight", &norm.gamma);
        RmsNorm { norm }
    }
}

impl RmsNorm {
    /// Returns an existing norm, which every rank holds in full, declared under the context's scope.
    ///
    /// A norm without values gets them here: burn's are ones, so it does not matter when.
    pub fn from_rms_norm(norm: nn::RmsNorm, scope: &ParameterScope) -> Self {
        scope.context().registry().mark_converted(norm.gamma.id);
        Self::declared(norm, scope)
    }

    fn declared(norm: nn::RmsNorm, scope: &ParameterScope) -> Self {
        let norm = scope.drawn(norm);
        scope.declare_token_wise("weight", &norm.gamma);
        Self { norm }
    }
}

impl RmsNorm {
    /// Applies the norm.
    ///
    /// # Shapes
    /// - `input`: `[..., d_model]`
    /// - output: as `input`
    ///
    /// # Panics
    /// When the input is not of the weight's shape and type.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        checked(norm::rms_norm(input, self.norm.gamma.val(), self.norm.epsilon))
    }

    /// Applies the norm to a residual stream that is used again after it; returns the stream and its norm: see
    /// [`LayerNorm::forward_of_stream`](super::LayerNorm::forward_of_stream).
    ///
    /// # Shapes
    /// - `stream` and outputs: `[tokens, d_model]`
    ///
    /// # Panics
    /// When the stream is not of the weight's shape and type.
    pub fn forward_of_stream(&self, stream: Tensor<2>) -> [Tensor<2>; 2] {
        checked(norm::norm_of_stream(stream, self.parameters()))
    }

    /// Adds to a residual stream and applies the norm to the sum, in one operation; returns the sum and its norm.
    ///
    /// # Shapes
    /// - addends and outputs: `[tokens, d_model]`
    ///
    /// # Panics
    /// When the addends are not of the weight's shape and type.
    pub fn forward_of_sum(&self, addends: Addends) -> [Tensor<2>; 2] {
        checked(norm::add_norm(addends, self.parameters()))
    }

    fn parameters(&self) -> NormParameters {
        NormParameters {
            kind: NormKind::Rms,
            weight: self.norm.gamma.val(),
            bias: None,
            epsilon: self.norm.epsilon,
        }
    }
}
