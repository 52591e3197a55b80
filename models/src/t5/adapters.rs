//! `T5` with low-rank adapters, which alone are trained.

use std::collections::BTreeSet;

use burn::module::Module;
use burn::tensor::backend::Backend;
use burn_megatron::context::ParallelContext;
use burn_megatron::tensor_parallel::LowRankConfig;
use burn_megatron::topology::TopologyError;

use super::{DecoderBlock, T5};
use crate::adapting::Adapting;
use crate::family::AdaptableStage;
use crate::huggingface::AdapterSite;
use crate::layers::ModelError;

impl<B: Backend> AdaptableStage<B> for T5<B> {
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
        let encoder = std::mem::take(&mut chunk.encoder).into_iter();
        chunk.encoder = encoder.map(|block| adapting.block(block)).collect::<Result<_, _>>()?;
        let decoder = std::mem::take(&mut chunk.decoder).into_iter();
        chunk.decoder = decoder
            .map(|block| adapted(block, &mut adapting))
            .collect::<Result<_, _>>()?;
        Ok((chunk, adapting.adapted))
    }
}

fn adapted<B: Backend>(
    mut block: DecoderBlock<B>,
    adapting: &mut Adapting<'_, B>,
) -> Result<DecoderBlock<B>, TopologyError> {
    block.attention = adapting.attention(block.attention)?;
    block.cross.query = adapting.columns(block.cross.query)?;
    block.cross.key_value = adapting.columns(block.cross.key_value)?;
    block.cross.output = adapting.rows(block.cross.output);
    block.mlp = adapting.mlp(block.mlp)?;
    Ok(block)
}
