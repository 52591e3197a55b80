//! [`GenerationRequest`]: what is asked of a generator; [`GenerationEvent`]: what it gives.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::sampling::{SamplingConfig, SamplingError};

const MOST_SAMPLES: usize = 1 << 16;
/// The most tokens whose log-probabilities a draw gives.
const MOST_LOG_PROBABILITIES: usize = 1024;

/// A prompt, and how it is to be continued.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationRequest {
    /// The tokens of the prompt; the end-of-document token, if there are none.
    pub prompt: Vec<u32>,
    pub max_new_tokens: usize,
    pub sampling: SamplingConfig,
    /// The request's number among the draws, see [`DrawPlace`](super::DrawPlace): requests of the same number, seed and
    /// prompt have the same text.
    pub number: u64,
    /// Continuations of the prompt, each drawn for itself.
    pub num_samples: usize,
    /// Texts that end a sample. They are no part of it.
    pub stop: Vec<String>,
    /// Tokens that end a sample, one after the other. They are no part of its text.
    pub stop_tokens: Vec<Vec<u32>>,
    /// The most probable tokens whose log-probabilities are given with each one drawn.
    pub top_log_probabilities: usize,
    /// Whether the log-probabilities of the prompt's tokens are given, too: see [`GenerationEvent::prompt`].
    pub scores_prompt: bool,
    /// Whether samples continue after an end of a document.
    pub ignores_end_of_document: bool,
}

impl GenerationRequest {
    /// Returns a request for one sample of at most `max_new_tokens`, without stop sequences.
    pub fn new(prompt: Vec<u32>, max_new_tokens: usize, sampling: SamplingConfig) -> Self {
        Self {
            prompt,
            max_new_tokens,
            sampling,
            number: 0,
            num_samples: 1,
            stop: Vec::new(),
            stop_tokens: Vec::new(),
            top_log_probabilities: 0,
            scores_prompt: false,
            ignores_end_of_document: false,
        }
    }

    /// The tokens whose keys and values a sample needs in the end: the last token that is drawn is not computed with.
    pub(super) fn cached_tokens(&self) -> usize {
        self.prompt.len().saturating_add(self.max_new_tokens) - 1
    }

    /// Checks a request whose prompt is not empty against a model's limits.
    pub(super) fn validate(&self, max_seq_length: usize, vocab_size: usize) -> Result<(), RequestError> {
        self.sampling.validate()?;
        for (name, value, most) in [
            ("max_new_tokens", self.max_new_tokens, usize::MAX),
            ("num_samples", self.num_samples, MOST_SAMPLES),
        ] {
            if value == 0 || value > most {
                return Err(RequestError::OutOfRange { name, value, most });
            }
        }
        if self.top_log_probabilities > MOST_LOG_PROBABILITIES {
            return Err(RequestError::OutOfRange {
                name: "top_log_probabilities",
                value: self.top_log_probabilities,
                most: MOST_LOG_PROBABILITIES,
            });
        }
        // The last token that is drawn has no position: nothing is computed with it.
        if self.cached_tokens() > max_seq_length {
            return Err(RequestError::TooLong {
                prompt: self.prompt.len(),
                max_new_tokens: self.max_new_tokens,
                max_seq_length,
            });
        }
        let biased = self.sampling.logit_bias.iter().map(|(token, _)| token);
        let tokens = self
            .prompt
            .iter()
            .chain(self.stop_tokens.iter().flatten())
            .chain(biased);
        if let Some(&token) = tokens.into_iter().find(|token| **token as usize >= vocab_size) {
            return Err(RequestError::UnknownToken { token, vocab_size });
        }
        if self.stop.iter().any(String::is_empty) || self.stop_tokens.iter().any(Vec::is_empty) {
            return Err(RequestError::EmptyStop);
        }
        Ok(())
    }
}

/// The name of a request that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RequestId(pub(super) u64);

impl fmt::Display for RequestId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// A request that is refused. Nothing was computed.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum RequestError {
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    #[error("{name} must be from 1 to {most}, got {value}")]
    OutOfRange {
        name: &'static str,
        value: usize,
        most: usize,
    },
    #[error(
        "a prompt of {prompt} tokens and an output of up to {max_new_tokens} do not fit the model's {max_seq_length} \
         positions: ask for at most {} tokens of output, or shorten the prompt",
        (max_seq_length + 1).saturating_sub(*prompt)
    )]
    TooLong {
        prompt: usize,
        max_new_tokens: usize,
        max_seq_length: usize,
    },
    #[error("token {token} is outside the vocabulary of {vocab_size} tokens")]
    UnknownToken { token: u32, vocab_size: usize },
    #[error("a stop sequence must have a token or a character at least")]
    EmptyStop,
    #[error("the prompt is empty, and the vocabulary has no end-of-document token to begin with: give a prompt")]
    EmptyPrompt,
    #[error("a sample needs {needed} pages of the cache, which has {num_pages}")]
    LargerThanCache { needed: usize, num_pages: usize },
    #[error(
        "{waiting} samples would wait, at most {most} may: this request needs {needed} pages of the cache, of which \
         {free} are free"
    )]
    QueueFull {
        /// Samples that would wait after the next step.
        waiting: usize,
        most: usize,
        /// Pages that the request's samples need together.
        needed: usize,
        free: usize,
    },
    #[error("requests are for the first rank of a replica of the model, and this is rank {rank}")]
    OtherRank { rank: usize },
}

/// Why a sample has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// It has the number of tokens that was asked for.
    Length,
    /// It has come to a stop sequence.
    Stop,
    /// It has come to the end of the document.
    EndOfDocument,
}

/// A token of a prompt, as the model scores it after those before it.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenScore {
    pub token: u32,
    /// The logarithm of its probability, in nats.
    pub log_probability: f64,
    /// The most probable tokens and the logarithms of their probabilities, the most probable first.
    pub top: Vec<(u32, f64)>,
}

/// A token that was drawn for a sample.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerationEvent {
    pub request: RequestId,
    /// The sample's number in the request.
    pub sample: usize,
    pub token: u32,
    /// The logarithm of its probability, in nats, by the model's own scores.
    pub log_probability: f64,
    /// The most probable tokens and the logarithms of their probabilities, the most probable first.
    pub top: Vec<(u32, f64)>,
    /// The scores of the prompt's tokens but the first, with the sample's first token, if they were asked for.
    pub prompt: Vec<TokenScore>,
    /// See [`Choice::margin`](super::Choice::margin).
    pub margin: f64,
    /// The text that is certain now: whole characters, and nothing that may be the beginning of a stop sequence. The
    /// sample's text is the texts of its events, one after the other.
    pub text: String,
    /// Why the sample ends with this token, if it does.
    pub finished: Option<FinishReason>,
}
