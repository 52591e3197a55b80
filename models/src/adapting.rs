//! [`AdaptableStage`] and [`Adapting`]: low-rank adapters for the linear layers of blocks.

use burn::tensor::Device;
use std::collections::BTreeSet;

use burn_megatron::context::ParallelContext;
use burn_megatron::tensor_parallel::{AdaptedFeatures, ColumnParallelLinear, LowRankConfig, RowParallelLinear};
use burn_megatron::topology::TopologyError;

use crate::huggingface::AdapterSite;
use crate::layers::{Block, CausalSelfAttention, Mlp};

/// A chunk of a pipeline stage whose linear layers take low-rank adapters.
pub trait AdaptableStage: Sized {
    /// Returns the chunk with the adapters that are in it.
    ///
    /// # Errors
    /// When the ranks cannot share out the features that an adapter is of.
    fn adapted(self, adapting: &mut Adapting<'_>) -> Result<Self, TopologyError>;
}

/// The adapters to make, and the names of those that have been made.
pub struct Adapting<'a> {
    pub(crate) sites: &'a [AdapterSite],
    pub(crate) config: &'a LowRankConfig,
    pub(crate) device: &'a Device,
    pub(crate) context: &'a ParallelContext,
    pub(crate) adapted: BTreeSet<String>,
}

impl Adapting<'_> {
    pub(crate) fn block(&mut self, mut block: Block) -> Result<Block, TopologyError> {
        block.attention = self.attention(block.attention)?;
        block.mlp = self.mlp(block.mlp)?;
        Ok(block)
    }

    pub(crate) fn attention(
        &mut self,
        mut attention: CausalSelfAttention,
    ) -> Result<CausalSelfAttention, TopologyError> {
        attention.qkv = self.columns(attention.qkv)?;
        attention.output = self.rows(attention.output);
        Ok(attention)
    }

    pub(crate) fn mlp(&mut self, mut mlp: Mlp) -> Result<Mlp, TopologyError> {
        mlp.input = self.columns(mlp.input)?;
        mlp.output = self.rows(mlp.output);
        Ok(mlp)
    }

    pub(crate) fn columns(&mut self, layer: ColumnParallelLinear) -> Result<ColumnParallelLinear, TopologyError> {
        let [d_input, d_output] = [layer.d_input(), layer.d_output()];
        let of_layer = self.sites_of(layer.name());
        let features: Vec<AdaptedFeatures> = of_layer
            .map(|site| {
                assert_eq!(site.d_input, d_input, "the input of {}", site.name);
                let all = || AdaptedFeatures {
                    name: site.name.clone(),
                    groups: 1,
                    features: 0..d_output,
                };
                site.of_layer.clone().unwrap_or_else(all)
            })
            .collect();
        if features.is_empty() {
            return Ok(layer);
        }
        self.adapted
            .extend(features.iter().map(|features| features.name.clone()));
        layer.with_adapters(&features, self.config, self.device, self.context)
    }

    pub(crate) fn rows(&mut self, layer: RowParallelLinear) -> RowParallelLinear {
        let name = self.sites_of(layer.name()).map(|site| site.name.clone()).next();
        match name {
            None => layer,
            Some(name) => {
                let adapted = layer.with_adapter(&name, self.config, self.device, self.context);
                self.adapted.insert(name);
                adapted
            }
        }
    }

    fn sites_of(&self, layer: &str) -> impl Iterator<Item = &AdapterSite> {
        self.sites.iter().filter(move |site| site.layer == layer)
    }
}
