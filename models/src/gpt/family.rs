//! GPT as a [`ModelFamily`]: what training programs ask of its configuration.

use burn_megatron::autodiff::TrainingBackend;
use burn_megatron::context::ParallelContext;
use burn_megatron::pipeline_parallel::LayerLayout;
use burn_megatron::topology::{ParallelConfig, TopologyError};

use super::{Gpt, GptConfig, GptPreset};
use crate::architecture::Architecture;
use crate::family::{InferenceProgram, InnerStage, ModelFamily, ModelSettings};
use crate::layers::{LayerRecompute, MlpActivation, ModelError};
use crate::model_config::{ForwardFlops, ModelConfig, ParameterCounts};

impl ModelConfig for GptConfig {
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
            positions: Some("learned_absolute"),
            ..Architecture::with_biases()
        }
    }

    fn parameter_counts(&self) -> ParameterCounts {
        let d = self.d_model;
        ParameterCounts {
            layer: self.biased_sizes().layer_parameters(),
            first: (self.vocab_size + self.max_seq_length) * d,
            last: 2 * d,
            head: self.vocab_size * d,
            is_tied: self.tied_embeddings,
        }
    }

    /// `5 + 12/t`, under sequence parallelism `17/t`, where the MLP's hidden size is the usual one.
    ///
    /// The paper counts bytes of 16-bit elements, two per number. Where it has 5as/2h for attention's core, the fused
    /// one holds nothing that grows with s²; burn's own operations
    /// ([`Kernels::Plain`](cubecl_kernels::Kernels::Plain)) hold more.
    ///
    /// # Reference
    /// Korthikanti et al. 2022, arXiv:2205.05198, equations 1, 2 and 4.
    fn activations_per_element(&self, parallel: &ParallelConfig) -> f64 {
        let sizes = self.biased_sizes();
        sizes.activations_per_element(parallel, 5.0, MlpActivation::Gelu)
    }

    fn forward_flops(&self, seq_length: usize) -> ForwardFlops {
        self.biased_sizes().forward_flops(seq_length)
    }
}

impl ModelFamily for GptConfig {
    const NAME: &'static str = "gpt";

    type Stage<B: TrainingBackend> = Gpt<B>;

    fn presets() -> Vec<&'static str> {
        GptPreset::ALL.iter().map(|preset| preset.name).collect()
    }

    fn choices() -> &'static [&'static str] {
        &["--ffn-hidden-size"]
    }

    fn from_settings(settings: &ModelSettings) -> Self {
        let base = match settings.preset.as_deref().and_then(GptPreset::named) {
            Some(preset) => preset.config(),
            None => GptConfig::new(4, 256, 4, 128, settings.vocab_size),
        };
        GptConfig {
            n_layers: settings.n_layers.unwrap_or(base.n_layers),
            d_model: settings.d_model.unwrap_or(base.d_model),
            n_heads: settings.n_heads.unwrap_or(base.n_heads),
            max_seq_length: settings.max_seq_length.unwrap_or(base.max_seq_length),
            vocab_size: settings.vocab_size,
            padded_vocab_size: settings.padded_vocab_size,
            d_hidden: settings.d_hidden.or(base.d_hidden),
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
    ) -> Result<Vec<Gpt<B>>, ModelError> {
        GptConfig::init_stage(self, layers, device, context)
    }

    fn infer<B: TrainingBackend, P: InferenceProgram<B::InnerBackend>>(
        chunks: Vec<InnerStage<Self, B>>,
        program: P,
    ) -> Option<P::Output> {
        Some(program.run(chunks))
    }
}

#[cfg(test)]
mod tests {
    use burn_megatron::training::flops::GptSize;

    use super::*;

    #[test]
    fn flops_are_those_of_the_papers_formula() {
        for preset in GptPreset::ALL {
            let config = preset.config();
            let size = GptSize {
                n_layers: config.n_layers as u64,
                d_model: config.d_model as u64,
                vocabulary_size: config.vocab_size as u64,
                seq_length: config.max_seq_length as u64,
            };
            let (ours, papers) = (
                config.flops_per_iteration(config.max_seq_length, 12),
                size.model_flops_per_iteration(12),
            );
            assert!((ours / papers - 1.0).abs() < 1e-14, "{}: {ours}, {papers}", preset.name);
        }
    }
}
