//! BERT as a [`ModelFamily`]: what training programs ask of its configuration.

use burn_megatron::autodiff::TrainingBackend;
use burn_megatron::context::ParallelContext;
use burn_megatron::pipeline_parallel::LayerLayout;
use burn_megatron::topology::{ParallelConfig, TopologyError, check_divides};

use super::{BertConfig, BertPreset, NormOrder};
use crate::architecture::Architecture;
use crate::decoder::Decoder;
use crate::family::{ModelFamily, ModelSettings};
use crate::layers::{LayerRecompute, ModelError};
use crate::model_config::{ForwardFlops, ModelConfig, Objective, ParameterCounts};
use crate::vocabulary::check_padded_vocab;

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
        for (name, size) in [
            ("n_layers", self.n_layers),
            ("d_model", self.d_model),
            ("n_heads", self.n_heads),
            ("max_seq_length", self.max_seq_length),
            ("vocab_size", self.vocab_size),
            ("token_types", self.token_types),
            ("logit_chunk_tokens", self.logit_chunk_tokens.unwrap_or(1)),
        ] {
            if size == 0 {
                return Err(TopologyError::Zero { name });
            }
        }
        check_divides("d_model", self.d_model, "n_heads", self.n_heads)?;
        parallel.check_tensor_divides("the number of attention heads", self.n_heads)?;
        parallel.check_tensor_divides("the MLP's hidden size", self.hidden_size())?;
        let padded = self.padded_vocab(parallel.tensor_parallel_size);
        check_padded_vocab(self.vocab_size, padded, parallel)
    }

    fn sizes(&self) -> Vec<(&'static str, String)> {
        vec![
            ("--num-layers", self.n_layers.to_string()),
            ("--hidden-size", self.d_model.to_string()),
            ("--num-attention-heads", self.n_heads.to_string()),
            ("--seq-length", self.max_seq_length.to_string()),
            ("--ffn-hidden-size", self.hidden_size().to_string()),
            ("token types", self.token_types.to_string()),
            ("the place of norms", format!("{:?}", self.order)),
            ("the MLP's activation", format!("{:?}", self.activation)),
            ("a head for pairs of sentences", self.tells_pairs.to_string()),
            ("tied embeddings", self.tied_embeddings.to_string()),
            ("the epsilon of norms", self.norm_epsilon.to_string()),
        ]
    }

    fn architecture(&self) -> Architecture {
        Architecture {
            positions: Some("learned_absolute"),
            ..Architecture::with_biases()
        }
    }

    fn parameter_counts(&self) -> ParameterCounts {
        let (d, hidden) = (self.d_model, self.hidden_size());
        let attention = 3 * d * d + 3 * d + d * d + d;
        let mlp = d * hidden + hidden + hidden * d + d;
        let embeddings = (self.vocab_size + self.max_seq_length + self.token_types) * d;
        let (first_norm, last_norm) = match self.order {
            NormOrder::Before => (0, 2 * d),
            NormOrder::After => (2 * d, 0),
        };
        // The layer before the head with its norm, the head's bias, pooler and classifier of pairs.
        let transform = d * d + d + 2 * d + self.vocab_size;
        let pairs = if self.tells_pairs { d * d + d + 2 * d + 2 } else { 0 };
        ParameterCounts {
            layer: attention + mlp + 4 * d,
            first: embeddings + first_norm,
            last: last_norm + transform + pairs,
            head: self.vocab_size * d,
            is_tied: self.tied_embeddings,
        }
    }

    /// As a GPT's: `5 + 12/t`, under sequence parallelism `17/t`.
    ///
    /// # Reference
    /// Korthikanti et al. 2022, arXiv:2205.05198, equations 1, 2 and 4.
    fn activations_per_element(&self, parallel: &ParallelConfig) -> f64 {
        let tensor = parallel.tensor_parallel_size as f64;
        if parallel.sequence_parallel {
            17.0 / tensor
        } else {
            5.0 + 12.0 / tensor
        }
    }

    /// Per token a layer has 8h² + 4hf in its four weights, with f the MLP's hidden size, and 4sh in `QKᵀ` and its
    /// matmul with V; the head has 2hV and 2h² in the layer before it.
    fn forward_flops(&self, seq_length: usize) -> ForwardFlops {
        let [l, h, hidden, v, s] = [
            self.n_layers,
            self.d_model,
            self.hidden_size(),
            self.vocab_size,
            seq_length,
        ]
        .map(|size| size as f64);
        ForwardFlops {
            layers: s * l * (8.0 * h * h + 4.0 * h * hidden + 4.0 * s * h),
            head: s * (2.0 * h * v + 2.0 * h * h),
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
