//! [`Completion`]: the answers of OpenAI's APIs, whole or as pieces of a stream.

use std::collections::BTreeMap;
use std::sync::Arc;

use burn_megatron_data::tokenizer::Tokenizer;
use models::generation::{FinishReason, TokenScore};
use serde_json::{Value, json};

use super::app::{App, now};
use super::asking::{Generating, OutputToken, prompt_tokens};
use super::error::ApiError;
use super::shared_fields::Delivery;
use super::token_text::{TokenText, named_top};

/// Which API is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// `/v1/completions`.
    Text,
    /// `/v1/chat/completions`.
    Chat,
}

/// The part of an output that an answer has: all of it, or a piece of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Whole,
    First,
    Next,
}

/// What a completion's answers share.
pub(super) struct Completion {
    pub(super) shape: Shape,
    id: String,
    created: u64,
    model: String,
    /// Whether the outputs begin with their prompts.
    pub(super) echoes: bool,
    pub(super) has_log_probabilities: bool,
    pub(super) delivery: Delivery,
    tokenizer: Arc<dyn Tokenizer>,
}

/// An output, or a piece of one.
pub(super) struct Choice {
    pub(super) index: usize,
    pub(super) part: Part,
    pub(super) text: String,
    pub(super) tokens: Vec<OutputToken>,
    pub(super) finished: Option<FinishReason>,
}

impl Completion {
    pub(super) fn new(app: &App, shape: Shape, delivery: Delivery) -> Result<Self, ApiError> {
        let id = getrandom::u64().map_err(|error| ApiError::unavailable(format!("no id: {error}")))?;
        let prefix = match shape {
            Shape::Text => "cmpl",
            Shape::Chat => "chatcmpl",
        };
        Ok(Self {
            shape,
            id: format!("{prefix}-{id:016x}"),
            created: now(),
            model: app.model_name.clone(),
            echoes: false,
            has_log_probabilities: false,
            delivery,
            tokenizer: app.engine.tokenizer().clone(),
        })
    }

    /// What an output's text begins with.
    pub(super) fn shown_prompt(&self, generating: &Generating, output: usize) -> String {
        if self.echoes {
            generating.shown_prompt(output, &*self.tokenizer)
        } else {
            String::new()
        }
    }

    /// The prompt's tokens that an output's begin with, with their scores.
    pub(super) fn shown_prompt_tokens(
        &self,
        generating: &Generating,
        output: usize,
        scores: Vec<TokenScore>,
    ) -> Vec<OutputToken> {
        if self.echoes && self.has_log_probabilities {
            let shown = generating.shown_prompt(output, &*self.tokenizer);
            prompt_tokens(generating.prompt_of(output), scores, &self.tokenizer, &shown)
        } else {
            Vec::new()
        }
    }

    /// An answer, or a part of one that is streamed.
    pub(super) fn answer(&self, choices: Vec<Value>, usage: Option<Value>) -> Value {
        let object = match (self.shape, self.delivery.streams) {
            (Shape::Text, _) => "text_completion",
            (Shape::Chat, false) => "chat.completion",
            (Shape::Chat, true) => "chat.completion.chunk",
        };
        let mut answer = json!({
            "id": self.id,
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        });
        if let Some(usage) = usage {
            answer["usage"] = usage;
        }
        answer
    }

    /// An output, or a piece of one that is streamed.
    pub(super) fn choice(&self, choice: &Choice) -> Value {
        let reason = choice.finished.map(|reason| match reason {
            FinishReason::Length => "length",
            FinishReason::Stop | FinishReason::EndOfDocument => "stop",
        });
        let log_probabilities = self.has_log_probabilities.then(|| match self.shape {
            Shape::Text => self.log_probabilities(&choice.tokens),
            Shape::Chat => self.chat_log_probabilities(&choice.tokens),
        });
        let mut answer = json!({"index": choice.index, "logprobs": log_probabilities, "finish_reason": reason});
        let text = &choice.text;
        let (name, content) = match (self.shape, choice.part) {
            (Shape::Text, _) => ("text", json!(text)),
            (Shape::Chat, Part::Whole) => {
                let message = json!({"role": "assistant", "content": text, "refusal": null});
                ("message", message)
            }
            (Shape::Chat, Part::First) => ("delta", json!({"role": "assistant", "content": text})),
            (Shape::Chat, Part::Next) if text.is_empty() => ("delta", json!({})),
            (Shape::Chat, Part::Next) => ("delta", json!({"content": text})),
        };
        answer[name] = content;
        answer
    }

    /// The log-probabilities of tokens, in nats.
    fn log_probabilities(&self, tokens: &[OutputToken]) -> Value {
        let mut names = Vec::with_capacity(tokens.len());
        let mut tops = Vec::with_capacity(tokens.len());
        for token in tokens {
            let (name, top) = named_top(token, &*self.tokenizer);
            names.push(name);
            tops.push(
                token
                    .log_probability
                    .map(|_| top.into_iter().collect::<BTreeMap<_, _>>()),
            );
        }
        json!({
            "tokens": names,
            "token_logprobs": tokens.iter().map(|token| token.log_probability).collect::<Vec<_>>(),
            "top_logprobs": tops,
            "text_offset": tokens.iter().map(|token| token.offset).collect::<Vec<_>>(),
        })
    }

    fn chat_log_probabilities(&self, tokens: &[OutputToken]) -> Value {
        let entry = |token: u32, log_probability: Option<f64>| {
            let text = TokenText::of(token, &*self.tokenizer);
            json!({"token": text.in_chat(), "logprob": log_probability, "bytes": text.bytes()})
        };
        let content = tokens.iter().map(|token| {
            let mut content = entry(token.token, token.log_probability);
            let top = token.top.iter().map(|(token, log)| entry(*token, Some(*log)));
            content["top_logprobs"] = top.collect();
            content
        });
        json!({"content": content.collect::<Value>(), "refusal": null})
    }
}

/// The tokens of a request and its outputs.
pub(super) fn usage(generating: &Generating, drawn: usize) -> Value {
    let prompts: usize = generating.prompts.iter().map(Vec::len).sum();
    json!({"prompt_tokens": prompts, "completion_tokens": drawn, "total_tokens": prompts + drawn})
}
