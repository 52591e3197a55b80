//! GPT-NeoX as a [`ModelFamily`]: what training programs ask of its configuration.

use burn_megatron::autodiff::TrainingBackend;
use burn_megatron::context::ParallelContext;
use burn_megatron::pipeline_parallel::LayerLayout;
use burn_megatron::topology::{ParallelConfig, TopologyError, check_divides};
use cubecl_kernels::rotary::tables::{RotaryScaling, check};

use super::{NeoxConfig, NeoxPreset};
use crate::architecture::Architecture;
use crate::decoder::Decoder;
use crate::family::{InferenceProgram, InnerStage, ModelFamily, ModelSettings};
use crate::layers::{LayerRecompute, ModelError};
use crate::model_config::{ForwardFlops, ModelConfig, ParameterCounts};

impl ModelConfig for NeoxConfig {
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
        self.biased_sizes().validate(padded, parallel)?;
        let percent = self.rotary_percent;
        if !(percent > 0.0 && percent <= 1.0) {
            let what = format!("--rotary-percent must be above 0 and at most 1, got {percent}");
            return Err(TopologyError::Setting(what));
        }
        let (what, rotated) = ("the turned elements of a head (--rotary-percent)", self.rotated());
        if rotated == 0 {
            return Err(TopologyError::Zero { name: what });
        }
        check_divides(what, rotated, "a pair of elements", 2)?;
        let rotary = check(rotated, self.rotary_base, &RotaryScaling::None);
        rotary.map_err(|error| TopologyError::Setting(error.to_string()))
    }

    fn sizes(&self) -> Vec<(&'static str, String)> {
        let mut sizes = self.biased_sizes().shown();
        sizes.extend([
            ("--rotary-percent", self.rotary_percent.to_string()),
            ("--rotary-base", self.rotary_base.to_string()),
            ("a parallel residual", self.parallel_residual.to_string()),
            ("GELU by tanh", self.tanh_gelu.to_string()),
            ("tied embeddings", self.tied_embeddings.to_string()),
            ("the epsilon of norms", self.norm_epsilon.to_string()),
        ]);
        sizes
    }

    fn architecture(&self) -> Architecture {
        Architecture {
            positions: Some("rope"),
            rotary_percent: Some(self.rotary_percent),
            ..Architecture::with_biases()
        }
    }

    fn parameter_counts(&self) -> ParameterCounts {
        let d = self.d_model;
        ParameterCounts {
            layer: self.biased_sizes().layer_parameters(),
            first: self.vocab_size * d,
            last: 2 * d,
            head: self.vocab_size * d,
            is_tied: self.tied_embeddings,
        }
    }

    /// As of GPT, and one less outside of the tensor group where both sublayers read one stream.
    fn activations_per_element(&self, parallel: &ParallelConfig) -> f64 {
        let outside = if self.parallel_residual { 4.0 } else { 5.0 };
        let sizes = self.biased_sizes();
        sizes.activations_per_element(parallel, outside, self.activation())
    }

    fn unfused_per_element(&self, parallel: &ParallelConfig) -> f64 {
        self.biased_sizes().unfused_per_element(parallel, self.activation())
    }

    fn forward_flops(&self, seq_length: usize) -> ForwardFlops {
        self.biased_sizes().forward_flops(seq_length)
    }
}

impl ModelFamily for NeoxConfig {
    const NAME: &'static str = "neox";

    type Stage<B: TrainingBackend> = Decoder<B>;

    fn presets() -> Vec<&'static str> {
        NeoxPreset::ALL.iter().map(|preset| preset.name).collect()
    }

    fn choices() -> &'static [&'static str] {
        &["--ffn-hidden-size", "--rotary-base"]
    }

    fn from_settings(settings: &ModelSettings) -> Self {
        let base = match settings.preset.as_deref().and_then(NeoxPreset::named) {
            Some(preset) => preset.config(),
            None => NeoxConfig::new(4, 256, 4, 128, settings.vocab_size),
        };
        NeoxConfig {
            n_layers: settings.n_layers.unwrap_or(base.n_layers),
            d_model: settings.d_model.unwrap_or(base.d_model),
            n_heads: settings.n_heads.unwrap_or(base.n_heads),
            max_seq_length: settings.max_seq_length.unwrap_or(base.max_seq_length),
            vocab_size: settings.vocab_size,
            padded_vocab_size: settings.padded_vocab_size,
            d_hidden: settings.d_hidden.or(base.d_hidden),
            rotary_percent: settings.rotary_percent.unwrap_or(base.rotary_percent),
            rotary_base: settings.rotary_base.unwrap_or(base.rotary_base),
            norm_epsilon: settings.norm_epsilon.unwrap_or(base.norm_epsilon),
            tied_embeddings: settings.tied_embeddings.unwrap_or(base.tied_embeddings),
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
        NeoxConfig::init_stage(self, layers, device, context)
    }

    fn infer<B: TrainingBackend, P: InferenceProgram<B::InnerBackend>>(
        chunks: Vec<InnerStage<Self, B>>,
        program: P,
    ) -> Option<P::Output> {
        Some(program.run(chunks))
    }
}
