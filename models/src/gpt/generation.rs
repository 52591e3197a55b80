//! `Gpt` as a [`GenerationStage`]: new tokens through the blocks that are here, with their keys and values kept.

use burn::tensor::Tensor;
use burn_megatron::collectives::CollectiveBackend;
use burn_megatron::tensor_parallel::{PageSizes, PagedKeyValues};

use super::Gpt;
use crate::generation::{GenerationStage, NewTokens};
use crate::layers::Block;

impl<B: CollectiveBackend> GenerationStage<B> for Gpt<B> {
    fn with_whole_tokens(self) -> Self {
        self.without_sequence_parallelism()
    }

    fn paged_key_values(&self, pages: PageSizes, device: &B::Device) -> Vec<PagedKeyValues<B>> {
        let pool = |block: &Block<B>| block.attention.paged_key_values(pages, device);
        self.h.iter().map(pool).collect()
    }

    fn forward_new(
        &self,
        input: Option<Tensor<B, 2>>,
        tokens: &NewTokens<B>,
        caches: &mut [PagedKeyValues<B>],
    ) -> Tensor<B, 2> {
        assert_eq!(caches.len(), self.h.len(), "a cache for each block");
        let hidden = match (input, &self.wte, &self.wpe) {
            (Some(input), _, _) => input,
            (None, Some(wte), Some(wpe)) => wpe.forward_at(wte.forward(tokens.ids.clone()), tokens.positions.clone()),
            _ => panic!("what is not the first stage of the model has an input"),
        };
        let blocks = self.h.iter().zip(caches);
        blocks.fold(hidden, |hidden, (block, cache)| {
            block.forward_paged(hidden, &tokens.paged, cache)
        })
    }

    fn score(&self, hidden: Tensor<B, 2>) -> Tensor<B, 2> {
        self.head().logits(self.normalized(hidden))
    }
}
