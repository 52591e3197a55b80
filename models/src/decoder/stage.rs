//! `Decoder` as a stage that is scored, generates, or has adapters.

use burn::tensor::{Device, Tensor};
use burn_megatron::pipeline_parallel::StageOutput;
use burn_megatron::tensor_parallel::{PageSizes, PagedKeyValues};
use burn_megatron::topology::TopologyError;
use burn_megatron::training::TokenBatch;

use super::Decoder;
use crate::adapting::{AdaptableStage, Adapting};
use crate::generation::{GenerationStage, NewTokens};
use crate::layers::Block;
use crate::scoring::ScoringStage;

/// The forward pass of training, with margins next to the losses.
impl ScoringStage for Decoder {
    fn forward_scored(&self, input: Option<Tensor<2>>, batch: &TokenBatch) -> StageOutput<2> {
        let (hidden, targets) = self.run_segment(&self.whole_segment(), input, batch);
        match targets {
            Some(targets) => StageOutput::Losses(self.losses_and_margins(self.normalized(hidden), targets)),
            None => StageOutput::Activation(hidden),
        }
    }
}

/// New tokens through the blocks that are here, with their keys and values kept.
impl GenerationStage for Decoder {
    fn with_whole_tokens(self) -> Self {
        self.without_sequence_parallelism()
    }

    fn paged_key_values(&self, pages: PageSizes, device: &Device) -> Vec<PagedKeyValues> {
        let pool = |block: &Block| block.attention.paged_key_values(pages, device);
        self.blocks.iter().map(pool).collect()
    }

    fn forward_new(&self, input: Option<Tensor<2>>, tokens: &NewTokens, caches: &mut [PagedKeyValues]) -> Tensor<2> {
        assert_eq!(caches.len(), self.blocks.len(), "a cache for each block");
        let hidden = match (input, &self.token_embedding) {
            (Some(input), _) => input,
            (None, Some(embedding)) => {
                let embedded = embedding.forward(tokens.ids.clone());
                let embedded = match &self.position_embedding {
                    Some(embedding) => embedding.forward_at(embedded, tokens.paged.positions()),
                    None => embedded,
                };
                self.normed_embedding(embedded)
            }
            (None, None) => panic!("what is not the first stage of the model has an input"),
        };
        let blocks = self.blocks.iter().zip(caches);
        blocks.fold(hidden, |hidden, (block, cache)| {
            block.forward_paged(hidden, &tokens.paged, cache)
        })
    }

    fn score(&self, hidden: Tensor<2>) -> Tensor<2> {
        self.scores(hidden)
    }
}

impl AdaptableStage for Decoder {
    fn adapted(mut self, adapting: &mut Adapting<'_>) -> Result<Self, TopologyError> {
        let blocks = std::mem::take(&mut self.blocks).into_iter();
        self.blocks = blocks.map(|block| adapting.block(block)).collect::<Result<_, _>>()?;
        Ok(self)
    }
}
