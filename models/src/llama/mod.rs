//! Llama 2 and 3, Mistral, Qwen2 and Qwen3: decoder-only transformers with rotary positions, RMS norms, gated MLPs and
//! shared key heads.
//!
//! They are one family: Qwen2 has biases in its query-key-value projections, Qwen3 norms of queries and keys, Llama 3.1
//! changes its rotary frequencies for longer texts. Parameter names are those of Hugging Face's files, except for
//! projections that are one here: `self_attn.qkv_proj` and `mlp.gate_up_proj`.

use burn_megatron::topology::{TopologyError, check_divides};
use cubecl_kernels::rotary::RotaryLayout;
use cubecl_kernels::rotary::tables::{RotaryScaling, check};
use serde_json::{Value, json};

use crate::decoder::{
    CommonSettings, ConfigKeys, DecoderFamily, DecoderNames, FamilyTable, FileTable, HasCommonSettings, Positions,
    StoredLayers, decoder_config,
};
use crate::family::{ModelSettings, Preset};
use crate::huggingface::{Fields, HuggingFaceError};
use crate::layers::{BlockConfig, BlockNames, HeadOrder, MlpActivation, NormType, RotaryConfig};

decoder_config! {
    /// Configuration of a Llama.
    pub struct LlamaConfig
    sizes {
        /// The number of key heads, and of value heads, which divides that of query heads.
        pub n_kv_heads: usize,
        /// The size of the MLP's hidden layer.
        pub d_hidden: usize,
    }
    own {
        /// The size of a head; `d_model / n_heads` if not given.
        pub d_head: Option<usize>,
        /// What the wavelengths of the rotary embedding are powers of.
        #[config(default = 10000.0)]
        pub rotary_base: f64,
        /// How its frequencies are changed for longer texts.
        #[config(default = "RotaryScaling::None")]
        pub rotary_scaling: RotaryScaling,
        /// Whether the query-key-value projection has a bias, as Qwen2's.
        #[config(default = false)]
        pub qkv_bias: bool,
        /// Whether each query head and each key head is normed before it is turned, as Qwen3's.
        #[config(default = false)]
        pub qk_norm: bool,
        /// How many keys a query sees at most, itself among them, as in Mistral's earlier versions; all up to itself if
        /// not given.
        pub window: Option<usize>,
    }
    tied_embeddings = false, norm_epsilon = 1e-5
}

const TABLE: FamilyTable = FamilyTable {
    name: "llama",
    choices: &[
        "--num-query-groups",
        "--kv-channels",
        "--ffn-hidden-size",
        "--rotary-base",
        "--add-qkv-bias",
    ],
    names: DecoderNames {
        token_embedding: "embed_tokens",
        blocks: "layers",
        block: BlockNames::of(
            ["input_layernorm", "post_attention_layernorm"],
            ["self_attn", "qkv_proj", "o_proj"],
            ["mlp", "gate_up_proj", "down_proj"],
        ),
        norm: Some("norm"),
        ..DecoderNames::USUAL
    },
    files: FileTable {
        model_types: &["llama", "mistral", "qwen2", "qwen3"],
        prefix: "model.",
        embedding: "embed_tokens.weight",
        layers: StoredLayers::Apart {
            qkv: ["q_proj", "k_proj", "v_proj"],
            mlp: Some(["gate_proj", "up_proj"]),
        },
        keys: ConfigKeys {
            hidden_dropout: None,
            norm_epsilon: ("rms_norm_eps", 1e-6),
            ..ConfigKeys::USUAL
        },
        // It splits matmuls that are the same without it.
        ignored: &["pretraining_tp"],
        ..FileTable::USUAL
    },
};

/// The keys that a query of Mistral sees where its settings do not say it.
const DEFAULT_WINDOW_OF_MISTRAL: usize = 4096;
/// The elements of a head of Qwen3 where its settings do not say it.
const DEFAULT_HEAD_OF_QWEN3: usize = 128;
/// The vocabulary of most Qwens.
const QWEN: usize = 151_936;

/// Well-known sizes, from the smallest to the largest.
const PRESETS: &[Preset<LlamaConfig>] = &[
    Preset::new("qwen2.5-0.5b", || qwen2(true, [24, 896, 14, 2, 4864, 32768, QWEN])),
    Preset::new("qwen3-0.6b", || qwen3(true, [28, 1024, 16, 8, 3072, 40960, QWEN])),
    Preset::new("llama3.2-1b", || {
        llama31(32.0, [16, 2048, 32, 8, 8192, 131_072, 128_256]).with_tied_embeddings(true)
    }),
    Preset::new("qwen2.5-1.5b", || qwen2(true, [28, 1536, 12, 2, 8960, 131_072, QWEN])),
    Preset::new("qwen3-1.7b", || qwen3(true, [28, 2048, 16, 8, 6144, 40960, QWEN])),
    Preset::new("llama3.2-3b", || {
        llama31(32.0, [28, 3072, 24, 8, 8192, 131_072, 128_256]).with_tied_embeddings(true)
    }),
    Preset::new("qwen3-4b", || qwen3(true, [36, 2560, 32, 8, 9728, 40960, QWEN])),
    Preset::new("llama2-7b", || sized([32, 4096, 32, 32, 11008, 4096, 32000])),
    Preset::new("mistral-7b-v0.3", || {
        sized([32, 4096, 32, 8, 14336, 32768, 32768]).with_rotary_base(1e6)
    }),
    Preset::new("qwen2.5-7b", || {
        qwen2(false, [28, 3584, 28, 4, 18944, 131_072, 152_064])
    }),
    Preset::new("llama3-8b", || llama3([32, 4096, 32, 8, 14336, 8192, 128_256])),
    Preset::new("llama3.1-8b", || {
        llama31(8.0, [32, 4096, 32, 8, 14336, 131_072, 128_256])
    }),
    Preset::new("qwen3-8b", || qwen3(false, [36, 4096, 32, 8, 12288, 40960, QWEN])),
    Preset::new("llama2-13b", || sized([40, 5120, 40, 40, 13824, 4096, 32000])),
    Preset::new("qwen3-14b", || qwen3(false, [40, 5120, 40, 8, 17408, 40960, QWEN])),
    Preset::new("qwen3-32b", || qwen3(false, [64, 5120, 64, 8, 25600, 40960, QWEN])),
    Preset::new("llama2-70b", || sized([80, 8192, 64, 8, 28672, 4096, 32000])),
    Preset::new("llama3-70b", || llama3([80, 8192, 64, 8, 28672, 8192, 128_256])),
    Preset::new("llama3.1-70b", || {
        llama31(8.0, [80, 8192, 64, 8, 28672, 131_072, 128_256])
    }),
    Preset::new("llama3.1-405b", || {
        llama31(8.0, [126, 16384, 128, 8, 53248, 131_072, 128_256])
    }),
];

/// Returns a Llama of layers, size of a token, query heads, key heads, hidden size, longest sequence, vocabulary.
fn sized(
    [
        n_layers,
        d_model,
        n_heads,
        n_kv_heads,
        d_hidden,
        max_seq_length,
        vocab_size,
    ]: [usize; 7],
) -> LlamaConfig {
    LlamaConfig::new(
        n_layers,
        d_model,
        n_heads,
        n_kv_heads,
        d_hidden,
        max_seq_length,
        vocab_size,
    )
}

fn llama3(sizes: [usize; 7]) -> LlamaConfig {
    sized(sizes).with_rotary_base(500_000.0)
}

/// With rotary frequencies for texts that are longer than 8192 tokens, divided by `factor`.
fn llama31(factor: f64, sizes: [usize; 7]) -> LlamaConfig {
    llama3(sizes).with_rotary_scaling(RotaryScaling::Llama3 {
        factor,
        low_freq_factor: 1.0,
        high_freq_factor: 4.0,
        original_max_position: 8192,
    })
}

fn qwen2(is_tied: bool, sizes: [usize; 7]) -> LlamaConfig {
    qwen(is_tied, sizes).with_qkv_bias(true)
}

/// With norms of queries and keys, and heads of 128 elements.
fn qwen3(is_tied: bool, sizes: [usize; 7]) -> LlamaConfig {
    let [_, d_model, n_heads, ..] = sizes;
    let d_head = (n_heads * DEFAULT_HEAD_OF_QWEN3 != d_model).then_some(DEFAULT_HEAD_OF_QWEN3);
    qwen(is_tied, sizes).with_d_head(d_head).with_qk_norm(true)
}

fn qwen(is_tied: bool, sizes: [usize; 7]) -> LlamaConfig {
    sized(sizes)
        .with_rotary_base(1e6)
        .with_norm_epsilon(1e-6)
        .with_tied_embeddings(is_tied)
}

impl LlamaConfig {
    /// The size of a head.
    pub fn head_size(&self) -> usize {
        self.d_head.unwrap_or(self.d_model / self.n_heads.max(1))
    }
}

impl DecoderFamily for LlamaConfig {
    const TABLE: FamilyTable = TABLE;
    const PRESETS: &'static [Preset<Self>] = PRESETS;

    /// With a key head for each two heads, and an MLP of 8/3 the size of a token, rounded up to a multiple of 64.
    fn of(common: CommonSettings) -> Self {
        let n_heads = common.n_heads;
        let n_kv_heads = if n_heads.is_multiple_of(2) {
            n_heads / 2
        } else {
            n_heads
        };
        let d_hidden = (8 * common.d_model).div_ceil(3).next_multiple_of(64);
        Self::new(0, 0, 0, n_kv_heads, d_hidden, 0, 0).with_common(common)
    }

    fn with_choices(self, settings: &ModelSettings) -> Self {
        Self {
            n_kv_heads: settings.n_kv_heads.unwrap_or(self.n_kv_heads),
            d_hidden: settings.d_hidden.unwrap_or(self.d_hidden),
            d_head: settings.d_head.or(self.d_head),
            rotary_base: settings.rotary_base.unwrap_or(self.rotary_base),
            qkv_bias: settings.qkv_bias || self.qkv_bias,
            qk_norm: settings.qk_norm || self.qk_norm,
            window: settings.window.or(self.window),
            ..self
        }
    }

    fn shape(&self, block: &mut BlockConfig) {
        let attention = &mut block.attention;
        attention.n_kv_heads = Some(self.n_kv_heads);
        attention.d_head = self.d_head;
        attention.order = HeadOrder::Groups;
        attention.qkv_bias = self.qkv_bias;
        attention.window = self.window;
        attention.qk_norm_epsilon = self.qk_norm.then_some(self.norm_epsilon);
        attention.output_bias = false;
        block.mlp.d_hidden = self.d_hidden;
        block.mlp.activation = MlpActivation::SwiGlu;
        block.mlp.bias = false;
        block.norm = NormType::RmsNorm;
    }

    fn positions(&self) -> Positions {
        Positions::Rotary(RotaryConfig {
            max_positions: self.max_seq_length,
            rotated: self.head_size(),
            base: self.rotary_base,
            scaling: self.rotary_scaling.clone(),
            layout: RotaryLayout::Halves,
        })
    }

    fn check(&self) -> Result<(), TopologyError> {
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
        Ok(())
    }

    fn own_sizes(&self) -> Vec<(&'static str, String)> {
        vec![
            ("--num-query-groups", self.n_kv_heads.to_string()),
            ("--kv-channels", self.head_size().to_string()),
            ("--ffn-hidden-size", self.d_hidden.to_string()),
            ("--rotary-base", self.rotary_base.to_string()),
            (
                "the scaling of rotary frequencies",
                json!(self.rotary_scaling).to_string(),
            ),
            ("--add-qkv-bias", self.qkv_bias.to_string()),
            ("--qk-layernorm", self.qk_norm.to_string()),
            (
                "--window-size",
                // The token itself does not count.
                self.window
                    .map_or("all".to_owned(), |keys| keys.saturating_sub(1).to_string()),
            ),
        ]
    }

    fn read(model_type: &str, fields: &mut Fields) -> Result<Self, HuggingFaceError> {
        let (is_qwen2, is_qwen3) = (model_type == "qwen2", model_type == "qwen3");
        fields.expect("hidden_act", &["silu".into()])?;
        fields.expect("attention_bias", &[is_qwen2.into()])?;
        fields.expect("mlp_bias", &[false.into()])?;
        fields.expect("use_mrope", &[false.into()])?;
        let window = read_window(model_type, fields)?;
        let common = TABLE.files.read::<Self>(fields)?;
        // The others' defaults are numbers of their own.
        let n_kv_heads = if model_type == "llama" {
            fields.size_or("num_key_value_heads", common.n_heads)?
        } else {
            fields.size("num_key_value_heads")?
        };
        let d_head = match (fields.has("head_dim"), is_qwen3) {
            (true, _) => Some(fields.size("head_dim")?),
            (false, true) => Some(DEFAULT_HEAD_OF_QWEN3),
            (false, false) => None,
        };
        let mut config = Self {
            n_kv_heads,
            d_hidden: fields.size("intermediate_size")?,
            d_head: d_head.filter(|d_head| d_head * common.n_heads != common.d_model),
            qkv_bias: is_qwen2,
            qk_norm: is_qwen3,
            window,
            ..Self::of(common)
        };
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
            config.rotary_scaling = read_scaling(fields, field, scaling, common.max_seq_length)?;
            // Of any head that is even: whether this one is, is the configuration's to check.
            let is_valid = check(2, config.rotary_base, &config.rotary_scaling);
            is_valid.map_err(|error| fields.refuse(field, &shown, &error.to_string()))?;
        }
        Ok(config)
    }

    fn written(&self) -> Value {
        let (model_type, architecture) = match (self.qk_norm, self.qkv_bias, self.window) {
            (true, ..) => ("qwen3", "Qwen3ForCausalLM"),
            (false, true, _) => ("qwen2", "Qwen2ForCausalLM"),
            (false, false, Some(_)) => ("mistral", "MistralForCausalLM"),
            (false, false, None) => ("llama", "LlamaForCausalLM"),
        };
        let mut fields = json!({
            "architectures": [architecture],
            "bos_token_id": null,
            "eos_token_id": null,
            "hidden_act": "silu",
            "intermediate_size": self.d_hidden,
            "model_type": model_type,
            "num_key_value_heads": self.n_kv_heads,
            "rope_theta": self.rotary_base,
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
        // Where a file says it of YaRN, some versions of transformers take its ratio to the longest sequence for the
        // factor.
        if let RotaryScaling::Yarn {
            original_max_position, ..
        } = self.rotary_scaling
            && original_max_position == self.max_seq_length
        {
            fields["rope_scaling"]
                .as_object_mut()
                .and_then(|scaling| scaling.remove("original_max_position_embeddings"));
        }
        fields
    }

    /// Tables of angles are no parameters.
    fn key(name: &str) -> Option<&str> {
        (!name.ends_with("rotary_emb.inv_freq")).then_some(name)
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

/// Takes the scaling of rotary frequencies; the length of texts before, where it is needed and not given, is
/// `max_position`.
fn read_scaling(
    fields: &Fields,
    field: &str,
    mut scaling: serde_json::Map<String, Value>,
    max_position: usize,
) -> Result<RotaryScaling, HuggingFaceError> {
    let whole = Value::Object(scaling.clone());
    // Its older name.
    if let Some(kind) = scaling.remove("type") {
        scaling.entry("rope_type").or_insert(kind);
    }
    if !scaling.contains_key("rope_type") {
        scaling.insert("rope_type".to_owned(), "default".into());
    }
    let needs_length = ["llama3", "yarn"].iter().any(|kind| scaling["rope_type"] == *kind);
    let length = "original_max_position_embeddings";
    if needs_length && scaling.get(length).is_none_or(Value::is_null) {
        scaling.insert(length.to_owned(), max_position.into());
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

#[cfg(test)]
mod tests;
