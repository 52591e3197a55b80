//! Llama, Mistral, Qwen2 and Qwen3 in Hugging Face's files: the settings of `config.json`, and which tensors a model
//! has. Pure.
//!
//! Files have weights as `[d_output, d_input]`, and the projections of queries, keys and values, and of gate and up, by
//! themselves.

#[cfg(test)]
mod tests;

use cubecl_kernels::rotary::tables::{RotaryScaling, check};
use serde_json::{Value, json};

use super::LlamaConfig;
use crate::huggingface::{Fields, HuggingFaceError, HuggingFaceFormat, Parameter};

const PREFIX: &str = "model.";
/// The keys that a query of Mistral sees where its settings do not say it.
const DEFAULT_WINDOW_OF_MISTRAL: usize = 4096;
/// The elements of a head of Qwen3 where its settings do not say it.
const DEFAULT_HEAD_OF_QWEN3: usize = 128;

impl HuggingFaceFormat for LlamaConfig {
    const MODEL_TYPES: &'static [&'static str] = &["llama", "mistral", "qwen2", "qwen3"];
    const EMBEDDING: &'static str = "embed_tokens.weight";
    const HEAD: &'static str = "lm_head.weight";

    fn read_fields(model_type: &str, fields: &mut Fields) -> Result<Self, HuggingFaceError> {
        let (is_qwen2, is_qwen3) = (model_type == "qwen2", model_type == "qwen3");
        fields.expect("hidden_act", &["silu".into()])?;
        fields.expect("attention_bias", &[is_qwen2.into()])?;
        fields.expect("mlp_bias", &[false.into()])?;
        // It splits matmuls that are the same without it.
        fields.ignore(&["pretraining_tp"]);
        fields.expect("is_encoder_decoder", &[false.into()])?;
        fields.expect("use_mrope", &[false.into()])?;
        let window = read_window(model_type, fields)?;
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
        .with_qkv_bias(is_qwen2)
        .with_qk_norm(is_qwen3)
        .with_window(window)
        .with_attention_dropout(fields.number("attention_dropout", 0.0, 0.0..1.0)?)
        .with_norm_epsilon(fields.number("rms_norm_eps", 1e-6, f64::MIN_POSITIVE..1.0)?)
        .with_init_deviation(fields.number("initializer_range", 0.02, 0.0..f64::MAX)?)
        .with_tied_embeddings(fields.flag("tie_word_embeddings", false)?);
        let d_head = match (fields.has("head_dim"), is_qwen3) {
            (true, _) => Some(fields.size("head_dim")?),
            (false, true) => Some(DEFAULT_HEAD_OF_QWEN3),
            (false, false) => None,
        };
        if let Some(d_head) = d_head {
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
        let (model_type, architecture) = match (self.qk_norm, self.qkv_bias, self.window) {
            (true, ..) => ("qwen3", "Qwen3ForCausalLM"),
            (false, true, _) => ("qwen2", "Qwen2ForCausalLM"),
            (false, false, Some(_)) => ("mistral", "MistralForCausalLM"),
            (false, false, None) => ("llama", "LlamaForCausalLM"),
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
        match model_type {
            "llama" => {
                fields["attention_bias"] = false.into();
                fields["mlp_bias"] = false.into();
            }
            "mistral" => fields["sliding_window"] = self.window.into(),
            _ => {
                fields["use_sliding_window"] = self.window.is_some().into();
                fields["sliding_window"] = self.window.into();
                // The layers before the first one that has a window.
                let without = self.window.map_or(self.n_layers, |_| 0);
                fields["max_window_layers"] = without.into();
            }
        }
        if self.d_head.is_some() || self.qk_norm {
            fields["head_dim"] = self.head_size().into();
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
        let (has_bias, has_norms) = (self.qkv_bias, self.qk_norm);
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
            let half = |of: &str| name(&format!("mlp.{of}_proj.weight"));
            let linear =
                |part: &str, shape: [usize; 2]| Parameter::whole_weight(name(&format!("{part}.weight")), &shape);
            let bias = has_bias.then(|| {
                let shape = [1, qkv_width];
                Parameter::linear_bias(name("self_attn.qkv_proj.bias"), shape, &features, qkv("bias"))
            });
            let norm = |part: &str| Parameter::same(name(&format!("{part}.weight")), [d]);
            let first = [
                norm("input_layernorm"),
                Parameter::linear_weight(
                    name("self_attn.qkv_proj.weight"),
                    [d, 1, qkv_width],
                    &features,
                    qkv("weight"),
                ),
            ];
            let norm_of = |of: &str| Parameter::same(name(&format!("self_attn.{of}_norm.weight")), [head]);
            let qk_norms = has_norms.then(|| ["q", "k"].map(norm_of)).into_iter().flatten();
            let rest = [
                linear("self_attn.o_proj", [width, d]),
                norm("post_attention_layernorm"),
                Parameter::weights_side_by_side(name("mlp.gate_up_proj.weight"), ["gate", "up"].map(half), [d, hidden]),
                linear("mlp.down_proj", [hidden, d]),
            ];
            first.into_iter().chain(bias).chain(qk_norms).chain(rest)
        });
        let embedding = Parameter::same(Self::EMBEDDING, [self.vocab_size, d]);
        let norm = Parameter::same("norm.weight", [d]);
        let of_model = [embedding].into_iter().chain(layers).chain([norm]);
        let has_head = !self.tied_embeddings;
        let head = has_head.then(|| self.head());
        of_model.map(|parameter| parameter.with_file_prefix(PREFIX)).chain(head)
    }

    fn imported_name(tensor: &str) -> Option<&str> {
        let name = tensor.strip_prefix(PREFIX).unwrap_or(tensor);
        let is_table = name.ends_with("rotary_emb.inv_freq");
        (!is_table).then_some(name)
    }

    fn untie(&mut self) {
        self.tied_embeddings = false;
    }
}

/// Takes the keys that a query sees at most.
fn read_window(model_type: &str, fields: &mut Fields) -> Result<Option<usize>, HuggingFaceError> {
    let is_qwen = matches!(model_type, "qwen2" | "qwen3");
    let window = match model_type {
        "mistral" if !fields.is_given("sliding_window") => Some(DEFAULT_WINDOW_OF_MISTRAL),
        "mistral" if fields.has("sliding_window") => Some(fields.size("sliding_window")?),
        _ if is_qwen && fields.flag("use_sliding_window", false)? => Some(fields.size("sliding_window")?),
        _ => None,
    };
    if is_qwen {
        // Without effect where it is not used.
        fields.ignore(&["sliding_window"]);
    }
    fields.expect("use_sliding_window", &[false.into()])?;
    fields.expect("sliding_window", &[Value::Null])?;
    // All layers have it, or none.
    match window {
        Some(_) if is_qwen => fields.expect("max_window_layers", &[0.into()])?,
        _ => fields.ignore(&["max_window_layers"]),
    }
    let kind = if window.is_some() {
        "sliding_attention"
    } else {
        "full_attention"
    };
    let kinds = fields.list("layer_types")?;
    match kinds.iter().flatten().find(|found| **found != kind) {
        Some(found) => Err(fields.refuse("layer_types", found, &format!("{kind:?} of every layer"))),
        None => Ok(window),
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
