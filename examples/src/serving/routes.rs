//! [`router`]: what every request meets: routes, the key, the page to try the model.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::header::{AUTHORIZATION, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{MethodRouter, get, post, put};
use serde_json::{Value, json};
use subtle::ConstantTimeEq as _;

use super::app::{App, digest, json_response};
use super::engine::Phase;
use super::error::ApiError;
use super::{chat, completions, megatron};

/// The page to try the model in a browser.
const PAGE: &str = include_str!("page.html");
/// The page loads nothing, and talks to this server only.
const PAGE_POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                           connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; \
                           frame-ancestors 'none'";

/// The routes, each with and without a slash after it.
pub(super) fn router(app: Arc<App>) -> Router {
    let guarded = with_slashes([
        ("/api", put(megatron::generate).post(megatron::generate)),
        ("/v1/completions", post(completions::complete)),
        ("/v1/chat/completions", post(chat::complete)),
        ("/v1/models", get(models)),
    ]);
    let guarded = guarded
        // A model's name may have slashes.
        .route("/v1/models/{*id}", get(model))
        .route_layer(middleware::from_fn_with_state(app.clone(), check_key));
    let open = with_slashes([("/health", get(health)), ("/version", get(version))]).route("/", get(page));
    guarded
        .merge(open)
        .fallback(async || ApiError::new(StatusCode::NOT_FOUND, "there is nothing at this path"))
        .method_not_allowed_fallback(async || {
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "this path takes another method")
        })
        .layer(middleware::from_fn(shape_errors))
        .with_state(app)
}

fn with_slashes<const N: usize>(routes: [(&str, MethodRouter<Arc<App>>); N]) -> Router<Arc<App>> {
    routes.into_iter().fold(Router::new(), |router, (path, methods)| {
        router.route(path, methods.clone()).route(&format!("{path}/"), methods)
    })
}

async fn check_key(State(app): State<Arc<App>>, request: Request, next: Next) -> Response {
    let Some(key) = &app.key else {
        return next.run(request).await;
    };
    let given = request
        .headers()
        .get(AUTHORIZATION)
        .and_then(|given| given.to_str().ok());
    let given = given.and_then(|given| {
        let (scheme, secret) = given.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(secret.trim())
    });
    // The comparison takes as long wherever the first difference is.
    if given.is_some_and(|given| digest(given).ct_eq(key).into()) {
        return next.run(request).await;
    }
    let message = match given {
        None => "send the server's key: Authorization: Bearer KEY",
        Some(_) => "this is not the server's key",
    };
    ApiError::new(StatusCode::UNAUTHORIZED, message).into_response()
}

/// Gives errors the shape of the API that was asked.
async fn shape_errors(request: Request, next: Next) -> Response {
    let path = request.uri().path().to_owned();
    let mut response = next.run(request).await;
    match response.extensions_mut().remove::<ApiError>() {
        Some(error) => error.into_response_of(&path),
        None => response,
    }
}

async fn page() -> Response {
    let mut response = Response::new(Body::from(PAGE));
    for (name, value) in [
        (CONTENT_TYPE, "text/html; charset=utf-8"),
        (CONTENT_SECURITY_POLICY, PAGE_POLICY),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Answers `GET /v1/models`.
async fn models(State(app): State<Arc<App>>) -> Response {
    json_response(&json!({"object": "list", "data": [description(&app)]}))
}

/// Answers `GET /v1/models/{id}`.
async fn model(State(app): State<Arc<App>>, Path(id): Path<String>) -> Result<Response, ApiError> {
    app.check_model(id.strip_suffix('/').unwrap_or(&id))?;
    Ok(json_response(&description(&app)))
}

fn description(app: &App) -> Value {
    json!({
        "id": app.model_name,
        "object": "model",
        "created": app.created,
        "owned_by": "burn-megatron",
        "max_model_len": app.engine.max_seq_length(),
    })
}

async fn version() -> Response {
    json_response(&json!({"version": env!("CARGO_PKG_VERSION")}))
}

/// Whether requests are taken, and how much there is to do.
async fn health(State(app): State<Arc<App>>) -> Response {
    let load = app.engine.load();
    let (status, name) = match app.engine.phase() {
        Phase::Serving => (StatusCode::OK, "ok"),
        Phase::Draining => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        Phase::Ended(_) => (StatusCode::SERVICE_UNAVAILABLE, "ended"),
    };
    let mut response = json_response(&json!({
        "status": name,
        "model": app.model_name,
        "running": load.running,
        "waiting": load.waiting,
        "cache_pages": load.num_pages,
        "free_cache_pages": load.free_pages,
        "max_tokens": app.engine.max_seq_length(),
    }));
    *response.status_mut() = status;
    response
}
