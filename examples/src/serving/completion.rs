//! [`Completion`]: the answers of OpenAI's API, whole or as pieces of a stream.

use std::collections::BTreeMap;
use std::sync::Arc;

use burn_megatron_data::tokenizer::Tokenizer;
use models::generation::{FinishReason, TokenScore};
use serde_json::{Value, json};

use super::asking::{Generating, OutputToken, prompt_tokens};

/// What a completion's answers share.
pub(super) struct Completion {
    pub(super) id: String,
    pub(super) created: u64,
    pub(super) model: String,
    /// Whether the outputs begin with their prompts.
    pub(super) echoes: bool,
    pub(super) has_log_probabilities: bool,
    pub(super) includes_usage: bool,
}

impl Completion {
    /// What an output's text begins with.
    pub(super) fn shown_prompt(&self, generating: &Generating, output: usize, tokenizer: &dyn Tokenizer) -> String {
        if self.echoes {
            tokenizer.decode(generating.prompt_of(output))
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
        tokenizer: &Arc<dyn Tokenizer>,
    ) -> Vec<OutputToken> {
        if self.echoes && self.has_log_probabilities {
            prompt_tokens(generating.prompt_of(output), scores, tokenizer)
        } else {
            Vec::new()
        }
    }

    /// An answer, or a part of one that is streamed.
    pub(super) fn answer(&self, choices: Vec<Value>, usage: Option<Value>) -> Value {
        let mut answer = json!({
            "id": self.id,
            "object": "text_completion",
            "created": self.created,
            "model": self.model,
            "choices": choices,
        });
        if let Some(usage) = usage {
            answer["usage"] = usage;
        }
        answer
    }

    /// The log-probabilities of tokens, in nats, if they were asked for.
    pub(super) fn log_probabilities(&self, tokens: &[OutputToken], tokenizer: &dyn Tokenizer) -> Option<Value> {
        let text = |token: u32| tokenizer.decode(&[token]);
        let top = |token: &OutputToken| -> Option<BTreeMap<String, f64>> {
            token.log_probability?;
            // Of several tokens of one text, the most probable one, which comes first.
            let by_text = token.top.iter().rev().map(|(token, log)| (text(*token), *log));
            Some(by_text.collect())
        };
        self.has_log_probabilities.then(|| {
            json!({
                "tokens": tokens.iter().map(|token| text(token.token)).collect::<Vec<_>>(),
                "token_logprobs": tokens.iter().map(|token| token.log_probability).collect::<Vec<_>>(),
                "top_logprobs": tokens.iter().map(top).collect::<Vec<_>>(),
                "text_offset": tokens.iter().map(|token| token.offset).collect::<Vec<_>>(),
            })
        })
    }
}

/// An output, or a piece of one that is streamed.
pub(super) fn choice(
    index: usize,
    text: &str,
    log_probabilities: Option<Value>,
    finished: Option<FinishReason>,
) -> Value {
    let reason = finished.map(|reason| match reason {
        FinishReason::Length => "length",
        FinishReason::Stop | FinishReason::EndOfDocument => "stop",
    });
    json!({"index": index, "text": text, "logprobs": log_probabilities, "finish_reason": reason})
}

/// The tokens of a request and its outputs.
pub(super) fn usage(generating: &Generating, drawn: usize) -> Value {
    let prompts: usize = generating.prompts.iter().map(Vec::len).sum();
    json!({"prompt_tokens": prompts, "completion_tokens": drawn, "total_tokens": prompts + drawn})
}
