//! [`App`]: what all requests share, and the limits of bodies and of requests at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::Response;
use burn_megatron_data::chat_dataset::{ChatError, ChatTemplate, PromptEnd};
use burn_megatron_data::names::Table;
use parking_lot::Mutex;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::engine::EngineHandle;
use super::error::ApiError;
use super::fields::Fields;
use crate::arguments::{ApiKey, LimitArguments};

/// The most unknown fields that are reported.
const REPORTED: usize = 256;

/// A prompt, as text or as the tokens that a client has made of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Prompt {
    /// Text, with what the tokenizer adds to prompts.
    Text(String),
    TextAlone(String),
    /// Text after the end-of-document token.
    TextAfterEnd(String),
    Tokens(Vec<u32>),
    /// Messages, which the chat template makes a text of.
    Conversation(Conversation),
}

/// A request of the chat API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Conversation {
    /// The request as it came: a template writes keys in their order.
    pub(super) request: String,
    pub(super) end: PromptEnd,
    /// True if the tokenizer's post-processor adds to what the template writes.
    pub(super) adds_special_tokens: bool,
}

impl Prompt {
    /// The text, where it was given as one.
    pub(super) fn text(&self) -> Option<String> {
        match self {
            Self::Text(text) | Self::TextAlone(text) | Self::TextAfterEnd(text) => Some(text.clone()),
            Self::Tokens(_) | Self::Conversation(_) => None,
        }
    }
}

/// The chat template of the tokenizer, if it has one that can be read.
pub(super) type FoundTemplate = Result<Option<ChatTemplate>, ChatError>;

/// What all requests share.
pub(super) struct App {
    pub(super) engine: EngineHandle,
    pub(super) limits: LimitArguments,
    pub(super) model_name: String,
    /// Seconds since 1970 when the server started.
    pub(super) created: u64,
    /// The digest of the key: of one length, whatever the key's.
    pub(super) key: Option<[u8; 32]>,
    places: Arc<Semaphore>,
    template: FoundTemplate,
    /// Unknown fields of requests that were reported.
    reported: Mutex<BTreeSet<String>>,
}

impl App {
    pub(super) fn new(
        engine: EngineHandle,
        limits: LimitArguments,
        key: Option<&ApiKey>,
        model_name: String,
        template: FoundTemplate,
    ) -> Self {
        Self {
            engine,
            template,
            reported: Mutex::default(),
            places: Arc::new(Semaphore::new(limits.max_requests.min(Semaphore::MAX_PERMITS))),
            limits,
            model_name,
            created: now(),
            key: key.map(|key| digest(key.secret())),
        }
    }

    /// Takes one of the places of requests that are served, until the permit is dropped.
    pub(super) fn permit(&self) -> Result<OwnedSemaphorePermit, ApiError> {
        self.places.clone().try_acquire_owned().map_err(|_| {
            let most = self.limits.max_requests;
            ApiError::too_many(format!("{most} requests are being served already, which is the most"))
        })
    }

    /// The tokens of a prompt.
    ///
    /// # Errors
    /// When there are too many, or the text does not fit the tokenizer.
    pub(super) fn tokens(&self, prompt: Prompt) -> Result<Vec<u32>, ApiError> {
        let tokenizer = self.engine.tokenizer();
        let mut tokens = Vec::new();
        match prompt {
            Prompt::Text(text) => tokenizer.encode_prompt(&text, &mut tokens),
            Prompt::TextAlone(text) => tokenizer.encode(&text, &mut tokens),
            Prompt::Tokens(given) => tokens = given,
            Prompt::Conversation(conversation) => {
                let text = self.text_of(&conversation)?;
                if conversation.adds_special_tokens {
                    tokenizer.encode_prompt(&text, &mut tokens);
                } else {
                    tokenizer.encode(&text, &mut tokens);
                }
            }
            Prompt::TextAfterEnd(text) => {
                let end = tokenizer.end_of_document();
                tokens.push(end.ok_or_else(|| {
                    ApiError::bad_request("add_BOS: the vocabulary has no end-of-document token to begin with")
                })?);
                tokenizer.encode(&text, &mut tokens);
            }
        }
        let most = self.limits.max_prompt_tokens.unwrap_or(usize::MAX);
        if tokens.len() > most {
            return Err(ApiError::bad_request(format!(
                "the prompt has {} tokens, at most {most} are allowed",
                tokens.len()
            )));
        }
        Ok(tokens)
    }

    /// Writes a conversation as the prompt that the chat template makes of it.
    ///
    /// # Errors
    /// When there is no template, or it refuses the messages.
    fn text_of(&self, conversation: &Conversation) -> Result<String, ApiError> {
        let template = self.template.as_ref();
        let template = template.map_err(|error| ApiError::bad_request(error.to_string()))?;
        let template = template.as_ref().ok_or_else(|| {
            ApiError::bad_request(
                "the model has no chat template (chat_template.jinja, or chat_template in tokenizer_config.json): ask \
                 /v1/completions with a text",
            )
        })?;
        let text = template.render_request(&conversation.request, conversation.end);
        text.map_err(|error| ApiError::bad_request(error.to_string()))
    }

    /// Checks the name of a model.
    ///
    /// # Errors
    /// 404: another one is served.
    pub(super) fn check_model(&self, asked: &str) -> Result<(), ApiError> {
        if asked == self.model_name {
            return Ok(());
        }
        let message = format!("the model {asked:?} is not here: {:?} is", self.model_name);
        Err(ApiError::new(StatusCode::NOT_FOUND, message))
    }

    /// Reads the fields of a body, and reports those that no table has, once each.
    ///
    /// # Errors
    /// As [`Fields::parse`].
    pub(super) fn fields(&self, body: &[u8], tables: &[&Table]) -> Result<Fields, ApiError> {
        let fields = Fields::parse(body, tables)?;
        let mut reported = self.reported.lock();
        for warning in &fields.unknown {
            if reported.len() < REPORTED && reported.insert(warning.clone()) {
                tracing::warn!("the field {warning}");
            }
        }
        Ok(fields)
    }

    /// Reads a body within the limits of size and time.
    ///
    /// # Errors
    /// 413, 408, 415, or 400 with what is wrong with it.
    pub(super) async fn read(&self, request: Request) -> Result<Bytes, ApiError> {
        let (parts, body) = request.into_parts();
        check_content_type(&parts.headers)?;
        let most = self.limits.max_body_bytes;
        let too_large = |what: &str| {
            let message = format!("{what}, at most {most} bytes are allowed");
            ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, message)
        };
        let length = parts
            .headers
            .get(CONTENT_LENGTH)
            .and_then(|length| length.to_str().ok());
        if let Some(length) = length.and_then(|length| length.parse::<u64>().ok())
            && length > most as u64
        {
            return Err(too_large(&format!("the body has {length} bytes")));
        }
        let bytes = timeout(self.limits.client_timeout(), to_bytes(body, most)).await;
        let bytes = bytes.map_err(|_| {
            let seconds = self.limits.client_timeout_secs;
            ApiError::new(
                StatusCode::REQUEST_TIMEOUT,
                format!("the body has not come within {seconds} s"),
            )
        })?;
        bytes.map_err(|error| {
            if is_length_limit(&error) {
                too_large("the body is too long")
            } else {
                ApiError::bad_request(format!("the body cannot be read: {error}"))
            }
        })
    }
}

/// Seconds since 1970.
pub(super) fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |time| time.as_secs())
}

pub(super) fn digest(secret: &str) -> [u8; 32] {
    Sha256::digest(secret.as_bytes()).into()
}

/// A browser sends JSON to another site only after asking that site, which does not allow it.
fn check_content_type(headers: &HeaderMap) -> Result<(), ApiError> {
    let given = headers.get(CONTENT_TYPE).and_then(|given| given.to_str().ok());
    let essence = given.map(|given| given.split(';').next().unwrap_or_default().trim().to_ascii_lowercase());
    match essence.as_deref() {
        Some("application/json") => Ok(()),
        _ => Err(ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            format!("Content-Type must be application/json, got {}", given.unwrap_or("none")),
        )),
    }
}

fn is_length_limit(error: &axum::Error) -> bool {
    let mut next: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = next {
        if error.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        next = error.source();
    }
    false
}

pub(super) fn json_response(value: &Value) -> Response {
    let mut response = Response::new(Body::from(value.to_string()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}
