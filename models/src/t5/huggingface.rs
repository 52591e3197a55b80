//! T5 in Hugging Face's files: the settings of `config.json`, and which tensors a model has. Pure.
//!
//! Files have weights as `[d_output, d_input]`, and the projections of queries, keys and values, and of gate and up, by
//! themselves.

use serde_json::{Value, json};

use super::{T5Config, names};
use crate::huggingface::{Fields, HuggingFaceError, HuggingFaceFormat, Key, KeyTable, Parameter, SecondName};
use crate::layers::MlpActivation;

/// A bias that no version of the model has used.
const NO_PARAMETER: &str = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";
/// The activations of the MLP: the value of `feed_forward_proj`, and of `dense_act_fn`, which follows from it.
const ACTIVATIONS: [(&str, (MlpActivation, &str)); 3] = [
    ("relu", (MlpActivation::Relu, "relu")),
    ("gated-gelu", (MlpActivation::GeGlu, "gelu_new")),
    ("gated-gelu_new", (MlpActivation::GeGlu, "gelu_new")),
];

/// Differences of `MT5Config` of transformers.
const MT5_KEYS: &[Key] = &[
    Key::honoured("vocab_size", "250112", "61"),
    Key::honoured("d_ff", "1024", "36"),
    Key::honoured("num_layers", "8", "3"),
    Key::honoured("num_heads", "6", "3"),
    Key::honoured("feed_forward_proj", "gated-gelu", "relu"),
    Key::honoured("tie_word_embeddings", "false", "true"),
    Key::honoured("scale_decoder_outputs", "null", "true"),
    Key::checked("is_gated_act", "null", "false"),
];

/// `T5Config` of transformers.
const KEYS: &[Key] = &[
    Key::honoured("vocab_size", "32128", "61"),
    Key::honoured("d_model", "512", "24"),
    Key::honoured("d_kv", "64", "6"),
    Key::honoured("d_ff", "2048", "36"),
    Key::honoured("num_layers", "6", "3"),
    Key::honoured("num_decoder_layers", "null", "3"),
    Key::honoured("num_heads", "8", "4"),
    // Of older files: positions are relative.
    Key::honoured("n_positions", "512", "16"),
    Key::honoured("relative_attention_num_buckets", "32", "16"),
    Key::honoured("relative_attention_max_distance", "128", "20"),
    Key::honoured("dropout_rate", "0.1", "0.3"),
    Key::honoured("layer_norm_epsilon", "1e-6", "1e-3"),
    Key::honoured("feed_forward_proj", "relu", "gated-gelu"),
    Key::honoured("tie_word_embeddings", "true", "false"),
    Key::honoured("scale_decoder_outputs", "null", "false"),
    // They follow from feed_forward_proj, but what files say of them is what transformers computes.
    Key::checked("dense_act_fn", "null", "silu"),
    Key::checked("is_gated_act", "null", "true"),
    Key::alias("hidden_size", "d_model"),
    Key::alias("head_dim", "d_kv"),
    Key::alias("num_attention_heads", "num_heads"),
    Key::alias("num_hidden_layers", "num_layers").with(&[("num_decoder_layers", "3")]),
    Key::only("is_encoder_decoder", &["true"]),
    Key::only("tie_encoder_decoder", &["false"]),
    Key::idle("classifier_dropout", "0.0"),
    Key::idle("initializer_factor", "1.0"),
];

/// The one embedding of encoder and decoder, under another name.
const fn embedding(name: &'static str) -> SecondName {
    SecondName {
        name,
        key: T5Config::EMBEDDING,
        is_preferred: false,
    }
}

impl HuggingFaceFormat for T5Config {
    const MODEL_TYPES: &'static [&'static str] = &["t5", "mt5"];
    const EMBEDDING: &'static str = "shared.weight";
    const HEAD: &'static str = "lm_head.weight";
    const SECOND_NAMES: &'static [SecondName] = &[
        embedding("encoder.embed_tokens.weight"),
        embedding("decoder.embed_tokens.weight"),
    ];
    const KEYS: &'static [KeyTable] = &[
        KeyTable {
            model_types: &["mt5"],
            keys: MT5_KEYS,
        },
        KeyTable::of_all(KEYS),
    ];

    fn read_fields(_model_type: &str, fields: &mut Fields) -> Result<Self, HuggingFaceError> {
        let (activation, act_fn) = fields.choice("feed_forward_proj", &ACTIVATIONS)?;
        fields.agree("dense_act_fn", &act_fn.into(), "feed_forward_proj")?;
        fields.agree("is_gated_act", &activation.is_gated().into(), "feed_forward_proj")?;
        // transformers takes the other name of `num_layers` after the decoder has its default.
        let usual = fields.default_if_renamed("num_layers");
        let n_encoder_layers = fields.size("num_layers")?;
        let n_decoder_layers = fields.optional_size("num_decoder_layers")?;
        let n_decoder_layers = n_decoder_layers.or(usual).unwrap_or(n_encoder_layers);
        let length = fields.size("n_positions")?;
        let max_distance = fields.size("relative_attention_max_distance")?;
        let is_tied = fields.flag("tie_word_embeddings")?;
        let dropout = fields.number("dropout_rate", 0.0..1.0)?;
        let scales_head = if fields.has("scale_decoder_outputs") {
            fields.flag("scale_decoder_outputs")?
        } else {
            is_tied
        };
        let config = T5Config::new(
            n_encoder_layers,
            n_decoder_layers,
            fields.size("d_model")?,
            fields.size("num_heads")?,
            fields.size("d_kv")?,
            fields.size("d_ff")?,
            length,
            length,
            fields.size("vocab_size")?,
        );
        Ok(config
            .with_distance_buckets(fields.size("relative_attention_num_buckets")?)
            .with_max_distance(max_distance)
            .with_activation(activation)
            .with_tied_embeddings(is_tied)
            .with_scales_head(scales_head)
            .with_hidden_dropout(dropout)
            .with_attention_dropout(dropout)
            .with_norm_epsilon(fields.number("layer_norm_epsilon", f64::MIN_POSITIVE..1.0)?))
    }

    fn written_fields(&self, dtype: &str) -> Value {
        json!({
            "architectures": ["T5ForConditionalGeneration"],
            "d_ff": self.d_hidden,
            "d_kv": self.d_head,
            "d_model": self.d_model,
            "dropout_rate": self.hidden_dropout,
            "feed_forward_proj": if self.activation.is_gated() { "gated-gelu" } else { "relu" },
            "is_encoder_decoder": true,
            "layer_norm_epsilon": self.norm_epsilon,
            "model_type": "t5",
            "n_positions": self.max_seq_length,
            "num_decoder_layers": self.n_decoder_layers,
            "num_heads": self.n_heads,
            "num_layers": self.n_encoder_layers,
            "relative_attention_max_distance": self.max_distance,
            "relative_attention_num_buckets": self.distance_buckets,
            "scale_decoder_outputs": self.scales_head,
            "tie_word_embeddings": self.tied_embeddings,
            "torch_dtype": dtype,
            "vocab_size": self.vocab_size,
        })
    }

    fn parameters(&self) -> impl Iterator<Item = Parameter> {
        let d = self.d_model;
        let embedding = Parameter::same(Self::EMBEDDING, [self.vocab_size, d]);
        let encoder = (0..self.n_encoder_layers).flat_map(move |layer| {
            let block = names::encoder_block(layer);
            let attention = self.self_attention(&block);
            attention.into_iter().chain(self.mlp(&block, 1))
        });
        let decoder = (0..self.n_decoder_layers).flat_map(move |layer| {
            let block = names::decoder_block(layer);
            let attention = self.self_attention(&block);
            attention
                .into_iter()
                .chain(self.cross_attention(&block))
                .chain(self.mlp(&block, 2))
        });
        let bias = |name: &str| Parameter::same(format!("{name}.weight"), [self.distance_buckets, self.n_heads]);
        let norm = |name: &str| Parameter::same(format!("{name}.weight"), [d]);
        let head = (!self.tied_embeddings).then(|| self.head());
        [embedding, bias(names::ENCODER_BIAS)]
            .into_iter()
            .chain(encoder)
            .chain([norm(names::ENCODER_NORM), bias(names::DECODER_BIAS)])
            .chain(decoder)
            .chain([norm(names::DECODER_NORM)])
            .chain(head)
    }

    fn imported_name(tensor: &str) -> Option<&str> {
        (tensor != NO_PARAMETER).then_some(tensor)
    }

    fn untie(&mut self) {
        self.tied_embeddings = false;
    }
}

impl T5Config {
    fn self_attention(&self, block: &str) -> [Parameter; 3] {
        let (d, width) = (self.d_model, self.n_heads * self.d_head);
        let name = format!("{block}.layer.0.SelfAttention");
        [
            Parameter::same(format!("{block}.layer.0.layer_norm.weight"), [d]),
            parts(&name, "qkv", ["q", "k", "v"], [d, width]),
            Parameter::whole_weight(format!("{name}.o.weight"), &[width, d]),
        ]
    }

    fn cross_attention(&self, block: &str) -> [Parameter; 4] {
        let (d, width) = (self.d_model, self.n_heads * self.d_head);
        let name = format!("{block}.layer.1.EncDecAttention");
        [
            Parameter::same(format!("{block}.layer.1.layer_norm.weight"), [d]),
            Parameter::whole_weight(format!("{name}.q.weight"), &[d, 1, width]),
            parts(&name, "kv", ["k", "v"], [d, width]),
            Parameter::whole_weight(format!("{name}.o.weight"), &[width, d]),
        ]
    }

    fn mlp(&self, block: &str, number: usize) -> [Parameter; 3] {
        let (d, hidden) = (self.d_model, self.d_hidden);
        let name = format!("{block}.layer.{number}.DenseReluDense");
        let input = if self.activation.is_gated() {
            parts(&name, "wi", ["wi_0", "wi_1"], [d, hidden])
        } else {
            Parameter::whole_weight(format!("{name}.wi.weight"), &[d, 1, hidden])
        };
        [
            Parameter::same(format!("{block}.layer.{number}.layer_norm.weight"), [d]),
            input,
            Parameter::whole_weight(format!("{name}.wo.weight"), &[hidden, d]),
        ]
    }
}

/// Weights that are side by side here and have names of their own in files.
fn parts<const N: usize>(module: &str, name: &str, files: [&str; N], sizes: [usize; 2]) -> Parameter {
    let weight = |of: &str| format!("{module}.{of}.weight");
    Parameter::weights_side_by_side(weight(name), files.map(weight), sizes)
}

#[cfg(test)]
mod tests {
    use burn_megatron::context::ParallelContext;

    use super::*;
    use crate::family::Preset;
    use crate::huggingface::checks;

    /// The settings of the published google/t5-v1_1-small.
    fn t5_small() -> Value {
        json!({
            "architectures": ["T5ForConditionalGeneration"], "d_ff": 1024, "d_kv": 64, "d_model": 512,
            "decoder_start_token_id": 0, "dropout_rate": 0.1, "eos_token_id": 1, "feed_forward_proj": "gated-gelu",
            "initializer_factor": 1.0, "is_encoder_decoder": true, "layer_norm_epsilon": 1e-06, "model_type": "t5",
            "num_decoder_layers": 8, "num_heads": 6, "num_layers": 8, "output_past": true, "pad_token_id": 0,
            "relative_attention_num_buckets": 32, "tie_word_embeddings": false, "use_cache": true, "vocab_size": 32128
        })
    }

    #[test]
    fn published_settings_are_the_preset() {
        let preset = Preset::<T5Config>::named("t5-v1.1-small").expect("a preset").config();
        let published = T5Config {
            decoder_seq_length: 512,
            ..preset.with_hidden_dropout(0.1).with_attention_dropout(0.1)
        };
        assert_eq!(checks::parse(t5_small()), Ok(published));
    }

    #[test]
    fn settings_that_are_missing_are_those_of_the_class() {
        let layers = |fields: Value| {
            let config: T5Config = checks::parse(fields).expect("valid");
            (config.n_encoder_layers, config.n_decoder_layers)
        };
        assert_eq!(layers(json!({"model_type": "t5", "num_layers": 3})), (3, 3));
        assert_eq!(layers(json!({"model_type": "t5", "num_hidden_layers": 3})), (3, 6));
        assert_eq!(layers(json!({"model_type": "mt5", "num_hidden_layers": 3})), (3, 8));
        let head = |model_type: &str| {
            let config: T5Config = checks::parse(json!({"model_type": model_type})).expect("valid");
            (config.tied_embeddings, config.scales_head)
        };
        assert_eq!([head("t5"), head("mt5")], [(true, true), (false, false)]);
    }

    #[test]
    fn what_is_written_is_read_back() {
        let plain = T5Config::new(2, 3, 20, 4, 6, 34, 15, 15, 61);
        let odd = (plain.clone().with_distance_buckets(8).with_max_distance(20))
            .with_activation(MlpActivation::GeGlu)
            .with_tied_embeddings(false)
            .with_scales_head(false)
            .with_hidden_dropout(0.3)
            .with_attention_dropout(0.3);
        for config in [plain, odd] {
            checks::expect_read_back(config);
        }
    }

    #[test]
    fn what_the_model_does_not_have_is_refused_by_name_and_value() {
        let others = [
            ("feed_forward_proj", json!("gated-silu"), "\"relu\" or \"gated-gelu\""),
            ("dense_act_fn", json!("gelu"), "\"gelu_new\", as feed_forward_proj"),
            ("num_heads", json!(0), "from 1"),
        ];
        checks::expect_refused::<T5Config>(&t5_small(), &others);
    }

    #[test]
    fn parameters_are_those_that_the_model_declares_and_the_configuration_counts() {
        let config = T5Config::new(2, 3, 20, 4, 6, 34, 15, 15, 61);
        let gated = config
            .clone()
            .with_activation(MlpActivation::GeGlu)
            .with_tied_embeddings(false);
        for config in [config, gated] {
            let context = ParallelContext::single(1);
            let model = config.init(&burn::tensor::Device::flex(), &context).unwrap();
            checks::expect_declared(&config, &model, &context);
        }
    }
}
