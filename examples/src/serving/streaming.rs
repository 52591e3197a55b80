//! [`stream`]: a completion as server-sent events, a piece of text each.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use burn_megatron_data::tokenizer::Tokenizer;
use futures_util::stream::unfold;
use models::generation::GenerationEvent;
use serde_json::Value;

use super::asking::{Generating, OutputToken};
use super::completion::{Completion, choice, usage};

/// The last event of a stream that is whole.
const DONE: &str = "data: [DONE]\n\n";

/// What is left to be sent. When the client leaves, it is dropped, and the request is cancelled.
struct Streaming {
    completion: Completion,
    generating: Generating,
    tokenizer: Arc<dyn Tokenizer>,
    /// Of each output, the characters that were sent; `None` before its first event.
    sent: Vec<Option<usize>>,
    num_tokens: usize,
    has_ended: bool,
}

/// Streams a completion: an event for each token that has a text or ends its output, then the usage if it was asked
/// for, then `[DONE]`. A failure is an event with the error, without `[DONE]` after it.
pub(super) fn stream(completion: Completion, generating: Generating, tokenizer: Arc<dyn Tokenizer>) -> Response {
    let streaming = Streaming {
        sent: vec![None; generating.num_outputs()],
        completion,
        generating,
        tokenizer,
        num_tokens: 0,
        has_ended: false,
    };
    let events = unfold(streaming, async |mut streaming| {
        let text = streaming.next().await?;
        Some((Ok::<_, Infallible>(text), streaming))
    });
    let mut response = Response::new(Body::from_stream(events));
    for (name, value) in [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-cache")] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

impl Streaming {
    /// The next events; `None` after the last one.
    async fn next(&mut self) -> Option<String> {
        while !self.has_ended {
            match self.generating.next().await {
                Ok(Some((output, event))) => {
                    if let Some(piece) = self.piece(output, event) {
                        return Some(as_event(&piece));
                    }
                }
                Ok(None) => {
                    self.has_ended = true;
                    return Some(self.end());
                }
                Err(error) => {
                    self.has_ended = true;
                    return Some(as_event(&error.as_openai()));
                }
            }
        }
        None
    }

    /// The part of the answer that a token gives; `None` if there is nothing to see of it yet.
    fn piece(&mut self, output: usize, mut event: GenerationEvent) -> Option<Value> {
        self.num_tokens += 1;
        let (mut text, mut tokens) = (String::new(), Vec::new());
        if self.sent[output].is_none() {
            let (completion, generating) = (&self.completion, &self.generating);
            text = completion.shown_prompt(generating, output, &*self.tokenizer);
            tokens =
                completion.shown_prompt_tokens(generating, output, std::mem::take(&mut event.prompt), &self.tokenizer);
            self.sent[output] = Some(text.chars().count());
        }
        let start = self.sent[output].unwrap_or(0);
        text += &event.text;
        self.sent[output] = Some(start + event.text.chars().count());
        let is_shown = !text.is_empty() || event.finished.is_some() || self.completion.has_log_probabilities;
        is_shown.then(|| {
            let finished = event.finished;
            tokens.push(OutputToken::of(event, start));
            let log_probabilities = (self.completion).log_probabilities(&tokens, &*self.tokenizer);
            self.completion
                .answer(vec![choice(output, &text, log_probabilities, finished)], None)
        })
    }

    fn end(&self) -> String {
        let usage = self.completion.includes_usage.then(|| {
            let usage = usage(&self.generating, self.num_tokens);
            as_event(&self.completion.answer(Vec::new(), Some(usage)))
        });
        usage.unwrap_or_default() + DONE
    }
}

fn as_event(value: &Value) -> String {
    format!("data: {value}\n\n")
}
