//! BLOOM as a [`ModelFamily`]: what training programs ask of its configuration.

use burn_megatron::autodiff::TrainingBackend;
use burn_megatron::context::ParallelContext;
use burn_megatron::pipeline_parallel::LayerLayout;
use burn_megatron::topology::{ParallelConfig, TopologyError};

use super::{BloomConfig, BloomPreset};
use crate::architecture::Architecture;
use crate::decoder::Decoder;
use crate::family::{InferenceProgram, InnerStage, ModelFamily, ModelSettings};
use crate::layers::{LayerRecompute, MlpActivation, ModelError};
use crate::model_config::{ForwardFlops, ModelConfig, ParameterCounts};

impl ModelConfig for BloomConfig {
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

    fn layer_recompute(&self) -> LayerRecompute {
        self.layer_recompute
    }

    fn validate(&self, parallel: &ParallelConfig) -> Result<(), TopologyError> {
        let padded = self.padded_vocab(parallel.tensor_parallel_size);
        self.biased_sizes().validate(padded, parallel)
    }

    fn sizes(&self) -> Vec<(&'static str, String)> {
        let mut sizes = self.biased_sizes().shown();
        sizes.extend([
            ("tied embeddings", self.tied_embeddings.to_string()),
            ("the epsilon of norms", self.norm_epsilon.to_string()),
        ]);
        sizes
    }

    fn architecture(&self) -> Architecture {
        Architecture {
            positions: Some("alibi"),
            ..Architecture::with_biases()
        }
    }

    fn parameter_counts(&self) -> ParameterCounts {
        let d = self.d_model;
        ParameterCounts {
            layer: self.biased_sizes().layer_parameters(),
            first: self.vocab_size * d + 2 * d,
            last: 2 * d,
            head: self.vocab_size * d,
            is_tied: self.tied_embeddings,
        }
    }

    /// As of GPT: `5 + 12/t`, under sequence parallelism `17/t`.
    fn activations_per_element(&self, parallel: &ParallelConfig) -> f64 {
        let sizes = self.biased_sizes();
        sizes.activations_per_element(parallel, 5.0, MlpActivation::Gelu)
    }

    fn forward_flops(&self, seq_length: usize) -> ForwardFlops {
        self.biased_sizes().forward_flops(seq_length)
    }
}

impl ModelFamily for BloomConfig {
    const NAME: &'static str = "bloom";

    type Stage<B: TrainingBackend> = Decoder<B>;

    fn presets() -> Vec<&'static str> {
        BloomPreset::ALL.iter().map(|preset| preset.name).collect()
    }

    fn choices() -> &'static [&'static str] {
        &[]
    }

    fn from_settings(settings: &ModelSettings) -> Self {
        let base = match settings.preset.as_deref().and_then(BloomPreset::named) {
            Some(preset) => preset.config(),
            None => BloomConfig::new(4, 256, 4, 128, settings.vocab_size),
        };
        BloomConfig {
            n_layers: settings.n_layers.unwrap_or(base.n_layers),
            d_model: settings.d_model.unwrap_or(base.d_model),
            n_heads: settings.n_heads.unwrap_or(base.n_heads),
            max_seq_length: settings.max_seq_length.unwrap_or(base.max_seq_length),
            vocab_size: settings.vocab_size,
            padded_vocab_size: settings.padded_vocab_size,
            norm_epsilon: settings.norm_epsilon.unwrap_or(base.norm_epsilon),
            tied_embeddings: settings.tied_embeddings.unwrap_or(base.tied_embeddings),
            hidden_dropout: settings.hidden_dropout,
            attention_dropout: settings.attention_dropout,
            init_deviation: settings.init_deviation,
            layer_recompute: settings.layer_recompute,
            logit_chunk_tokens: settings.logit_chunk_tokens,
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
        BloomConfig::init_stage(self, layers, device, context)
    }

    fn infer<B: TrainingBackend, P: InferenceProgram<B::InnerBackend>>(
        chunks: Vec<InnerStage<Self, B>>,
        program: P,
    ) -> Option<P::Output> {
        Some(program.run(chunks))
    }
}
