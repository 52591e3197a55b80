//! [`Architecture`]: what a model is made of, in the words of Megatron-LM's flags. Pure.

/// Parts of a model. A family is one architecture, of which it leaves some parts to its configuration; flags may
/// say what it is, or choose these.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Architecture {
    /// Which norms, `LayerNorm` or `RMSNorm`; `None` if the family does not say.
    pub normalization: Option<&'static str>,
    /// How the model knows where a token is: `learned_absolute`, `rope` or `alibi`; `None` if the family does not say.
    pub positions: Option<&'static str>,
    /// The share of a head that rotary positions turn; `None` without them.
    pub rotary_percent: Option<f64>,
    /// The earlier tokens that a token attends to; `None` if all.
    pub window_size: Option<usize>,
    /// True if the MLP is gated by SiLU.
    pub swiglu: bool,
    /// True if linear layers have no bias, except maybe that of queries, keys and values.
    pub disable_bias_linear: bool,
    /// True if queries and keys are normed.
    pub qk_layernorm: bool,
    /// True if several heads share a key head.
    pub group_query_attention: bool,
}

impl Architecture {
    /// Returns the value of a flag; of one that is there or not, `true` or `false`. `None` if there is nothing that it
    /// would be the value of.
    pub fn value_of(&self, flag: &str) -> Option<String> {
        match flag {
            "--normalization" => self.normalization.map(str::to_owned),
            "--position-embedding-type" => self.positions.map(str::to_owned),
            "--rotary-percent" => self.rotary_percent.map(|percent| percent.to_string()),
            "--window-size" => self.window_size.map(|window| window.to_string()),
            "--swiglu" => Some(self.swiglu.to_string()),
            "--disable-bias-linear" => Some(self.disable_bias_linear.to_string()),
            "--qk-layernorm" => Some(self.qk_layernorm.to_string()),
            "--group-query-attention" => Some(self.group_query_attention.to_string()),
            _ => None,
        }
    }
}
