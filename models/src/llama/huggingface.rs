//! Llama, Mistral and Qwen2 in Hugging Face's files: the settings of `config.json`, and which tensors a model has.
//! Pure.
//!
//! Files have weights as `[d_output, d_input]`, and the projections of queries, keys and values, and of gate and up, by
//! themselves.

use cubecl_kernels::rotary::tables::{RotaryScaling, check};
use serde_json::{Value, json};

use super::LlamaConfig;
use crate::huggingface::{Fields, HuggingFaceError, HuggingFaceFormat, Parameter, TiedHead};

const PREFIX: &str = "model.";
const HEAD: &str = "lm_head.weight";
const EMBEDDING: &str = "embed_tokens.weight";

impl HuggingFaceFormat for LlamaConfig {
    const MODEL_TYPES: &'static [&'static str] = &["llama", "mistral", "qwen2"];

    fn read_fields(model_type: &str, fields: &mut Fields) -> Result<Self, HuggingFaceError> {
        let is_qwen = model_type == "qwen2";
        fields.expect("hidden_act", &["silu".into()])?;
        fields.expect("attention_bias", &[is_qwen.into()])?;
        fields.expect("mlp_bias", &[false.into()])?;
        // It splits matmuls that are the same without it.
        fields.ignore(&["pretraining_tp", "max_window_layers", "layer_types"]);
        fields.expect("is_encoder_decoder", &[false.into()])?;
        fields.expect("use_sliding_window", &[false.into()])?;
        fields.expect("use_mrope", &[false.into()])?;
        if is_qwen {
            // Without effect where it is not used.
            fields.ignore(&["sliding_window"]);
        }
        if model_type == "mistral" && !fields.is_given("sliding_window") {
            // Of 4096 tokens then.
            return Err(fields.refuse("sliding_window", &"not there".into(), "null"));
        }
        fields.expect("sliding_window", &[Value::Null])?;
        let n_heads = fields.size("num_attention_heads")?;
        // The others' defaults are numbers of their own.
        let n_kv_heads = if model_type == "llama" && !fields.has("num_key_value_heads") {
            n_heads
        } else {
            fields.size("num_key_value_heads")?
        };
        let mut config = LlamaConfig::new(
            fields.size("num_hidden_layers")?,
            fields.size("hidden_size")?,
            n_heads,
            n_kv_heads,
            fields.size("intermediate_size")?,
            fields.size("max_position_embeddings")?,
            fields.size("vocab_size")?,
        )
        .with_qkv_bias(is_qwen)
        .with_attention_dropout(fields.number("attention_dropout", 0.0, 0.0..1.0)?)
        .with_norm_epsilon(fields.number("rms_norm_eps", 1e-6, f64::MIN_POSITIVE..1.0)?)
        .with_init_deviation(fields.number("initializer_range", 0.02, 0.0..f64::MAX)?)
        .with_tied_embeddings(fields.flag("tie_word_embeddings", false)?);
        if fields.has("head_dim") {
            let d_head = fields.size("head_dim")?;
            config.d_head = (d_head * n_heads != config.d_model).then_some(d_head);
        }
        // transformers 5 has base and scaling in one place.
        let mut parameters = fields.object("rope_parameters")?;
        let nested = parameters.as_mut().and_then(|object| object.remove("rope_theta"));
        if let Some(base) = nested {
            fields.put("rope_theta", base);
        }
        config.rotary_base = fields.number("rope_theta", 10000.0, 1.0 + f64::EPSILON..f64::MAX)?;
        let (field, scaling) = match parameters {
            Some(parameters) => ("rope_parameters", Some(parameters)),
            None => ("rope_scaling", fields.object("rope_scaling")?),
        };
        if let Some(scaling) = scaling {
            let shown = Value::Object(scaling.clone());
            config.rotary_scaling = read_scaling(fields, field, scaling)?;
            // Of any head that is even: whether this one is, is the configuration's to check.
            let is_valid = check(2, config.rotary_base, &config.rotary_scaling);
            is_valid.map_err(|error| fields.refuse(field, &shown, &error.to_string()))?;
        }
        Ok(config)
    }

    fn written_fields(&self, dtype: &str) -> Value {
        let (model_type, architecture) = if self.qkv_bias {
            ("qwen2", "Qwen2ForCausalLM")
        } else {
            ("llama", "LlamaForCausalLM")
        };
        let mut fields = json!({
            "architectures": [architecture],
            "attention_dropout": self.attention_dropout,
            "bos_token_id": null,
            "eos_token_id": null,
            "hidden_act": "silu",
            "hidden_size": self.d_model,
            "initializer_range": self.init_deviation,
            "intermediate_size": self.d_hidden,
            "max_position_embeddings": self.max_seq_length,
            "model_type": model_type,
            "num_attention_heads": self.n_heads,
            "num_hidden_layers": self.n_layers,
            "num_key_value_heads": self.n_kv_heads,
            "rms_norm_eps": self.norm_epsilon,
            "rope_theta": self.rotary_base,
            "tie_word_embeddings": self.tied_embeddings,
            "torch_dtype": dtype,
            "vocab_size": self.vocab_size,
        });
        if self.qkv_bias {
            fields["use_sliding_window"] = false.into();
        } else {
            fields["attention_bias"] = false.into();
            fields["mlp_bias"] = false.into();
        }
        if let Some(d_head) = self.d_head {
            fields["head_dim"] = d_head.into();
        }
        if self.rotary_scaling != RotaryScaling::None {
            fields["rope_scaling"] = json!(self.rotary_scaling);
        }
        fields
    }

    fn parameters(&self) -> impl Iterator<Item = Parameter> {
        let (d, hidden, head) = (self.d_model, self.d_hidden, self.head_size());
        let (groups, queries) = (self.n_kv_heads, self.queries_per_group());
        let (width, qkv_width) = (self.n_heads * head, self.qkv_width());
        let has_bias = self.qkv_bias;
        let layers = (0..self.n_layers).flat_map(move |layer| {
            let name = |part: &str| format!("layers.{layer}.{part}");
            let qkv = |kind: &str| {
                let part = |of: &str, range| (name(&format!("self_attn.{of}_proj.{kind}")), 1, range);
                [
                    part("q", 0..queries),
                    part("k", queries..queries + 1),
                    part("v", queries + 1..queries + 2),
                ]
            };
            let features = [groups, queries + 2, head];
            let half = |of: &str, number| (name(&format!("mlp.{of}_proj.weight")), 0, number..number + 1);
            let linear = |part: &str, shape: [usize; 2]| {
                let name = name(&format!("{part}.weight"));
                Parameter::linear_weight(name.clone(), shape, &shape[1..], [(name, 0, 0..shape[1])])
            };
            let bias = has_bias.then(|| {
                let shape = [1, qkv_width];
                Parameter::linear_bias(name("self_attn.qkv_proj.bias"), shape, &features, qkv("bias"))
            });
            let norm = |part: &str| same(name(&format!("{part}.weight")), &[d]);
            let first = [
                norm("input_layernorm"),
                Parameter::linear_weight(
                    name("self_attn.qkv_proj.weight"),
                    [d, 1, qkv_width],
                    &features,
                    qkv("weight"),
                ),
            ];
            let rest = [
                linear("self_attn.o_proj", [width, d]),
                norm("post_attention_layernorm"),
                Parameter::linear_weight(
                    name("mlp.gate_up_proj.weight"),
                    [d, 2, hidden],
                    &[2, hidden],
                    [half("gate", 0), half("up", 1)],
                ),
                linear("mlp.down_proj", [hidden, d]),
            ];
            first.into_iter().chain(bias).chain(rest)
        });
        let embedding = same(EMBEDDING, &[self.vocab_size, d]);
        let norm = same("norm.weight", &[d]);
        let of_model = [embedding].into_iter().chain(layers).chain([norm]);
        let has_head = !self.tied_embeddings;
        let head = has_head.then(|| head_of(self));
        of_model.map(|parameter| parameter.with_file_prefix(PREFIX)).chain(head)
    }

    fn imported_name(tensor: &str) -> Option<&str> {
        let name = tensor.strip_prefix(PREFIX).unwrap_or(tensor);
        let is_table = name.ends_with("rotary_emb.inv_freq");
        (!is_table).then_some(name)
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

/// Takes the scaling of rotary frequencies.
fn read_scaling(
    fields: &Fields,
    field: &str,
    mut scaling: serde_json::Map<String, Value>,
) -> Result<RotaryScaling, HuggingFaceError> {
    let whole = Value::Object(scaling.clone());
    // Its older name.
    if let Some(kind) = scaling.remove("type") {
        scaling.entry("rope_type").or_insert(kind);
    }
    if !scaling.contains_key("rope_type") {
        scaling.insert("rope_type".to_owned(), "default".into());
    }
    let read = serde_json::from_value::<RotaryScaling>(Value::Object(scaling.clone()));
    let read = read.map_err(|error| fields.refuse(field, &whole, &error.to_string()))?;
    let known = json!(read);
    let unknown = scaling
        .iter()
        .find(|(key, value)| !value.is_null() && known.get(key).is_none());
    match unknown {
        None => Ok(read),
        Some((key, _)) => Err(fields.refuse(field, &whole, &format!("no {key}, which is not known here"))),
    }
}

/// Returns the head of a model whose embeddings are not tied.
fn head_of(config: &LlamaConfig) -> Parameter {
    same(HEAD, &[config.vocab_size, config.d_model])
}

/// A parameter that files have as it is.
fn same(name: impl Into<String>, shape: &[usize]) -> Parameter {
    let name = name.into();
    Parameter::new(name.clone(), name, shape)
}

#[cfg(test)]
mod tests {
    use burn_flex::{Flex, FlexDevice};
    use burn_megatron::context::ParallelContext;

    use super::*;
    use crate::huggingface::checks;
    use crate::model_config::ModelConfig;

    fn parse(value: Value) -> Result<LlamaConfig, String> {
        checks::parse(value)
    }

    /// The settings of the published Llama 3.1 with 8 billion parameters.
    fn llama31() -> Value {
        json!({
            "architectures": ["LlamaForCausalLM"], "attention_bias": false, "attention_dropout": 0.0,
            "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "hidden_act": "silu",
            "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
            "max_position_embeddings": 131072, "mlp_bias": false, "model_type": "llama", "num_attention_heads": 32,
            "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1, "rms_norm_eps": 1e-05,
            "rope_scaling": {
                "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                "original_max_position_embeddings": 8192, "rope_type": "llama3"
            },
            "rope_theta": 500000.0, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
            "transformers_version": "4.42.3", "use_cache": true, "vocab_size": 128256
        })
    }

    /// Those of the published Qwen2.5 with half a billion.
    fn qwen25() -> Value {
        json!({
            "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
            "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 896, "initializer_range": 0.02,
            "intermediate_size": 4864, "max_position_embeddings": 32768, "max_window_layers": 24,
            "model_type": "qwen2", "num_attention_heads": 14, "num_hidden_layers": 24, "num_key_value_heads": 2,
            "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 32768, "tie_word_embeddings": true,
            "torch_dtype": "bfloat16", "transformers_version": "4.40.1", "use_cache": true, "use_mrope": false,
            "use_sliding_window": false, "vocab_size": 151936
        })
    }

    #[test]
    fn published_settings_are_the_presets() {
        use super::super::LlamaPreset;
        let preset = |name: &str| LlamaPreset::named(name).expect("a preset").config();
        assert_eq!(parse(llama31()), Ok(preset("llama3.1-8b")));
        assert_eq!(parse(qwen25()), Ok(preset("qwen2.5-0.5b")));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let plain = LlamaConfig::new(3, 24, 4, 2, 36, 15, 61);
        let odd = (plain.clone().with_d_head(Some(8)).with_qkv_bias(true))
            .with_tied_embeddings(true)
            .with_rotary_base(77.0)
            .with_rotary_scaling(RotaryScaling::Linear { factor: 3.0 });
        for config in [plain, odd] {
            assert_eq!(parse(config.written_fields("float32")), Ok(config));
        }
        let scaled = parse(llama31()).expect("a preset");
        assert_eq!(parse(scaled.written_fields("bfloat16")), Ok(scaled));
    }

    #[test]
    fn what_the_model_does_not_have_is_refused_by_name_and_value() {
        for (field, value, words) in [
            ("hidden_act", json!("gelu"), "\"silu\""),
            ("attention_bias", json!(true), "false"),
            ("mlp_bias", json!(true), "false"),
            ("sliding_window", json!(4096), "null"),
            ("model_type", json!("gemma"), "\"llama\" or \"mistral\" or \"qwen2\""),
            ("rope_scaling", json!({"rope_type": "dynamic", "factor": 2.0}), "llama3"),
            ("rope_scaling", json!("long"), "an object"),
            (
                "rope_scaling",
                json!({"factor": 4.0, "mscale": 0.7, "rope_type": "linear"}),
                "no mscale",
            ),
            ("rope_scaling", json!({"factor": 0.0, "rope_type": "linear"}), "factor"),
            ("rope_theta", json!(0.5), "from 1"),
            ("num_key_value_heads", json!(0), "from 1"),
            ("extra", json!(3), "remove it if it changes nothing"),
        ] {
            let mut fields = llama31();
            fields[field] = value.clone();
            let error = parse(fields).unwrap_err();
            let begin = format!("config.json: {field} is {value}: expected ");
            assert!(error.starts_with(&begin) && error.contains(words), "{error}");
        }
    }

    #[test]
    fn parameters_are_those_that_the_model_declares() {
        for (is_tied, has_bias) in [(true, false), (false, true)] {
            let config = LlamaConfig::new(2, 20, 4, 2, 36, 15, 61)
                .with_d_head(Some(6))
                .with_qkv_bias(has_bias)
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
    fn files_have_each_projection_by_itself() {
        let config = LlamaConfig::new(1, 20, 4, 2, 36, 15, 61).with_d_head(Some(6));
        let tensors = config.parameters().flat_map(|parameter| parameter.tensors);
        let tensors: Vec<(String, Vec<usize>)> = tensors.map(|tensor| (tensor.file_name, tensor.shape)).collect();
        let expected = [
            ("model.embed_tokens.weight", vec![61, 20]),
            ("model.layers.0.input_layernorm.weight", vec![20]),
            ("model.layers.0.self_attn.q_proj.weight", vec![24, 20]),
            ("model.layers.0.self_attn.k_proj.weight", vec![12, 20]),
            ("model.layers.0.self_attn.v_proj.weight", vec![12, 20]),
            ("model.layers.0.self_attn.o_proj.weight", vec![20, 24]),
            ("model.layers.0.post_attention_layernorm.weight", vec![20]),
            ("model.layers.0.mlp.gate_proj.weight", vec![36, 20]),
            ("model.layers.0.mlp.up_proj.weight", vec![36, 20]),
            ("model.layers.0.mlp.down_proj.weight", vec![20, 36]),
            ("model.norm.weight", vec![20]),
            ("lm_head.weight", vec![61, 20]),
        ];
        let expected: Vec<_> = expected.map(|(name, shape)| (name.to_owned(), shape)).into();
        assert_eq!(tensors, expected);
    }
}
