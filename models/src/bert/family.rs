//! BERT as a [`ModelFamily`]: what training programs ask of its configuration.

use burn_megatron::autodiff::TrainingBackend;
use burn_megatron::context::ParallelContext;
use burn_megatron::pipeline_parallel::LayerLayout;
use burn_megatron::topology::{ParallelConfig, TopologyError};

use super::{BertConfig, BertPreset, NormOrder};
use crate::architecture::Architecture;
use crate::decoder::Decoder;
use crate::family::{ModelFamily, ModelSettings};
use crate::layers::{LayerRecompute, ModelError};
use crate::model_config::{ForwardFlops, ModelConfig, Objective, ParameterCounts};

impl ModelConfig for BertConfig {
    fn family_name(&self) -> &'static str {
        Self::NAME
    }

    fn n_layers(&self) -> usize {
        self.n_layers
    }

    fn max_seq_length(&self) -> usize {
        self.max_seq_length
    }

    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn d_model(&self) -> usize {
        self.d_model
    }

    fn n_heads(&self) -> usize {
        self.n_heads
    }

    fn objective(&self) -> Objective {
        Objective::MaskedTokens {
            tells_pairs: self.tells_pairs,
        }
    }

    fn layer_recompute(&self) -> LayerRecompute {
        self.layer_recompute
    }

    fn validate(&self, parallel: &ParallelConfig) -> Result<(), TopologyError> {
        if self.token_types == 0 {
            return Err(TopologyError::Zero { name: "token_types" });
        }
        let padded = self.padded_vocab(parallel.tensor_parallel_size);
        self.biased_sizes().validate(padded, parallel)
    }

    fn sizes(&self) -> Vec<(&'static str, String)> {
        let mut sizes = self.biased_sizes().shown();
        sizes.extend([
            ("token types", self.token_types.to_string()),
            ("the place of norms", format!("{:?}", self.order)),
            ("the MLP's activation", format!("{:?}", self.activation)),
            ("a head for pairs of sentences", self.tells_pairs.to_string()),
            ("tied embeddings", self.tied_embeddings.to_string()),
            ("the epsilon of norms", self.norm_epsilon.to_string()),
        ]);
        sizes
    }

    fn architecture(&self) -> Architecture {
        Architecture {
            positions: Some("learned_absolute"),
            ..Architecture::with_biases()
        }
    }

    fn parameter_counts(&self) -> ParameterCounts {
        let d = self.d_model;
        let embeddings = (self.vocab_size + self.max_seq_length + self.token_types) * d;
        let (first_norm, last_norm) = match self.order {
            NormOrder::Before => (0, 2 * d),
            NormOrder::After => (2 * d, 0),
        };
        // The layer before the head with its norm, the head's bias, pooler and classifier of pairs.
        let transform = d * d + d + 2 * d + self.vocab_size;
        let pairs = if self.tells_pairs { d * d + d + 2 * d + 2 } else { 0 };
        ParameterCounts {
            layer: self.biased_sizes().layer_parameters(),
            first: embeddings + first_norm,
            last: last_norm + transform + pairs,
            head: self.vocab_size * d,
            is_tied: self.tied_embeddings,
        }
    }

    /// As of GPT: `5 + 12/t`; with GELU by the error function, which is usual, `5 + 20/t`.
    fn activations_per_element(&self, parallel: &ParallelConfig) -> f64 {
        let sizes = self.biased_sizes();
        sizes.activations_per_element(parallel, 5.0, self.activation)
    }

    fn unfused_per_element(&self, parallel: &ParallelConfig) -> f64 {
        self.biased_sizes().unfused_per_element(parallel, self.activation)
    }

    /// As of a decoder, and 2h² per token in the layer before the head.
    fn forward_flops(&self, seq_length: usize) -> ForwardFlops {
        let flops = self.biased_sizes().forward_flops(seq_length);
        let (h, s) = (self.d_model as f64, seq_length as f64);
        ForwardFlops {
            head: flops.head + s * 2.0 * h * h,
            ..flops
        }
    }
}

impl ModelFamily for BertConfig {
    const NAME: &'static str = "bert";

    type Stage<B: TrainingBackend> = Decoder<B>;

    fn presets() -> Vec<&'static str> {
        BertPreset::ALL.iter().map(|preset| preset.name).collect()
    }

    fn choices() -> &'static [&'static str] {
        &["--ffn-hidden-size", "--bert-no-binary-head"]
    }

    fn from_settings(settings: &ModelSettings) -> Self {
        let base = match settings.preset.as_deref().and_then(BertPreset::named) {
            Some(preset) => preset.config(),
            None => BertConfig::new(4, 256, 4, 128, settings.vocab_size),
        };
        BertConfig {
            n_layers: settings.n_layers.unwrap_or(base.n_layers),
            d_model: settings.d_model.unwrap_or(base.d_model),
            n_heads: settings.n_heads.unwrap_or(base.n_heads),
            max_seq_length: settings.max_seq_length.unwrap_or(base.max_seq_length),
            vocab_size: settings.vocab_size,
            padded_vocab_size: settings.padded_vocab_size,
            d_hidden: settings.d_hidden.or(base.d_hidden),
            norm_epsilon: settings.norm_epsilon.unwrap_or(base.norm_epsilon),
            tied_embeddings: settings.tied_embeddings.unwrap_or(base.tied_embeddings),
            tells_pairs: settings.tells_pairs.unwrap_or(base.tells_pairs),
            hidden_dropout: settings.hidden_dropout,
            attention_dropout: settings.attention_dropout,
            init_deviation: settings.init_deviation,
            layer_recompute: settings.layer_recompute,
            logit_chunk_tokens: settings.logit_chunk_tokens,
            ..base
        }
    }

    fn with_usual_padding(self) -> Self {
        self.with_padded_vocab_size(None)
    }

    fn init_stage<B: TrainingBackend>(
        &self,
        layers: &LayerLayout,
        device: &B::Device,
        context: &ParallelContext,
    ) -> Result<Vec<Decoder<B>>, ModelError> {
        BertConfig::init_stage(self, layers, device, context)
    }
}
