//! `Decoder` with low-rank adapters, which alone are trained.

use std::collections::BTreeSet;

use burn::module::Module;
use burn::tensor::backend::Backend;
use burn_megatron::context::ParallelContext;
use burn_megatron::tensor_parallel::LowRankConfig;

use super::Decoder;
use crate::adapting::Adapting;
use crate::family::AdaptableStage;
use crate::huggingface::AdapterSite;
use crate::layers::ModelError;

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
