//! GPT-NeoX in Hugging Face's files: the settings of `config.json`, and which tensors a model has. Pure.
//!
//! Files have weights as `[d_output, d_input]`; the rows of the fused projection are, head after head, those of its
//! query, key and value.

use std::ops::Range;

use serde_json::{Value, json};

use super::NeoxConfig;
use crate::huggingface::{Fields, HuggingFaceError, HuggingFaceFormat, Parameter};

const PREFIX: &str = "gpt_neox.";
/// What transformers 5 calls the head in memory.
const NEWER_HEAD: &str = "lm_head.weight";
/// The forms of GELU by tanh, which differ in the digits of their constants.
const TANH_GELUS: [&str; 3] = ["gelu_fast", "gelu_new", "gelu_pytorch_tanh"];
/// GELU by the error function.
const GELU: &str = "gelu";

impl HuggingFaceFormat for NeoxConfig {
    const MODEL_TYPES: &'static [&'static str] = &["gpt_neox"];
    const EMBEDDING: &'static str = "embed_in.weight";
    const HEAD: &'static str = "embed_out.weight";

    fn read_fields(_model_type: &str, fields: &mut Fields) -> Result<Self, HuggingFaceError> {
        fields.ignore(&["classifier_dropout"]);
        fields.expect("attention_bias", &[true.into()])?;
        fields.expect("is_encoder_decoder", &[false.into()])?;
        fields.expect("rope_scaling", &[Value::Null])?;
        // transformers 5 has what is rotary in one place.
        if let Some(mut rotary) = fields.object("rope_parameters")? {
            let shown = Value::Object(rotary.clone());
            for field in ["rope_theta", "partial_rotary_factor"] {
                if let Some(value) = rotary.remove(field) {
                    fields.put(field, value);
                }
            }
            let is_plain = |(key, value): (&String, &Value)| key == "rope_type" && value == "default";
            if !rotary.iter().all(is_plain) {
                return Err(fields.refuse("rope_parameters", &shown, "no other than \"default\" frequencies"));
            }
        }
        let any_gelu: Vec<Value> = TANH_GELUS.into_iter().chain([GELU]).map(Value::from).collect();
        let activation = fields.one_of("hidden_act", GELU.into(), &any_gelu)?;
        let d_model = fields.size("hidden_size")?;
        Ok(NeoxConfig::new(
            fields.size("num_hidden_layers")?,
            d_model,
            fields.size("num_attention_heads")?,
            fields.size("max_position_embeddings")?,
            fields.size("vocab_size")?,
        )
        .with_d_hidden(fields.size_unless("intermediate_size", 4 * d_model)?)
        .with_rotary_percent(either(
            fields,
            ["rotary_pct", "partial_rotary_factor"],
            0.25,
            f64::MIN_POSITIVE..1.0 + f64::EPSILON,
        )?)
        .with_rotary_base(either(
            fields,
            ["rotary_emb_base", "rope_theta"],
            10000.0,
            1.0 + f64::EPSILON..f64::MAX,
        )?)
        .with_parallel_residual(fields.flag("use_parallel_residual", true)?)
        .with_tanh_gelu(activation != GELU)
        .with_hidden_dropout(fields.number("hidden_dropout", 0.0, 0.0..1.0)?)
        .with_attention_dropout(fields.number("attention_dropout", 0.0, 0.0..1.0)?)
        .with_norm_epsilon(fields.number("layer_norm_eps", 1e-5, f64::MIN_POSITIVE..1.0)?)
        .with_init_deviation(fields.number("initializer_range", 0.02, 0.0..f64::MAX)?)
        .with_tied_embeddings(fields.flag("tie_word_embeddings", false)?))
    }

    fn written_fields(&self, dtype: &str) -> Value {
        json!({
            "architectures": ["GPTNeoXForCausalLM"],
            "attention_bias": true,
            "attention_dropout": self.attention_dropout,
            "bos_token_id": null,
            "eos_token_id": null,
            "hidden_act": if self.tanh_gelu { TANH_GELUS[0] } else { GELU },
            "hidden_dropout": self.hidden_dropout,
            "hidden_size": self.d_model,
            "initializer_range": self.init_deviation,
            "intermediate_size": self.hidden_size(),
            "layer_norm_eps": self.norm_epsilon,
            "max_position_embeddings": self.max_seq_length,
            "model_type": "gpt_neox",
            "num_attention_heads": self.n_heads,
            "num_hidden_layers": self.n_layers,
            "rotary_emb_base": self.rotary_base,
            "rotary_pct": self.rotary_percent,
            "tie_word_embeddings": self.tied_embeddings,
            "torch_dtype": dtype,
            "use_parallel_residual": self.parallel_residual,
            "vocab_size": self.vocab_size,
        })
    }

    fn parameters(&self) -> impl Iterator<Item = Parameter> {
        let (d, hidden) = (self.d_model, self.hidden_size());
        let layers = (0..self.n_layers).flat_map(move |layer| {
            let name = |part: &str| format!("layers.{layer}.{part}");
            [
                Parameter::layer_norm(&name("input_layernorm"), d),
                Parameter::layer_norm(&name("post_attention_layernorm"), d),
                Parameter::linear(&name("attention.query_key_value"), &[d, 1, 3 * d]),
                Parameter::linear(&name("attention.dense"), &[d, d]),
                Parameter::linear(&name("mlp.dense_h_to_4h"), &[d, 1, hidden]),
                Parameter::linear(&name("mlp.dense_4h_to_h"), &[hidden, d]),
            ]
            .into_iter()
            .flatten()
        });
        let embedding = Parameter::same(Self::EMBEDDING, [self.vocab_size, d]);
        let of_model = [embedding].into_iter().chain(layers);
        let of_model = of_model.chain(Parameter::layer_norm("final_layer_norm", d));
        let head = (!self.tied_embeddings).then(|| self.head());
        of_model.map(|parameter| parameter.with_file_prefix(PREFIX)).chain(head)
    }

    fn imported_name(tensor: &str) -> Option<&str> {
        let name = tensor.strip_prefix(PREFIX).unwrap_or(tensor);
        let of_layer = name.strip_prefix("layers.").and_then(|rest| rest.split_once('.'));
        match (name, of_layer) {
            (NEWER_HEAD, _) => Some(Self::HEAD),
            // Masks and tables.
            (_, Some((_, "attention.bias" | "attention.masked_bias" | "attention.rotary_emb.inv_freq"))) => None,
            _ => Some(name),
        }
    }

    fn untie(&mut self) {
        self.tied_embeddings = false;
    }
}

/// Takes a number that files have by an older name, a newer one, or both.
fn either(
    fields: &mut Fields,
    [older, newer]: [&str; 2],
    default: f64,
    range: Range<f64>,
) -> Result<f64, HuggingFaceError> {
    let is_given = fields.has(newer);
    let value = fields.number(newer, default, range.clone())?;
    let other = fields.number(older, value, range)?;
    if is_given && other != value {
        return Err(fields.refuse(older, &other.into(), &format!("{value}, as {newer}")));
    }
    Ok(other)
}

#[cfg(test)]
mod tests {
    use burn_flex::{Flex, FlexDevice};
    use burn_megatron::context::ParallelContext;

    use super::super::NeoxPreset;
    use super::*;
    use crate::huggingface::checks;
    use crate::model_config::ModelConfig;

    fn parse(value: Value) -> Result<NeoxConfig, String> {
        checks::parse(value)
    }

    /// The settings of the published Pythia with 70 million parameters.
    fn pythia() -> Value {
        json!({
            "architectures": ["GPTNeoXForCausalLM"], "bos_token_id": 0, "eos_token_id": 0, "hidden_act": "gelu",
            "hidden_size": 512, "initializer_range": 0.02, "intermediate_size": 2048, "layer_norm_eps": 1e-05,
            "max_position_embeddings": 2048, "model_type": "gpt_neox", "num_attention_heads": 8,
            "num_hidden_layers": 6, "rotary_emb_base": 10000, "rotary_pct": 0.25, "tie_word_embeddings": false,
            "torch_dtype": "float16", "transformers_version": "4.24.0", "use_cache": true,
            "use_parallel_residual": true, "vocab_size": 50304
        })
    }

    #[test]
    fn published_settings_are_the_presets() {
        let preset = |name: &str| NeoxPreset::named(name).expect("a preset").config();
        assert_eq!(parse(pythia()), Ok(preset("pythia-70m")));
        let mut neox = pythia();
        for (field, value) in [
            ("attention_probs_dropout_prob", Value::Null),
            ("hidden_act", json!("gelu_fast")),
            ("hidden_size", json!(6144)),
            ("intermediate_size", json!(24576)),
            ("num_attention_heads", json!(64)),
            ("num_hidden_layers", json!(44)),
            ("vocab_size", json!(50432)),
        ] {
            neox[field] = value;
        }
        assert_eq!(parse(neox), Ok(preset("gpt-neox-20b")));
    }

    #[test]
    fn what_is_rotary_may_be_in_one_place() {
        let mut newer = pythia();
        let fields = newer.as_object_mut().expect("an object");
        fields.remove("rotary_pct");
        fields.remove("rotary_emb_base");
        newer["rope_parameters"] = json!({"rope_type": "default", "rope_theta": 77.0, "partial_rotary_factor": 0.5});
        let config = parse(newer.clone()).expect("valid");
        assert_eq!((config.rotary_base, config.rotary_percent), (77.0, 0.5));
        newer["rope_parameters"]["rope_type"] = json!("linear");
        assert!(parse(newer).unwrap_err().contains("rope_parameters is {"));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let plain = NeoxConfig::new(3, 32, 4, 15, 61);
        let odd = (plain.clone().with_d_hidden(Some(38)).with_parallel_residual(false))
            .with_tied_embeddings(true)
            .with_tanh_gelu(true)
            .with_rotary_percent(0.5)
            .with_rotary_base(77.0)
            .with_hidden_dropout(0.3)
            .with_attention_dropout(0.2);
        for config in [plain, odd] {
            assert_eq!(parse(config.written_fields("float32")), Ok(config));
        }
    }

    #[test]
    fn what_the_model_does_not_have_is_refused_by_name_and_value() {
        for (field, value, words) in [
            ("hidden_act", json!("relu"), "\"gelu_fast\""),
            ("attention_bias", json!(false), "true"),
            ("rope_scaling", json!({"type": "linear", "factor": 2.0}), "null"),
            ("rotary_pct", json!(1.5), "to below"),
            ("rotary_pct", json!(0.0), "a number from"),
            ("partial_rotary_factor", json!("half"), "a number from"),
            ("intermediate_size", json!(null), "from 1"),
            ("use_parallel_residual", json!("no"), "true or false"),
            ("extra", json!(3), "remove it if it changes nothing"),
        ] {
            let mut fields = pythia();
            fields[field] = value.clone();
            let error = parse(fields).unwrap_err();
            let begin = format!("config.json: {field} is {value}: expected ");
            assert!(error.starts_with(&begin) && error.contains(words), "{error}");
        }
        let mut both = pythia();
        both["partial_rotary_factor"] = json!(0.5);
        assert!(parse(both).unwrap_err().contains("rotary_pct is 0.25: expected 0.5"));
        let mut odd = pythia();
        odd["rotary_pct"] = json!(0.05);
        assert!(parse(odd).unwrap_err().contains("--rotary-percent"));
    }

    #[test]
    fn parameters_are_those_that_the_model_declares() {
        for (is_tied, is_parallel) in [(true, false), (false, true)] {
            let config = NeoxConfig::new(2, 20, 4, 15, 61)
                .with_rotary_percent(0.5)
                .with_d_hidden(Some(36))
                .with_parallel_residual(is_parallel)
                .with_tied_embeddings(is_tied);
            let context = ParallelContext::single(1);
            let model = config.init::<Flex>(&FlexDevice, &context).unwrap();
            checks::expect_declared(&config, &model, &context);
            let in_files: usize = (config.parameters())
                .flat_map(|parameter| parameter.tensors)
                .map(|tensor| tensor.num_elements())
                .sum();
            assert_eq!(in_files, config.num_parameters());
        }
    }

    #[test]
    fn names_are_those_of_published_files() {
        let config = NeoxConfig::new(1, 16, 4, 15, 61);
        let tensors = config.parameters().flat_map(|parameter| parameter.tensors);
        let tensors: Vec<(String, Vec<usize>)> = tensors.map(|tensor| (tensor.file_name, tensor.shape)).collect();
        for (name, shape) in [
            ("gpt_neox.embed_in.weight", vec![61, 16]),
            ("gpt_neox.layers.0.attention.query_key_value.weight", vec![48, 16]),
            ("gpt_neox.layers.0.attention.query_key_value.bias", vec![48]),
            ("gpt_neox.layers.0.mlp.dense_4h_to_h.weight", vec![16, 64]),
            ("gpt_neox.final_layer_norm.bias", vec![16]),
            ("embed_out.weight", vec![61, 16]),
        ] {
            assert!(tensors.contains(&(name.to_owned(), shape)), "{name}");
        }
        assert_eq!(NeoxConfig::imported_name("lm_head.weight"), Some("embed_out.weight"));
        assert_eq!(
            NeoxConfig::imported_name("gpt_neox.layers.0.attention.masked_bias"),
            None
        );
    }
}
