//! The text that the model writes while it is trained.

use anyhow::{Context as _, ensure};
use burn::module::AutodiffModule as _;
use models::ModelFamily;
use models::generation::{GenerationRequest, Generator, GeneratorConfig, SamplingConfig};

use super::Session;
use crate::device::TrainingBackend;

/// What is continued, and for how long.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamplePrompt {
    /// The beginning; if it is empty, that of a document.
    pub text: String,
    /// The most tokens of the continuation; fewer where the model has no more positions.
    pub max_tokens: usize,
}

impl<B: TrainingBackend, C: ModelFamily> Session<B, C> {
    /// Checks that the model can continue a text.
    ///
    /// # Errors
    /// When its tokens leave no position for another.
    pub fn check_sample(&self, prompt: &SamplePrompt) -> anyhow::Result<()> {
        let (tokens, positions) = (self.sample_tokens(prompt).len(), self.model.max_seq_length());
        ensure!(
            tokens < positions,
            "--sample-prompt has {tokens} tokens, and the model {positions} positions: give a prompt of at most {} \
             tokens",
            positions.saturating_sub(1)
        );
        Ok(())
    }

    /// Continues a text with the model as it is, by draws at temperature 1 whose seed is that of the run: what
    /// `generate_samples_gpt` writes with this seed from a checkpoint of this step. Returns the continuation on rank 0,
    /// nothing on other ranks. Training is not changed by it.
    ///
    /// # Communication
    /// Within each replica of the model, that of a [`Generator`] for each token.
    ///
    /// # Errors
    /// When a rank fails or does not come in time; when scores are not finite.
    pub fn continue_text(&self, prompt: &SamplePrompt) -> anyhow::Result<Option<String>> {
        let tokens = self.sample_tokens(prompt);
        let positions = self.model.max_seq_length();
        let max_tokens = prompt.max_tokens.min(positions.saturating_sub(tokens.len().max(1)));
        let mut generator = Generator::<B::InnerBackend, _>::new(
            self.trainer.model().valid(),
            &self.model,
            self.tokenizer.tokenizer().clone(),
            GeneratorConfig::new(1, tokens.len().max(1) + max_tokens),
            &self.context,
            &self.device,
        )?;
        // Replicas all write it: none waits for another.
        if !generator.is_first() {
            generator.serve()?;
            return Ok(None);
        }
        let sampling = SamplingConfig {
            seed: self.training.seed,
            ..SamplingConfig::default()
        };
        let submitted = generator.submit(GenerationRequest::new(tokens, max_tokens, sampling));
        submitted.context("the sample of the model in training")?;
        let mut text = String::new();
        while !generator.is_idle() {
            text.extend(generator.step()?.into_iter().map(|event| event.text));
        }
        generator.finish()?;
        Ok((self.context.rank() == 0).then_some(text))
    }

    fn sample_tokens(&self, prompt: &SamplePrompt) -> Vec<u32> {
        let mut tokens = Vec::new();
        self.tokenizer.tokenizer().encode_prompt(&prompt.text, &mut tokens);
        tokens
    }
}
