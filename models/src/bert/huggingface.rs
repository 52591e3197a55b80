//! BERT in Hugging Face's files, as `bert` and as `megatron-bert`: the settings of `config.json`, and which tensors a
//! model has. Pure.
//!
//! Files have weights as `[d_output, d_input]`, and the projections of queries, keys and values by themselves.

use serde_json::{Value, json};

use super::{BertConfig, NormOrder};
use crate::huggingface::{Fields, HuggingFaceError, HuggingFaceFormat, Parameter};
use crate::layers::MlpActivation;

const PREFIX: &str = "bert.";
/// Buffers, and a second name of `cls.predictions.bias`.
const NO_PARAMETERS: [&str; 3] = [
    "embeddings.position_ids",
    "embeddings.token_type_ids",
    "cls.predictions.decoder.bias",
];

impl HuggingFaceFormat for BertConfig {
    const MODEL_TYPES: &'static [&'static str] = &["bert", "megatron-bert"];
    const EMBEDDING: &'static str = "embeddings.word_embeddings.weight";
    const HEAD: &'static str = "cls.predictions.decoder.weight";
    /// Of files that were converted from TensorFlow.
    const OLDER_ENDS: &'static [(&'static str, &'static str)] = &[
        ("LayerNorm.gamma", "LayerNorm.weight"),
        ("LayerNorm.beta", "LayerNorm.bias"),
    ];

    /// A model `…ForMaskedLM` tells no pairs apart, unless its [tensors](Self::see_tensors) do.
    fn read_fields(model_type: &str, fields: &mut Fields) -> Result<Self, HuggingFaceError> {
        fields.ignore(&["classifier_dropout", "directionality"]);
        fields.ignore(&["pooler_fc_size", "pooler_num_attention_heads", "pooler_num_fc_layers"]);
        fields.ignore(&["pooler_size_per_head", "pooler_type"]);
        fields.expect("position_embedding_type", &["absolute".into()])?;
        fields.expect("is_encoder_decoder", &[false.into()])?;
        fields.expect("add_cross_attention", &[false.into()])?;
        let activations = [
            ("gelu", MlpActivation::GeluErf),
            ("gelu_new", MlpActivation::Gelu),
            ("gelu_pytorch_tanh", MlpActivation::Gelu),
        ];
        let name = fields.name("hidden_act", "gelu");
        let Some((_, activation)) = activations.into_iter().find(|(known, _)| *name == **known) else {
            return Err(fields.refuse("hidden_act", &name.into(), "gelu, gelu_new or gelu_pytorch_tanh"));
        };
        let order = match model_type {
            "bert" => NormOrder::After,
            _ => NormOrder::Before,
        };
        let tells_pairs = !fields.architectures().iter().any(|name| name.ends_with("ForMaskedLM"));
        let d_model = fields.size("hidden_size")?;
        Ok(BertConfig::new(
            fields.size("num_hidden_layers")?,
            d_model,
            fields.size("num_attention_heads")?,
            fields.size("max_position_embeddings")?,
            fields.size("vocab_size")?,
        )
        .with_d_hidden(fields.size_unless("intermediate_size", 4 * d_model)?)
        .with_token_types(fields.size("type_vocab_size")?)
        .with_order(order)
        .with_activation(activation)
        .with_tells_pairs(tells_pairs)
        .with_hidden_dropout(fields.number("hidden_dropout_prob", 0.1, 0.0..1.0)?)
        .with_attention_dropout(fields.number("attention_probs_dropout_prob", 0.1, 0.0..1.0)?)
        .with_norm_epsilon(fields.number("layer_norm_eps", 1e-12, f64::MIN_POSITIVE..1.0)?)
        .with_init_deviation(fields.number("initializer_range", 0.02, 0.0..f64::MAX)?)
        .with_tied_embeddings(fields.flag("tie_word_embeddings", true)?))
    }

    fn written_fields(&self, dtype: &str) -> Value {
        let (model_type, class) = match self.order {
            NormOrder::After => ("bert", "Bert"),
            NormOrder::Before => ("megatron-bert", "MegatronBert"),
        };
        let task = if self.tells_pairs {
            "ForPreTraining"
        } else {
            "ForMaskedLM"
        };
        json!({
            "architectures": [format!("{class}{task}")],
            "attention_probs_dropout_prob": self.attention_dropout,
            "hidden_act": match self.activation {
                MlpActivation::Gelu => "gelu_new",
                _ => "gelu",
            },
            "hidden_dropout_prob": self.hidden_dropout,
            "hidden_size": self.d_model,
            "initializer_range": self.init_deviation,
            "intermediate_size": self.hidden_size(),
            "layer_norm_eps": self.norm_epsilon,
            "max_position_embeddings": self.max_seq_length,
            "model_type": model_type,
            "num_attention_heads": self.n_heads,
            "num_hidden_layers": self.n_layers,
            "tie_word_embeddings": self.tied_embeddings,
            "torch_dtype": dtype,
            "type_vocab_size": self.token_types,
            "vocab_size": self.vocab_size,
        })
    }

    fn parameters(&self) -> impl Iterator<Item = Parameter> {
        let (d, hidden, is_post_norm) = (self.d_model, self.hidden_size(), self.order == NormOrder::After);
        let embeddings = [
            Parameter::same(Self::EMBEDDING, [self.vocab_size, d]),
            Parameter::same("embeddings.position_embeddings.weight", [self.max_seq_length, d]),
            Parameter::same("embeddings.token_type_embeddings.weight", [self.token_types, d]),
        ];
        let embedding_norm = is_post_norm.then(|| Parameter::layer_norm("embeddings.LayerNorm", d));
        let layers = (0..self.n_layers).flat_map(move |layer| {
            let name = |part: &str| format!("encoder.layer.{layer}.{part}");
            let [attention_norm, mlp_norm] = if is_post_norm {
                ["attention.output.LayerNorm", "output.LayerNorm"]
            } else {
                ["attention.ln", "ln"]
            };
            let qkv = |kind: &str| {
                let part = |of: &str| name(&format!("attention.self.{of}.{kind}"));
                (part("qkv"), ["query", "key", "value"].map(part))
            };
            let ((weight, weights), (bias, biases)) = (qkv("weight"), qkv("bias"));
            let biases = biases.into_iter().enumerate();
            let biases = biases.map(|(number, file)| (file, 0, number..number + 1));
            let projections = [
                Parameter::weights_side_by_side(weight, weights, [d, d]),
                Parameter::linear_bias(bias, [3, d], &[3, d], biases),
            ];
            // Files have the MLP's layers in the block, next to the attention.
            let of_mlp = |part: &str, shape: &[usize]| {
                Parameter::linear(&name(part), shape).map(|parameter| {
                    let inside = parameter.name.replacen(&name(""), &name("mlp."), 1);
                    parameter.renamed(inside)
                })
            };
            [
                Parameter::layer_norm(&name(attention_norm), d),
                projections,
                Parameter::linear(&name("attention.output.dense"), &[d, d]),
                Parameter::layer_norm(&name(mlp_norm), d),
                of_mlp("intermediate.dense", &[d, 1, hidden]),
                of_mlp("output.dense", &[hidden, d]),
            ]
            .into_iter()
            .flatten()
        });
        let final_norm = (!is_post_norm).then(|| Parameter::layer_norm("encoder.ln", d));
        let pooler = self.tells_pairs.then(|| Parameter::linear("pooler.dense", &[d, d]));
        let of_model = embeddings
            .into_iter()
            .chain(embedding_norm.into_iter().flatten())
            .chain(layers)
            .chain(final_norm.into_iter().flatten())
            .chain(pooler.into_iter().flatten());
        let pairs = (self.tells_pairs).then(|| Parameter::linear("cls.seq_relationship", &[d, 2]));
        let head = (!self.tied_embeddings).then(|| self.head());
        let of_heads = [Parameter::same("cls.predictions.bias", [self.vocab_size])]
            .into_iter()
            .chain(Parameter::linear("cls.predictions.transform.dense", &[d, d]))
            .chain(Parameter::layer_norm("cls.predictions.transform.LayerNorm", d))
            .chain(head)
            .chain(pairs.into_iter().flatten());
        of_model
            .map(|parameter| parameter.with_file_prefix(PREFIX))
            .chain(of_heads)
    }

    fn imported_name(tensor: &str) -> Option<&str> {
        let name = tensor.strip_prefix(PREFIX).unwrap_or(tensor);
        (!NO_PARAMETERS.contains(&name)).then_some(name)
    }

    fn untie(&mut self) {
        self.tied_embeddings = false;
    }

    /// Files that say they are of a model `…ForMaskedLM` may have what tells pairs apart, as published ones have.
    fn see_tensors(&mut self, has: &dyn Fn(&str) -> bool) {
        self.tells_pairs |= has("cls.seq_relationship.weight");
    }
}

#[cfg(test)]
mod tests {
    use burn_flex::{Flex, FlexDevice};
    use burn_megatron::context::ParallelContext;

    use super::*;
    use crate::huggingface::checks;
    use crate::model_config::ModelConfig;

    fn parse(value: Value) -> Result<BertConfig, String> {
        checks::parse(value)
    }

    /// The settings of the published bert-base-uncased.
    fn bert_base() -> Value {
        json!({
            "architectures": ["BertForMaskedLM"], "attention_probs_dropout_prob": 0.1, "gradient_checkpointing": false,
            "hidden_act": "gelu", "hidden_dropout_prob": 0.1, "hidden_size": 768, "initializer_range": 0.02,
            "intermediate_size": 3072, "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "model_type": "bert",
            "num_attention_heads": 12, "num_hidden_layers": 12, "pad_token_id": 0,
            "position_embedding_type": "absolute", "transformers_version": "4.6.0.dev0", "type_vocab_size": 2,
            "use_cache": true, "vocab_size": 30522
        })
    }

    #[test]
    fn published_settings_are_the_preset() {
        let preset = super::super::BertPreset::named("bert-base").expect("a preset").config();
        let dropped = preset.with_hidden_dropout(0.1).with_attention_dropout(0.1);
        assert_eq!(parse(bert_base()), Ok(dropped.with_tells_pairs(false)));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let plain = BertConfig::new(3, 20, 4, 15, 61);
        let odd = (plain.clone().with_d_hidden(Some(36)).with_tied_embeddings(false))
            .with_order(NormOrder::After)
            .with_activation(MlpActivation::Gelu)
            .with_tells_pairs(false)
            .with_token_types(3)
            .with_hidden_dropout(0.3);
        for config in [plain, odd] {
            assert_eq!(parse(config.written_fields("float32")), Ok(config));
        }
    }

    #[test]
    fn what_the_model_does_not_have_is_refused_by_name_and_value() {
        for (field, value, words) in [
            ("hidden_act", json!("relu"), "gelu_new"),
            ("position_embedding_type", json!("relative_key"), "\"absolute\""),
            ("is_encoder_decoder", json!(true), "false"),
            ("model_type", json!("roberta"), "\"bert\" or \"megatron-bert\""),
            ("type_vocab_size", json!(0), "from 1"),
            ("extra", json!(3), "remove it if it changes nothing"),
        ] {
            let mut fields = bert_base();
            fields[field] = value.clone();
            let error = parse(fields).unwrap_err();
            let begin = format!("config.json: {field} is {value}: expected ");
            assert!(error.starts_with(&begin) && error.contains(words), "{error}");
        }
    }

    #[test]
    fn parameters_are_those_that_the_model_declares_and_the_configuration_counts() {
        for (order, is_tied, tells_pairs) in [
            (NormOrder::Before, true, true),
            (NormOrder::After, true, true),
            (NormOrder::After, false, false),
        ] {
            let config = BertConfig::new(2, 20, 4, 15, 61)
                .with_d_hidden(Some(36))
                .with_order(order)
                .with_tells_pairs(tells_pairs)
                .with_tied_embeddings(is_tied);
            let context = ParallelContext::single(1);
            let model = config.init::<Flex>(&FlexDevice, &context).unwrap();
            checks::expect_declared(&config, &model, &context);
            let count: usize = config.parameters().map(|parameter| parameter.num_elements()).sum();
            assert_eq!(count, config.num_parameters());
        }
    }
}
