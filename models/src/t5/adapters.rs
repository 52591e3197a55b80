//! `T5` with low-rank adapters, which alone are trained.

use burn_megatron::topology::TopologyError;

use super::{DecoderBlock, T5};
use crate::adapting::{AdaptableStage, Adapting};

impl AdaptableStage for T5 {
    fn adapted(mut self, adapting: &mut Adapting<'_>) -> Result<Self, TopologyError> {
        let encoder = std::mem::take(&mut self.encoder).into_iter();
        self.encoder = encoder.map(|block| adapting.block(block)).collect::<Result<_, _>>()?;
        let decoder = std::mem::take(&mut self.decoder).into_iter();
        self.decoder = decoder
            .map(|block| adapted(block, adapting))
            .collect::<Result<_, _>>()?;
        Ok(self)
    }
}

fn adapted(mut block: DecoderBlock, adapting: &mut Adapting<'_>) -> Result<DecoderBlock, TopologyError> {
    block.attention = adapting.attention(block.attention)?;
    block.cross.query = adapting.columns(block.cross.query)?;
    block.cross.key_value = adapting.columns(block.cross.key_value)?;
    block.cross.output = adapting.rows(block.cross.output);
    block.mlp = adapting.mlp(block.mlp)?;
    Ok(block)
}
