//! Llama as a [`ModelFamily`]: what training programs ask of its configuration.

use burn_megatron::autodiff::TrainingBackend;
use burn_megatron::context::ParallelContext;
use burn_megatron::pipeline_parallel::LayerLayout;
use burn_megatron::topology::{ParallelConfig, TopologyError, check_divides, key_head_copies};
use cubecl_kernels::rotary::tables::check;

use super::{LlamaConfig, LlamaPreset};
use crate::architecture::Architecture;
use crate::decoder::Decoder;
use crate::family::{InferenceProgram, InnerStage, ModelFamily, ModelSettings};
use crate::layers::{LayerRecompute, ModelError};
use crate::model_config::{ForwardFlops, ModelConfig, ParameterCounts};
use crate::vocabulary::check_padded_vocab;

impl ModelConfig for LlamaConfig {
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
        for (name, size) in [
            ("n_layers", self.n_layers),
            ("d_model", self.d_model),
            ("n_heads", self.n_heads),
            ("n_kv_heads", self.n_kv_heads),
            ("d_hidden", self.d_hidden),
            ("max_seq_length", self.max_seq_length),
            ("vocab_size", self.vocab_size),
            ("d_head", self.d_head.unwrap_or(1)),
            ("the window", self.window.unwrap_or(1)),
            ("logit_chunk_tokens", self.logit_chunk_tokens.unwrap_or(1)),
        ] {
            if size == 0 {
                return Err(TopologyError::Zero { name });
            }
        }
        if self.d_head.is_none() {
            check_divides("d_model", self.d_model, "n_heads", self.n_heads)?;
        }
        check_divides(
            "the size of a head (--kv-channels)",
            self.head_size(),
            "a pair of elements",
            2,
        )?;
        let rotary = check(self.head_size(), self.rotary_base, &self.rotary_scaling);
        rotary.map_err(|error| TopologyError::Setting(error.to_string()))?;
        if self.qk_norm && self.qkv_bias {
            let what = "queries and keys have either norms (--qk-layernorm), as Qwen3's, or a bias \
                        (--add-qkv-bias), as Qwen2's: got both";
            return Err(TopologyError::Setting(what.to_owned()));
        }
        check_divides("n_heads", self.n_heads, "n_kv_heads", self.n_kv_heads)?;
        self.key_head_copies(parallel)?;
        parallel.check_tensor_divides("the MLP's hidden size", self.d_hidden)?;
        let padded = self.padded_vocab(parallel.tensor_parallel_size);
        check_padded_vocab(self.vocab_size, padded, parallel)
    }

    fn sizes(&self) -> Vec<(&'static str, String)> {
        vec![
            ("--num-layers", self.n_layers.to_string()),
            ("--hidden-size", self.d_model.to_string()),
            ("--num-attention-heads", self.n_heads.to_string()),
            ("--num-query-groups", self.n_kv_heads.to_string()),
            ("--kv-channels", self.head_size().to_string()),
            ("--ffn-hidden-size", self.d_hidden.to_string()),
            ("--seq-length", self.max_seq_length.to_string()),
            ("--rotary-base", self.rotary_base.to_string()),
            (
                "the scaling of rotary frequencies",
                format!("{:?}", self.rotary_scaling),
            ),
            ("a bias of queries, keys and values", self.qkv_bias.to_string()),
            ("--qk-layernorm", self.qk_norm.to_string()),
            ("the keys of a window", format!("{:?}", self.window)),
            ("tied embeddings", self.tied_embeddings.to_string()),
            ("the epsilon of norms", self.norm_epsilon.to_string()),
        ]
    }

    fn architecture(&self) -> Architecture {
        Architecture {
            normalization: Some("RMSNorm"),
            positions: Some("rope"),
            rotary_percent: Some(1.0),
            swiglu: true,
            disable_bias_linear: true,
            qk_layernorm: self.qk_norm,
            // The token itself does not count.
            window_size: self.window.map(|window| window.saturating_sub(1)),
            group_query_attention: self.n_kv_heads < self.n_heads,
        }
    }

    fn parameter_counts(&self) -> ParameterCounts {
        let (d, head) = (self.d_model, self.head_size());
        let attention = d * self.qkv_width() + self.num_biases_and_norms() + self.n_heads * head * d;
        let mlp = 3 * d * self.d_hidden;
        ParameterCounts {
            layer: attention + mlp + 2 * d,
            first: self.vocab_size * d,
            last: d,
            head: self.vocab_size * d,
            is_tied: self.tied_embeddings,
        }
    }

    /// In numbers per element of the layer's input, by the tensors that are held: the inputs of both norms and of the
    /// projections after them, 4; cut over the tensor group queries, keys and values, as they are turned, queries and
    /// keys before their norms, the attention's output, and three times the MLP's hidden size. Keys and values that
    /// several ranks hold count for each.
    fn activations_per_element(&self, parallel: &ParallelConfig) -> f64 {
        let tensor = parallel.tensor_parallel_size as f64;
        let normed = if self.qk_norm {
            self.n_heads + self.n_kv_heads
        } else {
            0
        };
        let copies = self.key_head_copies(parallel).unwrap_or(1);
        let copied = 2 * (copies - 1) * self.n_kv_heads * self.head_size();
        let inside = copied + self.qkv_width() + (self.n_heads + normed) * self.head_size() + 3 * self.d_hidden;
        let inside = inside as f64 / self.d_model as f64;
        let outside = if parallel.sequence_parallel { 4.0 / tensor } else { 4.0 };
        outside + inside / tensor
    }

    /// Two per weight and token, and 4sh of all heads in `QKᵀ` and its matmul with V, with s at most the window; the
    /// head has 2hV.
    fn forward_flops(&self, seq_length: usize) -> ForwardFlops {
        let counts = self.parameter_counts();
        let weights = (counts.layer - 2 * self.d_model - self.num_biases_and_norms()) as f64;
        let (s, width) = (seq_length as f64, (self.n_heads * self.head_size()) as f64);
        let seen = self.window.map_or(s, |window| s.min(window as f64));
        ForwardFlops {
            layers: s * self.n_layers as f64 * (2.0 * weights + 4.0 * seen * width),
            head: s * 2.0 * counts.head as f64,
        }
    }
}

impl LlamaConfig {
    /// How many tensor-parallel ranks hold each key head.
    fn key_head_copies(&self, parallel: &ParallelConfig) -> Result<usize, TopologyError> {
        let tensor = parallel.tensor_parallel_size;
        key_head_copies("the number of key heads", self.n_kv_heads, self.n_heads, tensor)
    }

    /// Those of a layer's queries, keys and values.
    fn num_biases_and_norms(&self) -> usize {
        let biases = if self.qkv_bias { self.qkv_width() } else { 0 };
        let norms = if self.qk_norm { 2 * self.head_size() } else { 0 };
        biases + norms
    }
}

impl ModelFamily for LlamaConfig {
    const NAME: &'static str = "llama";

    type Stage<B: TrainingBackend> = Decoder<B>;

    fn presets() -> Vec<&'static str> {
        LlamaPreset::ALL.iter().map(|preset| preset.name).collect()
    }

    fn choices() -> &'static [&'static str] {
        &[
            "--num-query-groups",
            "--kv-channels",
            "--ffn-hidden-size",
            "--rotary-base",
            "--add-qkv-bias",
        ]
    }

    /// Without a preset a small model, with a key head for each two heads and an MLP of 8/3 the size of a token,
    /// rounded up to a multiple of 64.
    fn from_settings(settings: &ModelSettings) -> Self {
        let base = match settings.preset.as_deref().and_then(LlamaPreset::named) {
            Some(preset) => preset.config(),
            None => {
                let d_model = settings.d_model.unwrap_or(256);
                let n_heads = settings.n_heads.unwrap_or(4);
                let n_kv_heads = if n_heads.is_multiple_of(2) {
                    n_heads / 2
                } else {
                    n_heads
                };
                let d_hidden = (8 * d_model).div_ceil(3).next_multiple_of(64);
                LlamaConfig::new(4, d_model, n_heads, n_kv_heads, d_hidden, 128, settings.vocab_size)
            }
        };
        LlamaConfig {
            n_layers: settings.n_layers.unwrap_or(base.n_layers),
            d_model: settings.d_model.unwrap_or(base.d_model),
            n_heads: settings.n_heads.unwrap_or(base.n_heads),
            n_kv_heads: settings.n_kv_heads.unwrap_or(base.n_kv_heads),
            d_hidden: settings.d_hidden.unwrap_or(base.d_hidden),
            d_head: settings.d_head.or(base.d_head),
            rotary_base: settings.rotary_base.unwrap_or(base.rotary_base),
            norm_epsilon: settings.norm_epsilon.unwrap_or(base.norm_epsilon),
            qkv_bias: settings.qkv_bias || base.qkv_bias,
            qk_norm: settings.qk_norm || base.qk_norm,
            window: settings.window.or(base.window),
            max_seq_length: settings.max_seq_length.unwrap_or(base.max_seq_length),
            vocab_size: settings.vocab_size,
            padded_vocab_size: settings.padded_vocab_size,
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
        LlamaConfig::init_stage(self, layers, device, context)
    }

    fn infer<B: TrainingBackend, P: InferenceProgram<B::InnerBackend>>(
        chunks: Vec<InnerStage<Self, B>>,
        program: P,
    ) -> Option<P::Output> {
        Some(program.run(chunks))
    }
}
