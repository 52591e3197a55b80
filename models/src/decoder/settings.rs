//! [`CommonSettings`]: settings of all families' configurations. Pure.

use crate::family::ModelSettings;
use crate::vocabulary::padded_vocab_size;

/// Declares what a configuration is of: the common settings, between them a family's own sizes, and after them its own
/// settings.
macro_rules! settings {
    (
        $(#[$doc:meta])*
        pub struct $Config:ident
        sizes { $($sizes:tt)* }
        own { $($own:tt)* }
        tied_embeddings = $tied:tt, norm_epsilon = $epsilon:tt
    ) => {
        $(#[$doc])*
        #[derive(burn::config::Config, Debug, PartialEq)]
        pub struct $Config {
            /// The number of blocks.
            pub n_layers: usize,
            /// The size of each token.
            pub d_model: usize,
            /// The number of attention heads, which divides `d_model` unless the size of a head is given.
            pub n_heads: usize,
            $($sizes)*
            /// The longest sequence.
            pub max_seq_length: usize,
            /// The size of the vocabulary, without padding.
            pub vocab_size: usize,
            /// The size of the vocabulary with padding, which the tensor-parallel size divides; the next multiple of
            /// `128 * tensor_parallel_size` if not given. Padding changes no result.
            pub padded_vocab_size: Option<usize>,
            $($own)*
            /// True if the output head is the token embedding.
            #[config(default = $tied)]
            pub tied_embeddings: bool,
            /// The probability with which an element of an embedding, an attention's or an MLP's output becomes zero.
            #[config(default = 0.0)]
            pub hidden_dropout: f64,
            /// The probability with which an attention weight becomes zero.
            #[config(default = 0.0)]
            pub attention_dropout: f64,
            /// Which blocks keep their input only, and run again before their backward pass. It changes no bit of the
            /// result.
            #[config(default = "crate::layers::LayerRecompute::Nothing")]
            pub layer_recompute: $crate::layers::LayerRecompute,
            /// The most tokens whose logits are in one buffer; those of 1 GiB if not given.
            pub logit_chunk_tokens: Option<usize>,
            /// The number that norms add to the variance, or to the mean of the squares.
            #[config(default = $epsilon)]
            pub norm_epsilon: f64,
            /// The standard deviation of weights and embeddings; projections back to `d_model` have it divided by
            /// `√(2 * n_layers)`.
            #[config(default = 0.02)]
            pub init_deviation: f64,
        }
    };
}

/// Returns a configuration with the common settings of another one.
macro_rules! copied {
    ($from:ident, $Config:ident $(, ..$rest:ident)?) => {
        $Config {
            n_layers: $from.n_layers,
            d_model: $from.d_model,
            n_heads: $from.n_heads,
            max_seq_length: $from.max_seq_length,
            vocab_size: $from.vocab_size,
            padded_vocab_size: $from.padded_vocab_size,
            tied_embeddings: $from.tied_embeddings,
            hidden_dropout: $from.hidden_dropout,
            attention_dropout: $from.attention_dropout,
            layer_recompute: $from.layer_recompute,
            logit_chunk_tokens: $from.logit_chunk_tokens,
            norm_epsilon: $from.norm_epsilon,
            init_deviation: $from.init_deviation,
            $(..$rest)?
        }
    };
}

/// Declares the configuration of a family, which becomes a [`DecoderFamily`](crate::decoder::DecoderFamily): the common
/// settings with the family's `sizes`, which are arguments of `new`, and its `own` settings.
macro_rules! decoder_config {
    ($(#[$doc:meta])* pub struct $Config:ident $($rest:tt)*) => {
        $crate::decoder::settings! { $(#[$doc])* pub struct $Config $($rest)* }
        $crate::decoder::decoder_config! { @common $Config $($rest)* }
    };
    (
        @common $Config:ident
        sizes { $($sizes:tt)* }
        own { $($own:tt)* }
        tied_embeddings = $tied:tt, norm_epsilon = $epsilon:tt
    ) => {
        impl $crate::decoder::HasCommonSettings for $Config {
            const TIED_EMBEDDINGS: bool = $tied;
            const NORM_EPSILON: f64 = $epsilon;

            fn common(&self) -> $crate::decoder::CommonSettings {
                $crate::decoder::copied!(self, CommonSettings)
            }

            #[allow(clippy::needless_update)]
            fn with_common(self, common: $crate::decoder::CommonSettings) -> Self {
                $crate::decoder::copied!(common, Self, ..self)
            }
        }

        impl $Config {
            /// Returns the size of the vocabulary with padding.
            pub fn padded_vocab(&self, tensor_parallel_size: usize) -> usize {
                $crate::decoder::HasCommonSettings::common(self).padded_vocab(tensor_parallel_size)
            }

            /// Returns a new, whole model, this tensor rank's part of it, initialised by global names: the same numbers
            /// in every layout.
            ///
            /// Weights and embeddings start as N(0, σ²) with the deviation that is configured, projections back to
            /// `d_model` as N(0, (σ / √(2L))²), biases as 0, norms as 1 and 0.
            ///
            /// # Errors
            /// When a size does not divide: see [`validate`](crate::ModelConfig::validate). When the layout has
            /// pipeline stages.
            pub fn init(
                &self,
                device: &burn::tensor::Device,
                context: &burn_megatron::context::ParallelContext,
            ) -> Result<$crate::decoder::Decoder, $crate::layers::ModelError> {
                self.init_in(device, &context.root())
            }

            /// Returns a model as [`init`](Self::init) does, as a part of another: its parameters are named in `scope`.
            ///
            /// # Errors
            /// As [`init`](Self::init).
            pub fn init_in(
                &self,
                device: &burn::tensor::Device,
                scope: &burn_megatron::context::ParameterScope,
            ) -> Result<$crate::decoder::Decoder, $crate::layers::ModelError> {
                $crate::decoder::DecoderFamily::decoder(self, scope.context())?.init_in(device, scope)
            }

            /// Returns the chunks of this rank's pipeline stage, initialised as [`init`](Self::init) does.
            ///
            /// # Errors
            /// When a size does not divide, or `layers` is not for this model or this layout.
            pub fn init_stage(
                &self,
                layers: &burn_megatron::pipeline_parallel::LayerLayout,
                device: &burn::tensor::Device,
                context: &burn_megatron::context::ParallelContext,
            ) -> Result<Vec<$crate::decoder::Decoder>, $crate::layers::ModelError> {
                $crate::decoder::DecoderFamily::decoder(self, context)?.init_stage(layers, device, context)
            }
        }
    };
}

pub(crate) use {copied, decoder_config, settings};

settings! {
    /// Settings of all families' configurations.
    #[derive(Copy)]
    pub struct CommonSettings
    sizes {}
    own {}
    tied_embeddings = true, norm_epsilon = 1e-5
}

/// A configuration with [`CommonSettings`].
pub trait HasCommonSettings: Sized {
    /// True if the output head is the token embedding if nothing is said of it, here and in `config.json`.
    const TIED_EMBEDDINGS: bool;
    /// The number that norms add if nothing is said of it.
    const NORM_EPSILON: f64;

    fn common(&self) -> CommonSettings;

    /// Returns the configuration with these common settings.
    fn with_common(self, common: CommonSettings) -> Self;
}

impl CommonSettings {
    /// Returns the size of the vocabulary with padding.
    pub fn padded_vocab(&self, tensor_parallel_size: usize) -> usize {
        padded_vocab_size(self.vocab_size, self.padded_vocab_size, tensor_parallel_size)
    }

    /// Returns these settings with what was asked for.
    pub fn with(self, settings: &ModelSettings) -> Self {
        Self {
            n_layers: settings.n_layers.unwrap_or(self.n_layers),
            d_model: settings.d_model.unwrap_or(self.d_model),
            n_heads: settings.n_heads.unwrap_or(self.n_heads),
            max_seq_length: settings.max_seq_length.unwrap_or(self.max_seq_length),
            vocab_size: settings.vocab_size,
            padded_vocab_size: settings.padded_vocab_size,
            tied_embeddings: settings.tied_embeddings.unwrap_or(self.tied_embeddings),
            hidden_dropout: settings.hidden_dropout.unwrap_or(self.hidden_dropout),
            attention_dropout: settings.attention_dropout.unwrap_or(self.attention_dropout),
            layer_recompute: settings.layer_recompute,
            logit_chunk_tokens: settings.logit_chunk_tokens,
            norm_epsilon: settings.norm_epsilon.unwrap_or(self.norm_epsilon),
            init_deviation: settings.init_deviation.unwrap_or(self.init_deviation),
        }
    }
}
