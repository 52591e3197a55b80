//! `POST /v1/completions` and `GET /v1/models`, as OpenAI's API has them.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use models::generation::SamplingConfig;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::app::{App, Prompt, json_response, now};
use super::asking::{Asked, OutputToken};
use super::completion::{Completion, choice, usage};
use super::error::ApiError;
use super::streaming::stream;

/// The most probable tokens whose log-probabilities are given.
const MOST_LOG_PROBABILITIES: usize = 20;
/// Texts that may end an output.
const MOST_STOPS: usize = 16;

/// A request. A field that is not here is refused with its name.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CompletionRequest {
    model: Option<String>,
    prompt: Option<Prompts>,
    max_tokens: Option<usize>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    n: Option<usize>,
    stream: Option<bool>,
    stream_options: Option<StreamOptions>,
    stop: Option<Stops>,
    seed: Option<u64>,
    logprobs: Option<usize>,
    echo: Option<bool>,
    /// Not of OpenAI's API, as in other servers of it.
    top_k: Option<usize>,
    /// Not of OpenAI's API, as in other servers of it.
    repetition_penalty: Option<f64>,
    /// Not of OpenAI's API, as in other servers of it: outputs continue after the end of a document.
    ignore_eos: Option<bool>,
    /// Names a user of the client: nothing depends on it.
    #[serde(rename = "user")]
    _user: Option<String>,
    // What is taken if it changes nothing, and refused by name else.
    best_of: Option<usize>,
    presence_penalty: Option<f64>,
    frequency_penalty: Option<f64>,
    logit_bias: Option<Map<String, Value>>,
    suffix: Option<String>,
}

/// Prompts as clients give them: as text or as tokens, one or several.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "prompt must be a string, tokens, or a list of one of these")]
enum Prompts {
    Text(String),
    Texts(Vec<String>),
    Tokens(Vec<u32>),
    TokenLists(Vec<Vec<u32>>),
}

#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "stop must be a string or a list of strings")]
enum Stops {
    One(String),
    Several(Vec<String>),
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

/// Answers `POST /v1/completions`.
pub(super) async fn complete(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let request: CompletionRequest = app.read(request).await?;
    request.check_model(&app.model_name)?;
    let completion = request.completion(&app)?;
    let streams = request.stream == Some(true);
    let mut generating = request.asked()?.begin(&app).await?;
    if streams {
        return Ok(stream(completion, generating, app.engine.tokenizer().clone()));
    }
    let outputs = generating.outputs().await?;
    let num_drawn = outputs.iter().map(|output| output.tokens.len()).sum();
    let tokenizer = app.engine.tokenizer();
    let choices: Vec<Value> = (outputs.into_iter().enumerate())
        .map(|(index, output)| {
            let prompt = completion.shown_prompt(&generating, index, &**tokenizer);
            let text = format!("{prompt}{}", output.text);
            let start = prompt.chars().count();
            let drawn = output.tokens.into_iter().map(|token| token.after(start));
            let of_prompt = completion.shown_prompt_tokens(&generating, index, output.prompt, tokenizer);
            let tokens: Vec<OutputToken> = of_prompt.into_iter().chain(drawn).collect();
            let log_probabilities = completion.log_probabilities(&tokens, &**tokenizer);
            choice(index, &text, log_probabilities, output.finished)
        })
        .collect();
    let usage = usage(&generating, num_drawn);
    Ok(json_response(&completion.answer(choices, Some(usage))))
}

/// Answers `GET /v1/models`.
pub(super) async fn models(State(app): State<Arc<App>>) -> Response {
    json_response(&json!({
        "object": "list",
        "data": [{
            "id": app.model_name,
            "object": "model",
            "created": app.created,
            "owned_by": "burn-megatron",
            "max_model_len": app.engine.max_seq_length(),
        }],
    }))
}

impl CompletionRequest {
    fn check_model(&self, served: &str) -> Result<(), ApiError> {
        match &self.model {
            Some(asked) if asked != served => Err(ApiError::new(
                axum::http::StatusCode::NOT_FOUND,
                format!("the model {asked:?} is not here: {served:?} is"),
            )),
            _ => Ok(()),
        }
    }

    fn completion(&self, app: &App) -> Result<Completion, ApiError> {
        let id = getrandom::u64().map_err(|error| ApiError::unavailable(format!("no id: {error}")))?;
        Ok(Completion {
            id: format!("cmpl-{id:016x}"),
            created: now(),
            model: app.model_name.clone(),
            echoes: self.echo == Some(true),
            has_log_probabilities: self.logprobs.is_some(),
            includes_usage: self.stream_options.unwrap_or_default().include_usage,
        })
    }

    fn asked(self) -> Result<Asked, ApiError> {
        self.check()?;
        let stop = match self.stop {
            None => Vec::new(),
            Some(Stops::One(stop)) => vec![stop],
            Some(Stops::Several(stops)) => stops,
        };
        let usual = SamplingConfig::default();
        Ok(Asked {
            prompts: match self.prompt {
                None => return Err(ApiError::bad_request("missing field `prompt`")),
                Some(Prompts::Text(text)) => vec![Prompt::Text(text)],
                Some(Prompts::Texts(texts)) => texts.into_iter().map(Prompt::Text).collect(),
                Some(Prompts::Tokens(tokens)) => vec![Prompt::Tokens(tokens)],
                Some(Prompts::TokenLists(lists)) => lists.into_iter().map(Prompt::Tokens).collect(),
            },
            max_new_tokens: self.max_tokens.unwrap_or(16),
            num_samples: self.n.unwrap_or(1),
            seed: self.seed,
            sampling: SamplingConfig {
                temperature: self.temperature.unwrap_or(usual.temperature),
                top_p: self.top_p.unwrap_or(usual.top_p),
                top_k: self.top_k.unwrap_or(usual.top_k),
                repetition_penalty: self.repetition_penalty.unwrap_or(usual.repetition_penalty),
                seed: usual.seed,
            },
            stop,
            top_log_probabilities: self.logprobs.unwrap_or(0),
            scores_prompt: self.logprobs.is_some() && self.echo == Some(true),
            ignores_end_of_document: self.ignore_eos == Some(true),
        })
    }

    fn check(&self) -> Result<(), ApiError> {
        let refuse = |message: &str| Err(ApiError::bad_request(message));
        if self.max_tokens == Some(0) {
            return refuse("max_tokens must be at least 1, got 0: a prompt is scored with a token after it");
        }
        if self.logprobs.is_some_and(|count| count > MOST_LOG_PROBABILITIES) {
            return refuse(&format!("logprobs must be at most {MOST_LOG_PROBABILITIES}"));
        }
        if let Some(Stops::Several(stops)) = &self.stop
            && stops.len() > MOST_STOPS
        {
            return refuse(&format!(
                "stop has {} texts, at most {MOST_STOPS} are allowed",
                stops.len()
            ));
        }
        if self.stream_options.is_some() && self.stream != Some(true) {
            return refuse("stream_options needs stream true");
        }
        let is_penalty = |penalty: Option<f64>| penalty.is_some_and(|penalty| penalty != 0.0);
        let unsupported = [
            ("best_of", self.best_of.is_some_and(|best| best != self.n.unwrap_or(1))),
            ("presence_penalty", is_penalty(self.presence_penalty)),
            ("frequency_penalty", is_penalty(self.frequency_penalty)),
            (
                "logit_bias",
                self.logit_bias.as_ref().is_some_and(|bias| !bias.is_empty()),
            ),
            ("suffix", self.suffix.as_ref().is_some_and(|suffix| !suffix.is_empty())),
        ];
        match unsupported.iter().find(|(_, is_asked)| *is_asked) {
            Some((name, _)) => refuse(&format!("{name} is not supported: leave it out")),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(request: Value) -> Result<Asked, String> {
        let request: CompletionRequest = serde_json::from_value(request).map_err(|error| error.to_string())?;
        request.asked().map_err(|error| error.message)
    }

    #[test]
    fn prompts_are_text_or_tokens_one_or_several() {
        let text = |text: &str| Prompt::Text(text.to_owned());
        for (given, prompts) in [
            (json!("a"), vec![text("a")]),
            (json!(["a", "b"]), vec![text("a"), text("b")]),
            (json!([1, 2]), vec![Prompt::Tokens(vec![1, 2])]),
            (
                json!([[1], [2, 3]]),
                vec![Prompt::Tokens(vec![1]), Prompt::Tokens(vec![2, 3])],
            ),
        ] {
            assert_eq!(asked(json!({"prompt": given})).unwrap().prompts, prompts);
        }
        let error = asked(json!({"prompt": {"text": "a"}})).unwrap_err();
        assert!(error.contains("prompt must be a string"), "{error}");
    }

    #[test]
    fn what_is_left_out_is_what_openai_takes() {
        let request = json!({"prompt": "a", "max_tokens": null, "presence_penalty": 0, "best_of": 1, "logit_bias": {}});
        let asked = asked(request).unwrap();
        assert_eq!((asked.max_new_tokens, asked.num_samples, asked.seed), (16, 1, None));
        assert_eq!((asked.sampling.temperature, asked.sampling.top_p), (1.0, 1.0));
        assert!(asked.stop.is_empty() && !asked.ignores_end_of_document);
    }

    #[test]
    fn what_is_not_supported_is_refused_by_its_name() {
        for (name, value) in [
            ("best_of", json!(2)),
            ("presence_penalty", json!(0.5)),
            ("frequency_penalty", json!(-1)),
            ("logit_bias", json!({"5": 1})),
            ("suffix", json!("b")),
            ("functions", json!([])),
            ("logprobs", json!(21)),
            ("stream_options", json!({"include_usage": true})),
            ("max_tokens", json!(0)),
            ("stop", json!(5)),
        ] {
            let error = asked(json!({"prompt": "a", name: value})).unwrap_err();
            assert!(error.contains(name), "{name}: {error}");
        }
    }
}
