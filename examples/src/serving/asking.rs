//! [`Asked`]: what a request of either API asks for; and its outputs, as they grow.

use burn_megatron_data::tokenizer::Tokenizer;
use models::generation::{FinishReason, GenerationRequest, SamplingConfig, TextStream, TokenScore};

use super::app::{App, Prompt};
use super::engine::{Job, JobEvent, Phase};
use super::error::ApiError;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout_at};

/// The most outputs of a request, all its prompts together.
pub(super) const MOST_OUTPUTS: usize = 128;

/// What both APIs ask for.
#[derive(Clone, Debug, Default)]
pub(super) struct Asked {
    pub(super) prompts: Vec<Prompt>,
    /// `None` for what the model has positions left for; 0 to have nothing but the prompt, scored perhaps.
    pub(super) max_new_tokens: Option<usize>,
    /// The number of continuations of each prompt.
    pub(super) num_samples: usize,
    /// `None` for a seed of its own.
    pub(super) seed: Option<u64>,
    pub(super) sampling: SamplingConfig,
    pub(super) stop: Vec<String>,
    pub(super) stop_tokens: Vec<Vec<u32>>,
    pub(super) top_log_probabilities: usize,
    /// Whether the prompts' tokens are scored too.
    pub(super) scores_prompt: bool,
    pub(super) ignores_end_of_document: bool,
}

impl Asked {
    /// Hands the request in, and waits until it is taken.
    ///
    /// # Errors
    /// When it asks for more than the limits, or too much is being done.
    pub(super) async fn begin(self, app: &Arc<App>) -> Result<Generating, ApiError> {
        let deadline = Instant::now() + app.limits.request_timeout();
        match app.engine.phase() {
            Phase::Serving => {}
            Phase::Draining => return Err(ApiError::unavailable("the server was asked to stop")),
            Phase::Ended(reason) => return Err(ApiError::unavailable(reason)),
        }
        let permit = app.permit()?;
        self.check_outputs()?;
        let (num_samples, has_output) = (self.num_samples, self.max_new_tokens != Some(0));
        // Turning a long text into tokens takes a while, in which others are served.
        let for_thread = app.clone();
        let texts = self.prompts.iter().map(Prompt::text).collect();
        let requests = tokio::task::spawn_blocking(move || self.requests(&for_thread)).await;
        let requests = requests.map_err(|_| ApiError::bad_request("the tokenizer does not take this prompt"))??;
        let prompts = requests.iter().map(|request| request.prompt.clone()).collect();
        let mut generating = Generating {
            prompts,
            texts,
            num_samples,
            has_output,
            lengths: vec![0; requests.len() * num_samples],
            left: requests.len() * num_samples,
            job: app.engine.submit(requests),
            deadline,
            timeout_secs: app.limits.request_timeout_secs,
            _permit: permit,
        };
        match generating.next_event().await? {
            JobEvent::Accepted => Ok(generating),
            JobEvent::Refused(error) => Err(error.into()),
            JobEvent::Ended(reason) => Err(ApiError::unavailable(reason)),
            JobEvent::Token { .. } => unreachable!("a job is accepted first"),
        }
    }

    fn check_outputs(&self) -> Result<(), ApiError> {
        let outputs = self.prompts.len().saturating_mul(self.num_samples);
        if outputs == 0 || outputs > MOST_OUTPUTS {
            return Err(ApiError::bad_request(format!(
                "a request has from 1 to {MOST_OUTPUTS} outputs, got {} prompts of {} outputs each",
                self.prompts.len(),
                self.num_samples
            )));
        }
        Ok(())
    }

    /// A request of the generator for each prompt. The prompt's place is its number among the draws, as the lines of
    /// `generate_samples_gpt --prompt-file` are.
    fn requests(self, app: &App) -> Result<Vec<GenerationRequest>, ApiError> {
        let Self {
            prompts,
            max_new_tokens,
            num_samples,
            seed,
            sampling,
            stop,
            stop_tokens,
            top_log_probabilities,
            scores_prompt,
            ignores_end_of_document,
        } = self;
        let sampling = SamplingConfig {
            seed: match seed {
                Some(seed) => seed,
                None => getrandom::u64().map_err(|error| ApiError::unavailable(format!("no seed: {error}")))?,
            },
            ..sampling
        };
        let prompts = prompts.into_iter().enumerate();
        let request = prompts.map(|(number, prompt)| {
            let tokens = app.tokens(prompt)?;
            // Of a prompt that is to be scored alone, the token after it is not shown.
            let left = app.engine.max_seq_length().saturating_sub(tokens.len());
            let max_new_tokens = max_new_tokens.unwrap_or(left).max(1);
            Ok(GenerationRequest {
                number: number as u64,
                num_samples,
                stop: stop.clone(),
                stop_tokens: stop_tokens.clone(),
                top_log_probabilities,
                scores_prompt,
                ignores_end_of_document,
                ..GenerationRequest::new(tokens, max_new_tokens, sampling.clone())
            })
        });
        request.collect()
    }
}

/// A request that is being served. What is left of it is cancelled when it is dropped.
pub(super) struct Generating {
    /// The tokens of each prompt.
    pub(super) prompts: Vec<Vec<u32>>,
    /// The text of each, where it was given as one.
    texts: Vec<Option<String>>,
    num_samples: usize,
    /// True if outputs have tokens.
    has_output: bool,
    /// Characters of each output that are certain.
    lengths: Vec<usize>,
    /// Outputs that have not ended.
    left: usize,
    job: Job,
    deadline: Instant,
    timeout_secs: f64,
    /// One of the places of requests that are served.
    _permit: OwnedSemaphorePermit,
}

impl Generating {
    /// The number of outputs, of all prompts together.
    pub(super) fn num_outputs(&self) -> usize {
        self.prompts.len() * self.num_samples
    }

    /// The number of outputs of each prompt.
    pub(super) fn num_samples(&self) -> usize {
        self.num_samples
    }

    pub(super) fn prompt_of(&self, output: usize) -> &[u32] {
        &self.prompts[output / self.num_samples]
    }

    /// The prompt of an output as it was given; the text of its tokens, special ones too, if they were.
    pub(super) fn shown_prompt(&self, output: usize, tokenizer: &dyn Tokenizer) -> String {
        let text = self.texts[output / self.num_samples].clone();
        text.unwrap_or_else(|| tokenizer.decode_with_special(self.prompt_of(output)))
    }

    /// Waits for the next piece of an output; `None` after the last one.
    ///
    /// # Errors
    /// When the time of the request is over, or the server ends.
    pub(super) async fn next(&mut self) -> Result<Option<Piece>, ApiError> {
        if self.left == 0 {
            return Ok(None);
        }
        match self.next_event().await? {
            JobEvent::Token { prompt, event } => {
                self.left -= usize::from(event.finished.is_some());
                let output = prompt * self.num_samples + event.sample;
                let mut piece = Piece {
                    output,
                    text: String::new(),
                    prompt: event.prompt,
                    token: None,
                    finished: Some(FinishReason::Length),
                };
                if self.has_output {
                    let offset = self.lengths[output];
                    self.lengths[output] += event.text.chars().count();
                    piece.text = event.text;
                    piece.finished = event.finished;
                    piece.token = Some(OutputToken {
                        token: event.token,
                        log_probability: Some(event.log_probability),
                        top: event.top,
                        offset,
                    });
                }
                Ok(Some(piece))
            }
            JobEvent::Ended(reason) => Err(ApiError::unavailable(reason)),
            JobEvent::Refused(error) => Err(error.into()),
            JobEvent::Accepted => unreachable!("a job is accepted once"),
        }
    }

    async fn next_event(&mut self) -> Result<JobEvent, ApiError> {
        timeout_at(self.deadline, self.job.next()).await.map_err(|_| {
            ApiError::new(
                axum::http::StatusCode::GATEWAY_TIMEOUT,
                format!("the request has taken longer than {} s", self.timeout_secs),
            )
        })
    }

    /// Waits for all outputs.
    pub(super) async fn outputs(&mut self) -> Result<Vec<Output>, ApiError> {
        let mut outputs = vec![Output::default(); self.num_outputs()];
        while let Some(piece) = self.next().await? {
            outputs[piece.output].add(piece);
        }
        Ok(outputs)
    }
}

/// A piece of an output: a token, and the text that is certain with it.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) output: usize,
    pub(super) text: String,
    /// The scores of the prompt's tokens but the first, with the output's first piece, if they were asked for.
    pub(super) prompt: Vec<TokenScore>,
    /// `None` where nothing but the prompt was asked for.
    pub(super) token: Option<OutputToken>,
    pub(super) finished: Option<FinishReason>,
}

/// What was generated after a prompt.
#[derive(Clone, Debug, Default)]
pub(super) struct Output {
    pub(super) text: String,
    /// The scores of the prompt's tokens but the first, if they were asked for.
    pub(super) prompt: Vec<TokenScore>,
    pub(super) tokens: Vec<OutputToken>,
    pub(super) finished: Option<FinishReason>,
}

/// A token of an output, or of the prompt before it.
#[derive(Clone, Debug)]
pub(super) struct OutputToken {
    pub(super) token: u32,
    /// `None` of the first token of a prompt, which comes after nothing.
    pub(super) log_probability: Option<f64>,
    pub(super) top: Vec<(u32, f64)>,
    /// Characters of the output's text, or of the prompt's, that were certain before it.
    pub(super) offset: usize,
}

impl OutputToken {
    /// The same token of a text that `start` characters come before.
    pub(super) fn after(self, start: usize) -> Self {
        Self {
            offset: start + self.offset,
            ..self
        }
    }
}

/// Returns the tokens of a prompt with their scores, which are those of all but the first. `shown` is its text, in
/// which a special token has the characters that it has there.
pub(super) fn prompt_tokens(
    prompt: &[u32],
    scores: Vec<TokenScore>,
    tokenizer: &Arc<dyn Tokenizer>,
    shown: &str,
) -> Vec<OutputToken> {
    let mut text = TextStream::new(tokenizer.clone(), Vec::new(), Vec::new());
    let mut offset = 0;
    let scores = std::iter::once(None).chain(scores.into_iter().map(Some));
    let tokens = prompt.iter().zip(scores).map(|(&token, score)| {
        let before = offset;
        offset += text.push(token).0.chars().count();
        if tokenizer.special_tokens().binary_search(&token).is_ok() {
            let name = tokenizer.token_text(token);
            let mut rest = shown.chars().skip(offset);
            if name.chars().all(|character| rest.next() == Some(character)) {
                offset += name.chars().count();
            }
        }
        let (log_probability, top) = score.map_or((None, Vec::new()), |score| (Some(score.log_probability), score.top));
        OutputToken {
            token,
            log_probability,
            top,
            offset: before,
        }
    });
    tokens.collect()
}

impl Output {
    fn add(&mut self, mut piece: Piece) {
        self.text += &piece.text;
        self.finished = piece.finished;
        self.prompt.append(&mut piece.prompt);
        self.tokens.extend(piece.token);
    }

    /// The mean of the tokens' log-probabilities, in nats.
    pub(super) fn mean_log_probability(&self) -> f64 {
        let sum: f64 = self.tokens.iter().filter_map(|token| token.log_probability).sum();
        sum / self.tokens.len().max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use burn_megatron_data::tokenizer::HuggingFaceTokenizer;

    use super::*;

    #[test]
    fn special_tokens_of_a_prompt_have_the_characters_that_are_shown() {
        let json = r#"{"version": "1.0",
            "added_tokens": [{"id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                "normalized": false, "special": true}],
            "decoder": {"type": "Fuse"},
            "model": {"type": "BPE", "vocab": {"<s>": 0, "é": 1, "b": 2}, "merges": []}}"#;
        let tokenizer: Arc<dyn Tokenizer> = Arc::new(HuggingFaceTokenizer::from_json(json.as_bytes(), &[]).unwrap());
        for (shown, expected) in [
            ("<s>éb<s>", [0, 3, 4, 5]),
            ("éb", [0, 0, 1, 2]),
            ("éb<s>", [0, 0, 1, 2]),
        ] {
            let score = |token| TokenScore {
                token,
                log_probability: 0.0,
                top: Vec::new(),
            };
            let tokens = prompt_tokens(&[0, 1, 2, 0], [1, 2, 0].map(score).to_vec(), &tokenizer, shown);
            assert_eq!(
                tokens.iter().map(|token| token.offset).collect::<Vec<_>>(),
                expected,
                "{shown}"
            );
        }
    }
}
