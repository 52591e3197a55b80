//! [`ApiError`]: why a request is not served, in the shape that each API gives errors.

use axum::body::Body;
use axum::http::header::{CONNECTION, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use models::generation::RequestError;
use serde_json::{Value, json};

/// Seconds after which a client that was turned away may ask again.
const RETRY_AFTER_SECS: u64 = 1;

/// Why a request is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ApiError {
    pub(super) status: StatusCode,
    pub(super) message: String,
}

impl ApiError {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            message: message.into(),
        }
    }

    /// A request that cannot be served, whenever it comes.
    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    /// A request that may be served later.
    pub(super) fn too_many(message: impl Into<String>) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, message)
    }

    /// A server that ends.
    pub(super) fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, message)
    }

    /// The error as OpenAI's API gives it, as events of a stream do too.
    pub(super) fn as_openai(&self) -> Value {
        let kind = match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_client_error() => "invalid_request_error",
            _ => "server_error",
        };
        json!({"error": {
            "message": self.message,
            "type": kind,
            "param": null,
            "code": self.status.as_u16(),
        }})
    }

    /// The error as Megatron-LM's server gives it: its command line prints `message`.
    fn as_megatron(&self) -> Value {
        json!({"message": self.message})
    }

    /// The whole response, in the shape of the API that the path belongs to.
    pub(super) fn into_response_of(self, path: &str) -> Response {
        let body = if path.starts_with("/api") {
            self.as_megatron()
        } else {
            self.as_openai()
        };
        let mut response = Response::new(Body::from(body.to_string()));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        match self.status {
            StatusCode::TOO_MANY_REQUESTS => {
                headers.insert(RETRY_AFTER, HeaderValue::from(RETRY_AFTER_SECS));
            }
            StatusCode::UNAUTHORIZED => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            // The rest of the body is not read.
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT => {
                headers.insert(CONNECTION, HeaderValue::from_static("close"));
            }
            _ => {}
        }
        response
    }
}

impl From<RequestError> for ApiError {
    fn from(error: RequestError) -> Self {
        match error {
            RequestError::QueueFull { .. } => Self::too_many(error.to_string()),
            RequestError::OtherRank { .. } => Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
            _ => Self::bad_request(error.to_string()),
        }
    }
}

impl IntoResponse for ApiError {
    /// A response whose shape the outermost layer chooses, which knows the path.
    fn into_response(self) -> Response {
        let mut response = Response::default();
        *response.status_mut() = self.status;
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_is_asked_again_and_a_prompt_that_never_fits_is_not() {
        let full = RequestError::QueueFull {
            waiting: 3,
            most: 3,
            needed: 2,
            free: 1,
        };
        let response = ApiError::from(full).into_response_of("/v1/completions");
        assert_eq!(response.status(), StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(response.headers()[RETRY_AFTER], "1");
        let long = RequestError::TooLong {
            prompt: 9,
            max_new_tokens: 8,
            max_seq_length: 16,
        };
        let error = ApiError::from(long);
        assert_eq!(error.status, StatusCode::BAD_REQUEST);
        assert!(error.message.contains("9 tokens") && error.message.contains("16 positions"));
    }
}
