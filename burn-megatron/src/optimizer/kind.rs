//! `OptimizerKind`: which optimizer, without its numbers.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::{AdafactorConfig, MuonConfig};
use crate::data_parallel::GradientEntry;

/// An optimizer by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum OptimizerKind {
    /// [`AdamW`](super::AdamW): Megatron-LM's `adam`.
    AdamW,
    /// [`Adam`](super::Adam), whose weight decay is a term of the gradient.
    Adam,
    /// [`Sgd`](super::Sgd).
    Sgd,
    /// [`Lion`](super::Lion).
    Lion,
    /// [`Muon`](super::Muon) for matrices, AdamW for what is none.
    Muon,
    /// [`Adafactor`](super::Adafactor).
    Adafactor,
}

/// The names of all optimizers: `adam` is AdamW, as in Megatron-LM.
const NAMES: [(&str, OptimizerKind); 6] = [
    ("adam", OptimizerKind::AdamW),
    ("adam_l2", OptimizerKind::Adam),
    ("sgd", OptimizerKind::Sgd),
    ("lion", OptimizerKind::Lion),
    ("muon", OptimizerKind::Muon),
    ("adafactor", OptimizerKind::Adafactor),
];

impl fmt::Display for OptimizerKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, kind)| kind == self);
        formatter.pad(name.expect("each has one").0)
    }
}

impl FromStr for OptimizerKind {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || NAMES.map(|(name, _)| name).join(", ");
        let found = NAMES.iter().find(|(name, _)| *name == text);
        found
            .map(|(_, kind)| *kind)
            .ok_or_else(|| format!("no optimizer is called {text:?}; there are {}", names()))
    }
}

/// An optimizer by its name, and the numbers of those that have settings of their own.
///
/// Those of AdamW and Adam, and the momentum of gradient descent, are fields of
/// [`TrainingConfig`](crate::training::TrainingConfig).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimizerChoice {
    /// Which optimizer.
    pub kind: OptimizerKind,
    /// What Lion's mean of gradients counts in the direction of a step, and its decay.
    pub lion_betas: [f64; 2],
    /// Muon's settings; the weight decay is the run's.
    pub muon: MuonConfig,
    /// Adafactor's settings; the weight decay is the run's.
    #[serde(default = "AdafactorConfig::new")]
    pub adafactor: AdafactorConfig,
}

impl OptimizerChoice {
    /// Returns an optimizer with the numbers of its paper.
    pub fn new(kind: OptimizerKind) -> Self {
        Self {
            kind,
            lion_betas: [0.9, 0.99],
            muon: MuonConfig::new(),
            adafactor: AdafactorConfig::new(),
        }
    }
}

/// Whether a parameter is a matrix of a hidden layer, which [`Muon`](super::Muon) is for: one of two dimensions on this
/// rank, with the number of a layer in its name, and neither `embed` nor `bias`.
pub fn is_hidden_matrix(entry: &GradientEntry) -> bool {
    entry.dimensions() == 2 && is_hidden(&entry.name)
}

fn is_hidden(name: &str) -> bool {
    let has_layer = name.split('.').any(|part| part.parse::<usize>().is_ok());
    has_layer && !name.contains("embed") && !name.contains("bias")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_layers_have_numbers() {
        for name in ["h.11.attn.c_attn.weight", "model.layers.0.mlp.down_proj.weight"] {
            assert!(is_hidden(name), "{name}");
        }
        for name in [
            "wte.weight",
            "lm_head.weight",
            "encoder.block.0.relative_attention_bias.weight",
        ] {
            assert!(!is_hidden(name), "{name}");
        }
    }

    #[test]
    fn names_are_read_as_they_are_written() {
        for (name, kind) in NAMES {
            assert_eq!((name.parse(), kind.to_string()), (Ok(kind), name.to_owned()));
        }
    }
}
