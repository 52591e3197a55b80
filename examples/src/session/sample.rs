//! The text that the model writes while it is trained.

use anyhow::{Context as _, ensure};
use burn::module::Module as _;
use models::generation::{GenerationRequest, Generator, GeneratorConfig, SamplingConfig};
use models::{ModelFamily, Objective};

use super::Session;
use crate::arguments::SamplePrompt;
use crate::loading::does_not_continue;

impl<C: ModelFamily> Session<C> {
    /// Checks that the model can continue a text.
    ///
    /// # Errors
    /// When the family does not continue text; when it has no tokens and the tokenizer no end of a document, which
    /// would begin the text; when its tokens leave no position for another.
    pub fn check_sample(&self, prompt: &SamplePrompt) -> anyhow::Result<()> {
        ensure!(
            self.model.objective() == Objective::NextToken,
            "--log-samples-interval: {}",
            does_not_continue(C::NAME)
        );
        let has_end = self.tokenizer.tokenizer().end_of_document().is_some();
        check_prompt(self.sample_tokens(prompt).len(), has_end, self.model.max_seq_length())
    }

    /// Continues a text with the model as it is, by draws at temperature 1 whose seed is that of the run: what
    /// `generate_samples_gpt` writes with this seed from a checkpoint of this step. Returns the continuation on rank 0,
    /// nothing on other ranks. Training is not changed by it.
    ///
    /// # Communication
    /// Within each replica of the model, that of a generator for each token.
    ///
    /// # Errors
    /// When a rank fails or does not come in time; when scores are not finite.
    pub fn continue_text(&self, prompt: &SamplePrompt) -> anyhow::Result<Option<String>> {
        let tokens = self.sample_tokens(prompt);
        let positions = self.model.max_seq_length();
        let max_tokens = prompt.max_tokens.min(positions.saturating_sub(tokens.len().max(1)));
        // Of a clone: parameters that are gathered for this go with it.
        let chunks = C::predicting(self.trainer.model().clone().valid());
        let mut generator = Generator::new(
            chunks.with_context(|| does_not_continue(C::NAME))?,
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

/// Checks that a model of `positions` can continue a prompt of `tokens`, or the end of a document if it has none.
fn check_prompt(tokens: usize, has_end_of_document: bool, positions: usize) -> anyhow::Result<()> {
    ensure!(
        tokens > 0 || has_end_of_document,
        "a sample without a prompt begins at the end of a document, and this tokenizer has no token for that: give a \
         --sample-prompt of at least one token"
    );
    ensure!(
        tokens < positions,
        "--sample-prompt has {tokens} tokens, and the model {positions} positions: give a prompt of at most {} tokens",
        positions.saturating_sub(1)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check_prompt;

    #[test]
    fn prompts_that_cannot_be_continued_are_refused() {
        let refusal = |tokens, has_end| check_prompt(tokens, has_end, 8).err().map(|error| error.to_string());
        for (tokens, has_end) in [(0, true), (1, true), (1, false), (7, false)] {
            assert_eq!(refusal(tokens, has_end), None, "{tokens} tokens");
        }
        let message = refusal(0, false).unwrap();
        assert!(message.contains("--sample-prompt of at least one token"), "{message}");
        let message = refusal(8, true).unwrap();
        assert!(message.contains("has 8 tokens, and the model 8 positions"), "{message}");
    }
}
