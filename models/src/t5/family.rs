//! T5 as a [`ModelFamily`]: what training programs ask of its configuration.

use burn::tensor::Device;
use burn_megatron::context::ParallelContext;
use burn_megatron::pipeline_parallel::LayerLayout;
use burn_megatron::topology::{ParallelConfig, TopologyError, check_divides};

use super::presets::PRESETS;
use super::{T5, T5Config};
use crate::architecture::Architecture;
use crate::decoder::Decoder;
use crate::family::{InferenceStage, ModelFamily, ModelSettings, Preset};
use crate::layers::{LayerRecompute, ModelError};
use crate::model_config::{ForwardFlops, ModelConfig, Objective, ParameterCounts};
use crate::vocabulary::check_padded_vocab;

impl ModelConfig for T5Config {
    fn family_name(&self) -> &'static str {
        Self::NAME
    }

    /// The encoder's and the decoder's.
    fn n_layers(&self) -> usize {
        self.num_blocks()
    }

    fn max_seq_length(&self) -> usize {
        self.max_seq_length
    }

    fn limits_length(&self) -> bool {
        false
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
        Objective::Spans {
            decoder_seq_length: self.decoder_seq_length,
        }
    }

    fn layer_recompute(&self) -> LayerRecompute {
        self.layer_recompute
    }

    fn validate(&self, parallel: &ParallelConfig) -> Result<(), TopologyError> {
        for (name, size) in [
            ("n_encoder_layers", self.n_encoder_layers),
            ("n_decoder_layers", self.n_decoder_layers),
            ("d_model", self.d_model),
            ("n_heads", self.n_heads),
            ("d_head", self.d_head),
            ("d_hidden", self.d_hidden),
            ("distance_buckets", self.distance_buckets),
            ("max_seq_length", self.max_seq_length),
            ("decoder_seq_length", self.decoder_seq_length),
            ("vocab_size", self.vocab_size),
            ("logit_chunk_tokens", self.logit_chunk_tokens.unwrap_or(1)),
        ] {
            if size == 0 {
                return Err(TopologyError::Zero { name });
            }
        }
        // Each direction has half of them, of which half have one distance each.
        check_divides(
            "the number of buckets of distances",
            self.distance_buckets,
            "the number of their parts",
            4,
        )?;
        if self.max_distance <= self.distance_buckets / 2 {
            return Err(TopologyError::TooSmall {
                name: "the distance of the last bucket",
                minimum: self.distance_buckets / 2 + 1,
                value: self.max_distance,
            });
        }
        parallel.check_tensor_divides("the number of attention heads", self.n_heads)?;
        parallel.check_tensor_divides("the MLP's hidden size", self.d_hidden)?;
        if parallel.sequence_parallel {
            parallel.check_tensor_divides("the decoder's length (--decoder-seq-length)", self.decoder_seq_length)?;
        }
        let padded = self.padded_vocab(parallel.tensor_parallel_size);
        check_padded_vocab(self.vocab_size, padded, parallel)
    }

    fn sizes(&self) -> Vec<(&'static str, String)> {
        vec![
            ("--encoder-num-layers", self.n_encoder_layers.to_string()),
            ("--decoder-num-layers", self.n_decoder_layers.to_string()),
            ("--hidden-size", self.d_model.to_string()),
            ("--num-attention-heads", self.n_heads.to_string()),
            ("--kv-channels", self.d_head.to_string()),
            ("--ffn-hidden-size", self.d_hidden.to_string()),
            ("the buckets of distances", self.distance_buckets.to_string()),
            ("the distance of the last bucket", self.max_distance.to_string()),
            ("the MLP's activation", self.activation.name().to_owned()),
            (
                "--untie-embeddings-and-output-weights",
                (!self.tied_embeddings).to_string(),
            ),
            ("a head of divided hidden states", self.scales_head.to_string()),
            ("--norm-epsilon", self.norm_epsilon.to_string()),
        ]
    }

    fn architecture(&self) -> Architecture {
        Architecture {
            normalization: Some("RMSNorm"),
            disable_bias_linear: true,
            ..Architecture::default()
        }
    }

    /// A layer has the mean number of both halves' layers: the decoder's have one more attention and norm. What is left
    /// over is among those before the first layer.
    fn parameter_counts(&self) -> ParameterCounts {
        let (d, width) = (self.d_model, self.n_heads * self.d_head);
        let mlp = (self.activation.num_inputs() + 1) * d * self.d_hidden;
        let encoder_layer = 4 * d * width + mlp + 2 * d;
        let decoder_layer = 8 * d * width + mlp + 3 * d;
        let all = self.n_encoder_layers * encoder_layer + self.n_decoder_layers * decoder_layer;
        let layer = all / self.num_blocks();
        let rest = all - layer * self.num_blocks();
        let biases = 2 * self.distance_buckets * self.n_heads;
        ParameterCounts {
            layer,
            first: self.vocab_size * d + biases + rest,
            last: 2 * d,
            head: self.vocab_size * d,
            is_tied: self.tied_embeddings,
        }
    }

    /// In numbers per element of the layer's input, by the tensors that are held, of a layer of the decoder: the inputs
    /// of its norms and of the projections after them, 6; cut over the tensor group what both attentions hold, four
    /// times the heads' width each, and the MLP's hidden layer, twice, or three times where it is gated.
    fn activations_per_element(&self, parallel: &ParallelConfig) -> f64 {
        let tensor = parallel.tensor_parallel_size as f64;
        let hidden = (self.activation.num_inputs() + 1) * self.d_hidden;
        let inside = (2 * 4 * self.n_heads * self.d_head + hidden) as f64 / self.d_model as f64;
        let outside = if parallel.sequence_parallel { 6.0 / tensor } else { 6.0 };
        outside + inside / tensor
    }

    fn unfused_per_element(&self, parallel: &ParallelConfig) -> f64 {
        let hidden = self.activation.num_inputs() * self.d_hidden;
        hidden as f64 / self.d_model as f64 / parallel.tensor_parallel_size as f64
    }

    /// Two per weight and token of the half that it is in, keys and values of the encoder's output among the encoder's;
    /// and 4 times queries times keys of all heads in each attention's products. The head has 2hV for each token of the
    /// decoder.
    fn forward_flops(&self, seq_length: usize) -> ForwardFlops {
        let [d, width, s, t, encoder, decoder] = [
            self.d_model,
            self.n_heads * self.d_head,
            seq_length,
            self.decoder_seq_length,
            self.n_encoder_layers,
            self.n_decoder_layers,
        ]
        .map(|size| size as f64);
        let mlp = (self.activation.num_inputs() + 1) as f64 * d * self.d_hidden as f64;
        let of_encoder = s * 2.0 * (4.0 * d * width + mlp) + 4.0 * s * s * width;
        let of_decoder = t * 2.0 * (6.0 * d * width + mlp) + s * 2.0 * 2.0 * d * width + 4.0 * (t * t + t * s) * width;
        ForwardFlops {
            layers: encoder * of_encoder + decoder * of_decoder,
            head: t * 2.0 * d * self.vocab_size as f64,
        }
    }
}

impl ModelFamily for T5Config {
    const NAME: &'static str = "t5";
    const PRESETS: &'static [Preset<Self>] = PRESETS;
    const CHOICES: &'static [&'static str] = &[
        "--kv-channels",
        "--ffn-hidden-size",
        "--decoder-num-layers",
        "--decoder-seq-length",
    ];

    type Stage = T5;

    /// Layers that are asked for are the encoder's and, unless these are asked for, the decoder's.
    fn base(settings: &ModelSettings) -> Self {
        let base = match settings.preset.as_deref().and_then(Preset::<Self>::named) {
            Some(preset) => preset.config(),
            None => {
                let d_model = settings.d_model.unwrap_or(256);
                let n_heads = settings.n_heads.unwrap_or(4);
                let d_head = (d_model / n_heads.max(1)).max(1);
                T5Config::new(
                    2,
                    2,
                    d_model,
                    n_heads,
                    d_head,
                    4 * d_model,
                    128,
                    128,
                    settings.vocab_size,
                )
            }
        };
        T5Config {
            n_decoder_layers: settings.n_layers.unwrap_or(base.n_decoder_layers),
            ..base
        }
    }

    fn with_settings(self, settings: &ModelSettings) -> Self {
        T5Config {
            n_encoder_layers: settings.n_layers.unwrap_or(self.n_encoder_layers),
            n_decoder_layers: settings.n_decoder_layers.unwrap_or(self.n_decoder_layers),
            d_model: settings.d_model.unwrap_or(self.d_model),
            n_heads: settings.n_heads.unwrap_or(self.n_heads),
            d_head: settings.d_head.unwrap_or(self.d_head),
            d_hidden: settings.d_hidden.unwrap_or(self.d_hidden),
            max_seq_length: settings.max_seq_length.unwrap_or(self.max_seq_length),
            decoder_seq_length: settings.decoder_seq_length.unwrap_or(self.decoder_seq_length),
            vocab_size: settings.vocab_size,
            padded_vocab_size: settings.padded_vocab_size,
            norm_epsilon: settings.norm_epsilon.unwrap_or(self.norm_epsilon),
            tied_embeddings: settings.tied_embeddings.unwrap_or(self.tied_embeddings),
            scales_head: self.scales_head && settings.tied_embeddings.unwrap_or(true),
            hidden_dropout: settings.hidden_dropout.unwrap_or(self.hidden_dropout),
            attention_dropout: settings.attention_dropout.unwrap_or(self.attention_dropout),
            init_deviation: settings.init_deviation.unwrap_or(self.init_deviation),
            layer_recompute: settings.layer_recompute,
            logit_chunk_tokens: settings.logit_chunk_tokens,
            ..self
        }
    }

    fn with_usual_padding(self) -> Self {
        self.with_padded_vocab_size(None)
    }

    fn init_stage(
        &self,
        layers: &LayerLayout,
        device: &Device,
        context: &ParallelContext,
    ) -> Result<Vec<T5>, ModelError> {
        T5Config::init_stage(self, layers, device, context)
    }

    fn predicting(_chunks: Vec<Self::Stage>) -> Option<Vec<impl InferenceStage + 'static>> {
        None::<Vec<Decoder>>
    }
}
