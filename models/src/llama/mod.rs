//! Llama 2 and 3, Mistral, Qwen2 and Qwen3: decoder-only transformers with rotary positions, RMS norms, gated MLPs and
//! shared key heads.
//!
//! They are one family: Qwen2 has biases in its query-key-value projections, Qwen3 norms of queries and keys, Llama 3.1
//! changes its rotary frequencies for longer texts. Parameter names are those of Hugging Face's files, except for
//! projections that are one here: `self_attn.qkv_proj` and `mlp.gate_up_proj`.

mod keys;

use burn_megatron::topology::{TopologyError, check_divides};
use cubecl_kernels::rotary::RotaryLayout;
use cubecl_kernels::rotary::tables::{RotaryScaling, check};
use serde_json::{Value, json};

use crate::decoder::{
    ABOVE_1, CommonSettings, ConfigKeys, DecoderFamily, DecoderNames, FamilyTable, FileRope, FileTable,
    HasCommonSettings, Positions, RopeKind, StoredLayers, decoder_config,
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
            norm_epsilon: "rms_norm_eps",
            ..ConfigKeys::USUAL
        },
        settings: keys::TABLES,
        ..FileTable::USUAL
    },
};

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
fn sized([layers, d_model, heads, kv_heads, hidden, seq, vocab]: [usize; 7]) -> LlamaConfig {
    LlamaConfig::new(layers, d_model, heads, kv_heads, hidden, seq, vocab)
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
        let common = TABLE.files.keys.read(fields)?;
        // Null is one for each query head.
        let n_kv_heads = fields.optional_size("num_key_value_heads")?.unwrap_or(common.n_heads);
        let usual_head = (model_type == "qwen3").then_some(DEFAULT_HEAD_OF_QWEN3);
        let d_head = fields.optional_size("head_dim")?.or(usual_head);
        let rope = FileRope::read(fields, &RopeKind::ALL, common.max_seq_length)?;
        if let Some(percent) = rope.percent.filter(|percent| *percent != 1.0) {
            return Err(fields.refuse("partial_rotary_factor", &percent.into(), "1.0"));
        }
        let rotary_base = fields.number_unless("rope_theta", ABOVE_1, (rope.base, "rope_parameters"))?;
        Ok(Self {
            n_kv_heads,
            d_hidden: fields.size("intermediate_size")?,
            d_head: d_head.filter(|d_head| d_head * common.n_heads != common.d_model),
            qkv_bias: model_type == "qwen2",
            qk_norm: model_type == "qwen3",
            window: read_window(model_type, common.n_layers, fields)?,
            rotary_base,
            rotary_scaling: rope.scaling,
            ..Self::of(common)
        })
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

/// Takes the keys that a query sees at most, which all layers have in common.
fn read_window(model_type: &str, n_layers: usize, fields: &mut Fields) -> Result<Option<usize>, HuggingFaceError> {
    const WINDOW: &str = "sliding_attention";
    const ALL: &str = "full_attention";
    let is_qwen = matches!(model_type, "qwen2" | "qwen3");
    let window = match model_type {
        "mistral" => fields.optional_size("sliding_window")?,
        _ if is_qwen && fields.flag("use_sliding_window")? => fields.optional_size("sliding_window")?,
        _ => None,
    };
    // What layers do that are not listed: Qwen's first ones have none.
    let without = match window {
        Some(_) if is_qwen => fields.whole("max_window_layers")?,
        Some(_) => 0,
        None => n_layers,
    };
    let kinds = fields.list("layer_types")?;
    if let Some(kinds) = &kinds {
        let usual = if without == 0 { WINDOW } else { ALL };
        let expected = match kinds.first().and_then(Value::as_str) {
            // Only Qwen's list says which layers have the window.
            Some(first @ (WINDOW | ALL)) if is_qwen && window.is_some() => first,
            _ => usual,
        };
        let is_uniform = kinds.len() == n_layers && kinds.iter().all(|kind| *kind == expected);
        if is_uniform {
            return Ok(window.filter(|_| expected == WINDOW));
        }
        let expected = format!("{expected:?} of each of {n_layers} layers");
        return Err(fields.refuse("layer_types", &Value::from(kinds.as_slice()), &expected));
    }
    match without {
        0 => Ok(window),
        _ if without >= n_layers => Ok(None),
        _ => {
            let expected = format!("0, or at least {n_layers}: all layers have a window, or none");
            Err(fields.refuse("max_window_layers", &without.into(), &expected))
        }
    }
}

#[cfg(test)]
mod tests;
