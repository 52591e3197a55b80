//! BERT in Hugging Face's files, as `bert` and as `megatron-bert`: the settings of `config.json`, and which tensors a
//! model has. Pure.
//!
//! Files have weights as `[d_output, d_input]`, and the projections of queries, keys and values by themselves.

use serde_json::{Value, json};

use super::{BertConfig, NormOrder};
use crate::huggingface::{Fields, HuggingFaceError, HuggingFaceFormat, Parameter, TiedHead};
use crate::layers::MlpActivation;

const PREFIX: &str = "bert.";
const EMBEDDING: &str = "embeddings.word_embeddings.weight";
const HEAD: &str = "cls.predictions.decoder.weight";
/// Buffers, and a second name of `cls.predictions.bias`.
const NO_PARAMETERS: [&str; 3] = [
    "embeddings.position_ids",
    "embeddings.token_type_ids",
    "cls.predictions.decoder.bias",
];

impl HuggingFaceFormat for BertConfig {
    const MODEL_TYPES: &'static [&'static str] = &["bert", "megatron-bert"];

    /// A model `…ForMaskedLM` tells no pairs apart.
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
        let config = BertConfig::new(
            fields.size("num_hidden_layers")?,
            fields.size("hidden_size")?,
            fields.size("num_attention_heads")?,
            fields.size("max_position_embeddings")?,
            fields.size("vocab_size")?,
        )
        .with_d_hidden(Some(fields.size("intermediate_size")?))
        .with_token_types(fields.size("type_vocab_size")?)
        .with_order(order)
        .with_activation(activation)
        .with_tells_pairs(tells_pairs)
        .with_hidden_dropout(fields.number("hidden_dropout_prob", 0.1, 0.0..1.0)?)
        .with_attention_dropout(fields.number("attention_probs_dropout_prob", 0.1, 0.0..1.0)?)
        .with_norm_epsilon(fields.number("layer_norm_eps", 1e-12, f64::MIN_POSITIVE..1.0)?)
        .with_init_deviation(fields.number("initializer_range", 0.02, 0.0..f64::MAX)?)
        .with_tied_embeddings(fields.flag("tie_word_embeddings", true)?);
        let is_usual = config.d_hidden == Some(4 * config.d_model);
        Ok(if is_usual { config.with_d_hidden(None) } else { config })
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
            same(EMBEDDING, &[self.vocab_size, d]),
            same("embeddings.position_embeddings.weight", &[self.max_seq_length, d]),
            same("embeddings.token_type_embeddings.weight", &[self.token_types, d]),
        ];
        let embedding_norm = is_post_norm.then(|| norm("embeddings.LayerNorm", d));
        let layers = (0..self.n_layers).flat_map(move |layer| {
            let name = |part: &str| format!("encoder.layer.{layer}.{part}");
            let [attention_norm, mlp_norm] = if is_post_norm {
                ["attention.output.LayerNorm", "output.LayerNorm"]
            } else {
                ["attention.ln", "ln"]
            };
            let qkv = |kind: &str| {
                let part = |(number, of)| (name(&format!("attention.self.{of}.{kind}")), 0, number..number + 1);
                ["query", "key", "value"]
                    .into_iter()
                    .enumerate()
                    .map(part)
                    .collect::<Vec<_>>()
            };
            let [weight, bias] =
                ["weight", "bias"].map(|kind| (name(&format!("attention.self.qkv.{kind}")), qkv(kind)));
            let projections = [
                Parameter::linear_weight(weight.0, [d, 3, d], &[3, d], weight.1),
                Parameter::linear_bias(bias.0, [3, d], &[3, d], bias.1),
            ];
            norm(&name(attention_norm), d)
                .into_iter()
                .chain(projections)
                .chain(linear(
                    &name("attention.output.dense"),
                    &name("attention.output.dense"),
                    [d, d],
                ))
                .chain(norm(&name(mlp_norm), d))
                .chain(fused(
                    &name("mlp.intermediate.dense"),
                    &name("intermediate.dense"),
                    [d, hidden],
                ))
                .chain(linear(&name("mlp.output.dense"), &name("output.dense"), [hidden, d]))
        });
        let final_norm = (!is_post_norm).then(|| norm("encoder.ln", d));
        let pooler = self.tells_pairs.then(|| linear("pooler.dense", "pooler.dense", [d, d]));
        let of_model = embeddings
            .into_iter()
            .chain(embedding_norm.into_iter().flatten())
            .chain(layers)
            .chain(final_norm.into_iter().flatten())
            .chain(pooler.into_iter().flatten());
        let transform = "cls.predictions.transform.dense";
        let pairs = self
            .tells_pairs
            .then(|| linear("cls.seq_relationship", "cls.seq_relationship", [d, 2]));
        let head = (!self.tied_embeddings).then(|| head_of(self));
        let of_heads = [same("cls.predictions.bias", &[self.vocab_size])]
            .into_iter()
            .chain(linear(transform, transform, [d, d]))
            .chain(norm("cls.predictions.transform.LayerNorm", d))
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

    fn tied_head(&self) -> Option<TiedHead> {
        self.tied_embeddings.then(|| TiedHead {
            head: head_of(self),
            embedding: EMBEDDING,
        })
    }

    fn untie(&mut self) {
        self.tied_embeddings = false;
    }
}

/// Returns the head of a model whose embeddings are not tied.
fn head_of(config: &BertConfig) -> Parameter {
    same(HEAD, &[config.vocab_size, config.d_model])
}

/// A parameter that files have as it is.
fn same(name: impl Into<String>, shape: &[usize]) -> Parameter {
    let name = name.into();
    Parameter::new(name.clone(), name, shape)
}

fn norm(name: &str, d_model: usize) -> [Parameter; 2] {
    ["weight", "bias"].map(|part| same(format!("{name}.{part}"), &[d_model]))
}

/// A layer whose weight is transposed in files.
fn linear(name: &str, file: &str, [d_input, d_output]: [usize; 2]) -> [Parameter; 2] {
    of_layer(name, file, vec![d_input, d_output], vec![d_output])
}

/// A column-parallel one, which is one of one here.
fn fused(name: &str, file: &str, [d_input, d_output]: [usize; 2]) -> [Parameter; 2] {
    of_layer(name, file, vec![d_input, 1, d_output], vec![1, d_output])
}

fn of_layer(name: &str, file: &str, weight: Vec<usize>, bias: Vec<usize>) -> [Parameter; 2] {
    let d_output = bias[bias.len() - 1];
    let part = |kind: &str| [(format!("{file}.{kind}"), 0, 0..d_output)];
    [
        Parameter::linear_weight(format!("{name}.weight"), weight, &[d_output], part("weight")),
        Parameter::linear_bias(format!("{name}.bias"), bias, &[d_output], part("bias")),
    ]
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
