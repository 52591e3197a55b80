//! [`AdapterConfig`]: the adapters of a model.

use burn_megatron::tensor_parallel::LowRankConfig;
use burn_megatron::topology::TopologyError;
use serde::{Deserialize, Serialize};

use super::sites::{AdapterSite, linear_layers};
use crate::huggingface::HuggingFaceFormat;

/// Which linear layers of a model have adapters, and which adapters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdapterConfig {
    /// The adapters' rank, alpha and dropout.
    pub low_rank: LowRankConfig,
    /// The names of layers in Hugging Face's files, or their last parts, as `q_proj` and `mlp.c_proj`: in every block.
    pub targets: Vec<String>,
}

impl AdapterConfig {
    /// Returns the configuration with the model's attention projections as targets, where none is given.
    pub fn new<C: HuggingFaceFormat>(
        low_rank: LowRankConfig,
        targets: Vec<String>,
        model: &C,
    ) -> Result<Self, TopologyError> {
        let targets = if targets.is_empty() {
            Self::targets_of(model, AdapterSite::is_of_attention)
        } else {
            targets
        };
        let config = Self { low_rank, targets };
        config.sites(model)?;
        Ok(config)
    }

    /// Returns the shortest targets that are those of a model's layers that have an adapter, and of no other.
    pub(super) fn targets_of<C: HuggingFaceFormat>(model: &C, has: impl Fn(&AdapterSite) -> bool) -> Vec<String> {
        targets_of(&linear_layers(model), has)
    }

    /// Returns the layers that have an adapter, in the model's order.
    ///
    /// # Errors
    /// The rank is 0, or another number is not valid; a target is no linear layer of a block: names it, and those there
    /// are.
    pub fn sites<C: HuggingFaceFormat>(&self, model: &C) -> Result<Vec<AdapterSite>, TopologyError> {
        self.low_rank.validate()?;
        let layers = linear_layers(model);
        if self.targets.is_empty() {
            return Err(TopologyError::Setting(format!(
                "adapters have no targets: expected some of {}",
                listed(&layers)
            )));
        }
        for target in &self.targets {
            if !layers.iter().any(|layer| layer.is_called(target)) {
                return Err(TopologyError::Setting(format!(
                    "{target:?} is no linear layer of a block of this model: expected some of {}",
                    listed(&layers)
                )));
            }
        }
        let is_target = |layer: &AdapterSite| self.targets.iter().any(|target| layer.is_called(target));
        Ok(layers.into_iter().filter(is_target).collect())
    }
}

/// The layers' last names, each once, in the model's order.
fn listed(layers: &[AdapterSite]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for layer in layers {
        let name = layer.last_name();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.join(", ")
}

/// The shortest names that only layers of which `is_chosen` is true have, each once.
fn targets_of(layers: &[AdapterSite], is_chosen: impl Fn(&AdapterSite) -> bool) -> Vec<String> {
    let mut targets: Vec<String> = Vec::new();
    for layer in layers.iter().filter(|layer| is_chosen(layer)) {
        let is_clear = |name: &&str| {
            let mut called = layers.iter().filter(|other| other.is_called(name));
            called.all(&is_chosen)
        };
        let target = layer.last_names().find(is_clear).unwrap_or(&layer.module);
        if !targets.iter().any(|known| known == target) {
            targets.push(target.to_owned());
        }
    }
    targets
}
