//! `Decoder` with low-rank adapters, of which alone is trained.

use std::collections::BTreeSet;

use burn::module::Module;
use burn::tensor::backend::Backend;
use burn_megatron::context::ParallelContext;
use burn_megatron::tensor_parallel::{AdaptedFeatures, ColumnParallelLinear, LowRankConfig, RowParallelLinear};
use burn_megatron::topology::TopologyError;

use super::Decoder;
use crate::family::AdaptableStage;
use crate::huggingface::AdapterSite;
use crate::layers::{Block, ModelError};

impl<B: Backend> AdaptableStage<B> for Decoder<B> {
    fn with_adapters(
        self,
        sites: &[AdapterSite],
        config: &LowRankConfig,
        device: &B::Device,
        context: &ParallelContext,
    ) -> Result<(Self, BTreeSet<String>), ModelError> {
        let mut adapting = Adapting {
            sites,
            config,
            device,
            context,
            adapted: BTreeSet::new(),
        };
        let mut chunk = self.no_grad();
        let blocks = std::mem::take(&mut chunk.blocks).into_iter();
        chunk.blocks = blocks.map(|block| adapting.block(block)).collect::<Result<_, _>>()?;
        Ok((chunk, adapting.adapted))
    }
}

/// The adapters to make, and the names of those that have been made.
struct Adapting<'a, B: Backend> {
    sites: &'a [AdapterSite],
    config: &'a LowRankConfig,
    device: &'a B::Device,
    context: &'a ParallelContext,
    adapted: BTreeSet<String>,
}

impl<B: Backend> Adapting<'_, B> {
    fn block(&mut self, mut block: Block<B>) -> Result<Block<B>, TopologyError> {
        block.attention.qkv = self.columns(block.attention.qkv)?;
        block.attention.output = self.rows(block.attention.output);
        block.mlp.input = self.columns(block.mlp.input)?;
        block.mlp.output = self.rows(block.mlp.output);
        Ok(block)
    }

    fn columns(&mut self, layer: ColumnParallelLinear<B>) -> Result<ColumnParallelLinear<B>, TopologyError> {
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

    fn rows(&mut self, layer: RowParallelLinear<B>) -> RowParallelLinear<B> {
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
