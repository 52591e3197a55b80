//! GPT-NeoX and Pythia: decoder-only transformers whose attention and MLP read the residual stream at once, and whose
//! rotary positions turn a part of each head.
//!
//! Parameter names are those of Hugging Face's GPT-NeoX (`embed_in.weight`,
//! `layers.0.attention.query_key_value.weight`, …). The fused projection is, head after head, its query, key and value.

use burn_megatron::topology::{TopologyError, check_divides};
use cubecl_kernels::rotary::RotaryLayout;
use cubecl_kernels::rotary::tables::{RotaryScaling, check};
use serde_json::{Value, json};

use crate::decoder::{
    ABOVE_1, CommonSettings, DecoderFamily, DecoderNames, FamilyTable, FileRope, FileTable, HasCommonSettings,
    Positions, RopeKind, SHARE, decoder_config,
};
use crate::family::{ModelSettings, Preset};
use crate::huggingface::{ERF_GELUS, Fields, HuggingFaceError, Key, KeyTable, TANH_GELUS};
use crate::layers::{BlockConfig, BlockNames, HeadOrder, MlpActivation, Residual, RotaryConfig};

decoder_config! {
    /// Configuration of a GPT-NeoX.
    pub struct NeoxConfig
    sizes {}
    own {
        /// The size of the MLP's hidden layer; `4 * d_model` if not given.
        pub d_hidden: Option<usize>,
        /// The share of each head's elements that are turned, the first ones, from above 0 to 1.
        #[config(default = 0.25)]
        pub rotary_percent: f64,
        /// What the wavelengths of the rotary embedding are powers of.
        #[config(default = 10000.0)]
        pub rotary_base: f64,
        /// Whether attention and MLP read the residual stream at once, and not one after the other.
        #[config(default = true)]
        pub parallel_residual: bool,
        /// Whether GELU is computed by tanh, as GPT-NeoX-20B's, and not by the error function.
        #[config(default = false)]
        pub tanh_gelu: bool,
    }
    tied_embeddings = false, norm_epsilon = 1e-5
}

const TABLE: FamilyTable = FamilyTable {
    name: "neox",
    choices: &["--ffn-hidden-size", "--rotary-base"],
    names: DecoderNames {
        token_embedding: "embed_in",
        blocks: "layers",
        block: BlockNames::of(
            ["input_layernorm", "post_attention_layernorm"],
            ["attention", "query_key_value", "dense"],
            ["mlp", "dense_h_to_4h", "dense_4h_to_h"],
        ),
        norm: Some("final_layer_norm"),
        head: "embed_out",
        ..DecoderNames::USUAL
    },
    files: FileTable {
        model_types: &["gpt_neox"],
        prefix: "gpt_neox.",
        embedding: "embed_in.weight",
        head: "embed_out.weight",
        norms_first: true,
        settings: &[KeyTable::of_all(KEYS)],
        ..FileTable::USUAL
    },
};

/// What transformers 5 calls the head in memory.
const NEWER_HEAD: &str = "lm_head.weight";
/// `GPTNeoXConfig` of transformers.
const KEYS: &[Key] = &[
    Key::honoured("vocab_size", "50432", "61"),
    Key::honoured("hidden_size", "6144", "512"),
    Key::honoured("num_hidden_layers", "44", "3"),
    Key::honoured("num_attention_heads", "64", "32"),
    Key::honoured("intermediate_size", "24576", "36"),
    Key::honoured("hidden_act", "gelu", "gelu_fast"),
    Key::honoured("hidden_dropout", "0.0", "0.1"),
    Key::honoured("attention_dropout", "0.0", "0.1"),
    Key::honoured("max_position_embeddings", "2048", "16"),
    Key::honoured("initializer_range", "0.02", "0.5"),
    Key::honoured("layer_norm_eps", "1e-5", "1e-3"),
    Key::honoured("tie_word_embeddings", "false", "true"),
    Key::honoured("use_parallel_residual", "true", "false"),
    Key::honoured("rotary_pct", "0.25", "0.5"),
    Key::honoured("rotary_emb_base", "10000", "500"),
    Key::honoured(
        "rope_parameters",
        "null",
        r#"{"rope_theta": 500, "partial_rotary_factor": 0.5}"#,
    ),
    Key::honoured("rope_scaling", "null", r#"{"rope_theta": 500}"#),
    // transformers 4 computes with these, and transformers 5 does not.
    Key::checked("rope_theta", "null", "500"),
    Key::checked("partial_rotary_factor", "null", "0.5"),
    Key::only("attention_bias", &["true"]),
    Key::idle("classifier_dropout", "0.1"),
];

/// Well-known sizes, from the smallest to the largest.
const PRESETS: &[Preset<NeoxConfig>] = &[
    Preset::new("pythia-70m", || sized([6, 512, 8, 50304])),
    Preset::new("pythia-160m", || sized([12, 768, 12, 50304])),
    Preset::new("pythia-410m", || sized([24, 1024, 16, 50304])),
    Preset::new("pythia-1b", || sized([16, 2048, 8, 50304])),
    Preset::new("pythia-1.4b", || sized([24, 2048, 16, 50304])),
    Preset::new("pythia-2.8b", || sized([32, 2560, 32, 50304])),
    Preset::new("pythia-6.9b", || sized([32, 4096, 32, 50432])),
    Preset::new("pythia-12b", || sized([36, 5120, 40, 50688])),
    Preset::new("gpt-neox-20b", || sized([44, 6144, 64, 50432]).with_tanh_gelu(true)),
];

fn sized([n_layers, d_model, n_heads, vocab_size]: [usize; 4]) -> NeoxConfig {
    NeoxConfig::new(n_layers, d_model, n_heads, 2048, vocab_size)
}

impl NeoxConfig {
    /// The size of the MLP's hidden layer.
    pub fn hidden_size(&self) -> usize {
        self.d_hidden.unwrap_or(4 * self.d_model)
    }

    /// The elements of each head that are turned.
    pub fn rotated(&self) -> usize {
        let head_size = self.d_model / self.n_heads.max(1);
        (head_size as f64 * self.rotary_percent) as usize
    }
}

impl DecoderFamily for NeoxConfig {
    const TABLE: FamilyTable = TABLE;
    const PRESETS: &'static [Preset<Self>] = PRESETS;

    fn of(common: CommonSettings) -> Self {
        Self::new(0, 0, 0, 0, 0).with_common(common)
    }

    fn with_choices(self, settings: &ModelSettings) -> Self {
        Self {
            d_hidden: settings.d_hidden.or(self.d_hidden),
            rotary_percent: settings.rotary_percent.unwrap_or(self.rotary_percent),
            rotary_base: settings.rotary_base.unwrap_or(self.rotary_base),
            ..self
        }
    }

    fn shape(&self, block: &mut BlockConfig) {
        // Each head's query, key and value are next to each other.
        block.attention.order = HeadOrder::Groups;
        block.mlp.d_hidden = self.hidden_size();
        if !self.tanh_gelu {
            block.mlp.activation = MlpActivation::GeluErf;
        }
        if self.parallel_residual {
            block.residual = Residual::Parallel;
        }
    }

    fn positions(&self) -> Positions {
        Positions::Rotary(RotaryConfig {
            max_positions: self.max_seq_length,
            rotated: self.rotated(),
            base: self.rotary_base,
            scaling: RotaryScaling::None,
            layout: RotaryLayout::Halves,
        })
    }

    fn rotary_percent(&self) -> f64 {
        self.rotary_percent
    }

    fn check(&self) -> Result<(), TopologyError> {
        let percent = self.rotary_percent;
        if !(percent > 0.0 && percent <= 1.0) {
            let what = format!("--rotary-percent must be above 0 and at most 1, got {percent}");
            return Err(TopologyError::Setting(what));
        }
        let (what, rotated) = ("the turned elements of a head (--rotary-percent)", self.rotated());
        if rotated == 0 {
            return Err(TopologyError::Zero { name: what });
        }
        check_divides(what, rotated, "a pair of elements", 2)?;
        let rotary = check(rotated, self.rotary_base, &RotaryScaling::None);
        rotary.map_err(|error| TopologyError::Setting(error.to_string()))
    }

    fn own_sizes(&self) -> Vec<(&'static str, String)> {
        vec![
            ("--ffn-hidden-size", self.hidden_size().to_string()),
            ("--rotary-percent", self.rotary_percent.to_string()),
            ("--rotary-base", self.rotary_base.to_string()),
            ("a parallel residual", self.parallel_residual.to_string()),
            ("GELU by tanh", self.tanh_gelu.to_string()),
        ]
    }

    fn read(_model_type: &str, fields: &mut Fields) -> Result<Self, HuggingFaceError> {
        let of = |names: &[&'static str], is_tanh| names.iter().map(|&name| (name, is_tanh)).collect::<Vec<_>>();
        let tanh_gelu = fields.choice("hidden_act", &[of(&ERF_GELUS, false), of(&TANH_GELUS, true)].concat())?;
        let common = TABLE.files.keys.read(fields)?;
        let rope = FileRope::read(fields, &[("default", RopeKind::None)], common.max_seq_length)?;
        let base = fields.number_unless("rotary_emb_base", ABOVE_1, (rope.base, "rope_parameters"))?;
        let percent = fields.number_unless("rotary_pct", SHARE, (rope.percent, "rope_parameters"))?;
        let config = Self::of(common)
            .with_d_hidden(fields.size_unless("intermediate_size", 4 * common.d_model)?)
            .with_rotary_percent(percent)
            .with_rotary_base(base)
            .with_parallel_residual(fields.flag("use_parallel_residual")?)
            .with_tanh_gelu(tanh_gelu);
        let said = "rotary_emb_base: versions of transformers differ in which they take";
        fields.agree("rope_theta", &config.rotary_base.into(), said)?;
        let said = "rotary_pct: versions of transformers differ in which they take";
        fields.agree("partial_rotary_factor", &config.rotary_percent.into(), said)?;
        Ok(config)
    }

    fn written(&self) -> Value {
        json!({
            "architectures": ["GPTNeoXForCausalLM"],
            "bos_token_id": null,
            "eos_token_id": null,
            "hidden_act": if self.tanh_gelu { "gelu_fast" } else { "gelu" },
            "intermediate_size": self.hidden_size(),
            "model_type": "gpt_neox",
            "rotary_emb_base": self.rotary_base,
            "rotary_pct": self.rotary_percent,
            "use_parallel_residual": self.parallel_residual,
        })
    }

    fn key(name: &str) -> Option<&str> {
        let of_layer = name.strip_prefix("layers.").and_then(|rest| rest.split_once('.'));
        match (name, of_layer) {
            (NEWER_HEAD, _) => Some(TABLE.files.head),
            // Masks and tables.
            (_, Some((_, "attention.bias" | "attention.masked_bias" | "attention.rotary_emb.inv_freq"))) => None,
            _ => Some(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::huggingface::{HuggingFaceFormat, checks};

    fn parse(value: Value) -> Result<NeoxConfig, String> {
        checks::parse(value)
    }

    #[test]
    fn presets_have_the_published_numbers_of_parameters() {
        // Pythia's model cards, and what transformers counts of the published GPT-NeoX-20B.
        let numbers = [
            70_426_624,
            162_322_944,
            405_334_016,
            1_011_781_632,
            1_414_647_808,
            2_775_208_960,
            6_857_302_016,
            11_846_072_320,
            20_554_567_680,
        ];
        checks::expect_numbers(PRESETS.iter().map(Preset::config), &numbers);
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
        let preset = |name: &str| Preset::<NeoxConfig>::named(name).expect("a preset").config();
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
        assert!(
            parse(newer)
                .unwrap_err()
                .contains("rope_parameters.rope_type is \"linear\": expected \"default\"")
        );
    }

    #[test]
    fn what_no_flag_chooses_is_read_back() {
        let config = NeoxConfig::new(3, 32, 4, 15, 61).with_parallel_residual(false);
        checks::expect_read_back(config.with_tanh_gelu(true).with_rotary_percent(0.5));
    }

    #[test]
    fn what_the_model_does_not_have_is_refused_by_name_and_value() {
        let others = [
            ("hidden_act", json!("relu"), "\"gelu_fast\""),
            ("rope_theta", json!(77), "10000.0, as rotary_emb_base"),
            ("rope_scaling", json!("linear"), "an object"),
            ("rotary_pct", json!(1.5), "and up to 1"),
            ("rotary_pct", json!(0.0), "a number above 0"),
            ("partial_rotary_factor", json!("half"), "0.25, as rotary_pct"),
            ("intermediate_size", json!(null), "from 1"),
            ("use_parallel_residual", json!("no"), "true or false"),
        ];
        checks::expect_refused::<NeoxConfig>(&pythia(), &others);
        let mut both = pythia();
        both["partial_rotary_factor"] = json!(0.5);
        assert!(
            parse(both)
                .unwrap_err()
                .contains("partial_rotary_factor is 0.5: expected 0.25")
        );
        let mut odd = pythia();
        odd["rotary_pct"] = json!(0.05);
        assert!(parse(odd).unwrap_err().contains("--rotary-percent"));
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
