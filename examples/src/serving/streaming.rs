//! [`stream`]: a completion as server-sent events, a piece of text each.

use std::convert::Infallible;
use std::time::Duration;

use axum::body::Body;
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::Response;
use futures_util::stream::unfold;
use serde_json::Value;
use tokio::time::timeout;

use super::asking::{Generating, Piece};
use super::completion::{Choice, Completion, Part, Shape, usage};

/// The last event of a stream that is whole.
const DONE: &str = "data: [DONE]\n\n";

/// A comment, sent where nothing has come for a while, which clients pass over: that one has left is seen by it.
const COMMENT: &str = ": waiting\n\n";
const COMMENT_EVERY: Duration = Duration::from_secs(2);

/// What is left to be sent. When the client leaves, it is dropped, and the request is cancelled.
struct Streaming {
    completion: Completion,
    generating: Generating,
    /// Of each output, the characters of the prompt that were sent; `None` before its first event.
    begun: Vec<Option<usize>>,
    num_tokens: usize,
    has_ended: bool,
}

/// Streams a completion: an event for each token that has a text or ends its output, then the usage if it was asked
/// for, then `[DONE]`. A failure is an event with the error, without `[DONE]` after it.
pub(super) fn stream(completion: Completion, generating: Generating) -> Response {
    let streaming = Streaming {
        begun: vec![None; generating.num_outputs()],
        completion,
        generating,
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
            let Ok(next) = timeout(COMMENT_EVERY, self.generating.next()).await else {
                return Some(COMMENT.to_owned());
            };
            match next {
                Ok(Some(piece)) => {
                    if let Some(piece) = self.piece(piece) {
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

    /// The part of the answer that a piece gives; `None` if there is nothing to see of it yet.
    fn piece(&mut self, piece: Piece) -> Option<Value> {
        let Piece {
            output,
            text,
            prompt,
            token,
            finished,
        } = piece;
        self.num_tokens += usize::from(token.is_some());
        let (completion, generating) = (&self.completion, &self.generating);
        let (mut part, mut before, mut tokens) = (Part::Next, String::new(), Vec::new());
        let start = *self.begun[output].get_or_insert_with(|| {
            part = Part::First;
            before = completion.shown_prompt(generating, output);
            tokens = completion.shown_prompt_tokens(generating, output, prompt);
            before.chars().count()
        });
        tokens.extend(token.map(|token| token.after(start)));
        let text = before + &text;
        let is_first_of_chat = part == Part::First && completion.shape == Shape::Chat;
        let is_shown = !text.is_empty() || finished.is_some() || completion.has_log_probabilities || is_first_of_chat;
        is_shown.then(|| {
            let choice = Choice {
                index: output,
                part,
                text,
                tokens,
                finished,
            };
            let usage = (completion.delivery.has_continuous_usage).then(|| usage(generating, self.num_tokens));
            completion.answer(vec![completion.choice(&choice)], usage)
        })
    }

    fn end(&self) -> String {
        let usage = self.completion.delivery.includes_usage.then(|| {
            let usage = usage(&self.generating, self.num_tokens);
            as_event(&self.completion.answer(Vec::new(), Some(usage)))
        });
        usage.unwrap_or_default() + DONE
    }
}

fn as_event(value: &Value) -> String {
    format!("data: {value}\n\n")
}
