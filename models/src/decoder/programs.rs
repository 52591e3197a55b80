//! Programs' view of a model, and its form in Hugging Face's files, for every [`DecoderFamily`] at once.

use burn::tensor::Device;
use burn_megatron::context::ParallelContext;
use burn_megatron::pipeline_parallel::LayerLayout;
use burn_megatron::topology::{ParallelConfig, TopologyError, check_divides, key_head_copies};
use serde_json::Value;

use super::config::{DecoderConfig, MaskedTokenConfig, Positions};
use super::family::DecoderFamily;
use super::files::stored_parameters;
use super::model::Decoder;
use super::settings::CommonSettings;
use super::sizes::{activations_per_element, layer_flops_per_token, layer_weights_and_parameters, unfused_per_element};
use crate::architecture::Architecture;
use crate::family::{InferenceStage, ModelFamily, ModelSettings, Preset};
use crate::huggingface::{Fields, HuggingFaceError, HuggingFaceFormat, KeyTable, Parameter, SecondName};
use crate::layers::{BlockConfig, LayerRecompute, MlpActivation, ModelError, NormType};
use crate::model_config::{ForwardFlops, ModelConfig, Objective, ParameterCounts};
use crate::vocabulary::check_padded_vocab;

impl<C: DecoderFamily> ModelConfig for C {
    fn family_name(&self) -> &'static str {
        C::TABLE.name
    }

    fn n_layers(&self) -> usize {
        self.common().n_layers
    }

    fn max_seq_length(&self) -> usize {
        self.common().max_seq_length
    }

    fn limits_length(&self) -> bool {
        self.positions() != Positions::Alibi
    }

    fn vocab_size(&self) -> usize {
        self.common().vocab_size
    }

    fn d_model(&self) -> usize {
        self.common().d_model
    }

    fn n_heads(&self) -> usize {
        self.common().n_heads
    }

    fn objective(&self) -> Objective {
        match self.masked() {
            Some(MaskedTokenConfig { tells_pairs, .. }) => Objective::MaskedTokens { tells_pairs },
            None => Objective::NextToken,
        }
    }

    fn layer_recompute(&self) -> LayerRecompute {
        self.common().layer_recompute
    }

    fn validate(&self, parallel: &ParallelConfig) -> Result<(), TopologyError> {
        let (common, BlockConfig { attention, mlp, .. }) = (self.common(), self.parts(1).block);
        for (name, size) in [
            ("n_layers", common.n_layers),
            ("d_model", common.d_model),
            ("n_heads", common.n_heads),
            ("n_kv_heads", attention.n_kv_heads.unwrap_or(1)),
            ("d_hidden", mlp.d_hidden),
            ("max_seq_length", common.max_seq_length),
            ("vocab_size", common.vocab_size),
            ("d_head", attention.d_head.unwrap_or(1)),
            ("the window", attention.window.unwrap_or(1)),
            ("logit_chunk_tokens", common.logit_chunk_tokens.unwrap_or(1)),
        ] {
            if size == 0 {
                return Err(TopologyError::Zero { name });
            }
        }
        if attention.d_head.is_none() {
            check_divides("d_model", common.d_model, "n_heads", common.n_heads)?;
        }
        self.check()?;
        match attention.n_kv_heads {
            Some(key_heads) => {
                check_divides("n_heads", common.n_heads, "n_kv_heads", key_heads)?;
                let tensor = parallel.tensor_parallel_size;
                key_head_copies("the number of key heads", key_heads, common.n_heads, tensor)?;
            }
            None => parallel.check_tensor_divides("the number of attention heads", common.n_heads)?,
        }
        parallel.check_tensor_divides("the MLP's hidden size", mlp.d_hidden)?;
        let padded = common.padded_vocab(parallel.tensor_parallel_size);
        check_padded_vocab(common.vocab_size, padded, parallel)
    }

    fn sizes(&self) -> Vec<(&'static str, String)> {
        let common = self.common();
        let mut sizes = vec![
            ("--num-layers", common.n_layers.to_string()),
            ("--hidden-size", common.d_model.to_string()),
            ("--num-attention-heads", common.n_heads.to_string()),
        ];
        if let Positions::Learned(count) = self.positions() {
            sizes.push(("--max-position-embeddings", count.to_string()));
        }
        sizes.extend(self.own_sizes());
        let is_untied = !common.tied_embeddings;
        sizes.extend([
            ("--untie-embeddings-and-output-weights", is_untied.to_string()),
            ("--norm-epsilon", common.norm_epsilon.to_string()),
        ]);
        sizes
    }

    fn architecture(&self) -> Architecture {
        let DecoderConfig { positions, block, .. } = self.parts(1);
        let BlockConfig {
            attention, mlp, norm, ..
        } = block;
        Architecture {
            normalization: Some(match norm {
                NormType::LayerNorm => "LayerNorm",
                NormType::RmsNorm => "RMSNorm",
            }),
            positions: Some(match positions {
                Positions::Learned(_) => "learned_absolute",
                Positions::Alibi => "alibi",
                Positions::Rotary(_) => "rope",
            }),
            rotary_percent: matches!(positions, Positions::Rotary(_)).then(|| self.rotary_percent()),
            swiglu: mlp.activation == MlpActivation::SwiGlu,
            disable_bias_linear: !mlp.bias,
            qk_layernorm: attention.qk_norm_epsilon.is_some(),
            // The token itself does not count.
            window_size: attention.window.map(|window| window.saturating_sub(1)),
            group_query_attention: attention.n_kv_heads.is_some_and(|heads| heads < attention.n_heads),
        }
    }

    fn parameter_counts(&self) -> ParameterCounts {
        let decoder = self.parts(1);
        let (d, vocab_size, names) = (decoder.d_model(), decoder.vocab_size, decoder.names);
        let [_, layer] = layer_weights_and_parameters(&decoder.block);
        let norm = decoder.block.norm.num_parameters(d);
        let positions = match decoder.positions {
            Positions::Learned(count) => count,
            Positions::Alibi | Positions::Rotary(_) => 0,
        };
        let (types, before_head) = decoder.masked.map_or((0, 0), |masked| {
            // The layer before the head with its norm, the head's bias, pooler and classifier of pairs.
            let transform = d * d + d + norm + vocab_size;
            let pairs = if masked.tells_pairs { d * d + d + 2 * d + 2 } else { 0 };
            (masked.token_types, transform + pairs)
        });
        ParameterCounts {
            layer,
            first: (vocab_size + positions + types) * d + names.embedding_norm.map_or(0, |_| norm),
            last: names.norm.map_or(0, |_| norm) + before_head,
            head: vocab_size * d,
            is_tied: decoder.tied_embeddings,
        }
    }

    fn activations_per_element(&self, parallel: &ParallelConfig) -> f64 {
        activations_per_element(&self.parts(1).block, parallel)
    }

    fn unfused_per_element(&self, parallel: &ParallelConfig) -> f64 {
        unfused_per_element(&self.parts(1).block, parallel)
    }

    /// The head has 2hV per token, and 2h² in the layer before that of a model of masked tokens.
    fn forward_flops(&self, seq_length: usize) -> ForwardFlops {
        let common = self.common();
        let [layers, d, vocab, s] =
            [common.n_layers, common.d_model, common.vocab_size, seq_length].map(|size| size as f64);
        let before_head = self.masked().map_or(0.0, |_| s * 2.0 * d * d);
        ForwardFlops {
            layers: s * layers * layer_flops_per_token(&self.parts(1).block, seq_length),
            head: s * 2.0 * d * vocab + before_head,
        }
    }
}

impl<C: DecoderFamily> ModelFamily for C {
    const NAME: &'static str = C::TABLE.name;
    const PRESETS: &'static [Preset<Self>] = <C as DecoderFamily>::PRESETS;
    const CHOICES: &'static [&'static str] = C::TABLE.choices;

    type Stage = Decoder;

    fn base(settings: &ModelSettings) -> Self {
        match settings.preset.as_deref().and_then(Preset::<C>::named) {
            Some(preset) => preset.config(),
            None => {
                let small = CommonSettings::new(4, 256, 4, 128, settings.vocab_size)
                    .with_tied_embeddings(C::TIED_EMBEDDINGS)
                    .with_norm_epsilon(C::NORM_EPSILON);
                C::of(small.with(settings))
            }
        }
    }

    fn with_settings(self, settings: &ModelSettings) -> Self {
        let common = self.common().with(settings);
        self.with_choices(settings).with_common(common)
    }

    fn with_usual_padding(self) -> Self {
        let common = self.common().with_padded_vocab_size(None);
        self.with_common(common)
    }

    fn init_stage(
        &self,
        layers: &LayerLayout,
        device: &Device,
        context: &ParallelContext,
    ) -> Result<Vec<Decoder>, ModelError> {
        self.decoder(context)?.init_stage(layers, device, context)
    }

    fn predicting(chunks: Vec<Self::Stage>) -> Option<Vec<impl InferenceStage + 'static>> {
        C::PREDICTS_NEXT.then_some(chunks)
    }
}

impl<C: DecoderFamily> HuggingFaceFormat for C {
    const MODEL_TYPES: &'static [&'static str] = C::TABLE.files.model_types;
    const EMBEDDING: &'static str = C::TABLE.files.embedding;
    const HEAD: &'static str = C::TABLE.files.head;
    const OLDER_ENDS: &'static [(&'static str, &'static str)] = C::TABLE.files.older_ends;
    const SECOND_NAMES: &'static [SecondName] = C::TABLE.files.second_names;
    const KEYS: &'static [KeyTable] = C::TABLE.files.settings;

    fn read_fields(model_type: &str, fields: &mut Fields) -> Result<Self, HuggingFaceError> {
        C::read(model_type, fields)
    }

    fn written_fields(&self, dtype: &str) -> Value {
        let mut fields = C::TABLE.files.write(&self.common(), dtype);
        if let Value::Object(own) = self.written() {
            for (field, value) in own {
                fields[field] = value;
            }
        }
        fields
    }

    fn parameters(&self) -> impl Iterator<Item = Parameter> {
        stored_parameters(self.parts(1), C::TABLE.files)
    }

    fn imported_name(tensor: &str) -> Option<&str> {
        C::key(tensor.strip_prefix(C::TABLE.files.prefix).unwrap_or(tensor))
    }

    fn untie(&mut self) {
        let common = self.common().with_tied_embeddings(false);
        *self = self.clone().with_common(common);
    }

    fn see_tensors(&mut self, has: &dyn Fn(&str) -> bool) {
        self.see(has);
    }
}
