//! `PUT /api`, as Megatron-LM's text generation server has it: prompts in, prompts and their continuations out.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use models::generation::{FinishReason, SamplingConfig};
use serde::Deserialize;
use serde_json::{Value, json};

use super::app::{App, Prompt, json_response};
use super::asking::{Asked, Output};
use super::error::ApiError;

/// A request. A field that is not here is refused with its name.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(non_snake_case, reason = "the names of the fields are the protocol's")]
struct GenerateRequest {
    prompts: Vec<String>,
    #[serde(default = "default_tokens")]
    tokens_to_generate: usize,
    #[serde(default)]
    logprobs: bool,
    #[serde(default = "default_temperature")]
    temperature: f64,
    #[serde(default)]
    top_k: usize,
    #[serde(default)]
    top_p: f64,
    #[serde(default)]
    add_BOS: bool,
    #[serde(default)]
    stop_on_double_eol: bool,
    #[serde(default)]
    stop_on_eol: bool,
    random_seed: Option<u64>,
    /// Requests are not logged here.
    #[serde(default, rename = "no_log")]
    _no_log: bool,
    // What is taken if it changes nothing, and refused by name else.
    #[serde(default)]
    top_p_decay: f64,
    #[serde(default)]
    top_p_bound: f64,
    #[serde(default)]
    prevent_newline_after_colon: bool,
    beam_width: Option<Value>,
    stop_token: Option<Value>,
    length_penalty: Option<Value>,
}

fn default_tokens() -> usize {
    64
}

fn default_temperature() -> f64 {
    1.0
}

/// Answers `PUT /api`.
pub(super) async fn generate(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let request: GenerateRequest = app.read(request).await?;
    let asked = request.asked()?;
    let mut generating = asked.begin(&app).await?;
    let outputs = generating.outputs().await?;
    let tokenizer = app.engine.tokenizer();
    let (mut texts, mut segments, mut log_probabilities) = (Vec::new(), Vec::new(), Vec::new());
    for ((text, prompt), output) in request.prompts.iter().zip(&generating.prompts).zip(&outputs) {
        texts.push(request.whole_text(text, output));
        let tokens = prompt.iter().chain(output.tokens.iter().map(|token| &token.token));
        segments.push(tokens.map(|token| tokenizer.decode(&[*token])).collect::<Vec<_>>());
        log_probabilities.push(log_probabilities_of(output));
    }
    Ok(json_response(&json!({
        "text": texts,
        "segments": segments,
        "logprobs": request.logprobs.then_some(log_probabilities),
    })))
}

/// The log-probability of every segment but the first, in nats, as Megatron-LM has them.
fn log_probabilities_of(output: &Output) -> Vec<Option<f64>> {
    let of_prompt = output.prompt.iter().map(|token| Some(token.log_probability));
    let tokens = output.tokens.iter().map(|token| token.log_probability);
    of_prompt.chain(tokens).collect()
}

impl GenerateRequest {
    fn asked(&self) -> Result<Asked, ApiError> {
        self.check()?;
        let as_prompt = if self.add_BOS {
            Prompt::TextAfterEnd
        } else {
            Prompt::Text
        };
        Ok(Asked {
            prompts: self.prompts.iter().cloned().map(as_prompt).collect(),
            max_new_tokens: self.tokens_to_generate,
            num_samples: 1,
            seed: self.random_seed,
            sampling: SamplingConfig {
                temperature: self.temperature,
                top_k: self.top_k,
                top_p: if self.top_p == 0.0 { 1.0 } else { self.top_p },
                ..SamplingConfig::default()
            },
            stop: self.stop().map(str::to_owned).into_iter().collect(),
            top_log_probabilities: 0,
            scores_prompt: self.logprobs,
            ignores_end_of_document: false,
        })
    }

    /// The text that ends an output.
    fn stop(&self) -> Option<&'static str> {
        match (self.stop_on_double_eol, self.stop_on_eol) {
            (true, _) => Some("\n\n"),
            (false, true) => Some("\n"),
            (false, false) => None,
        }
    }

    /// The prompt and its continuation, with the line's end that stopped it, as Megatron-LM has it.
    fn whole_text(&self, prompt: &str, output: &Output) -> String {
        let end = match output.finished {
            Some(FinishReason::Stop) => self.stop().unwrap_or_default(),
            _ => "",
        };
        format!("{prompt}{}{end}", output.text)
    }

    fn check(&self) -> Result<(), ApiError> {
        let refuse = |message: &str| Err(ApiError::bad_request(message));
        if self.prompts.is_empty() {
            return refuse("prompts is empty");
        }
        if self.prompts.iter().any(String::is_empty) && !self.add_BOS {
            return refuse("an empty prompt needs add_BOS true");
        }
        if self.tokens_to_generate == 0 {
            return refuse("tokens_to_generate must be at least 1, got 0: a prompt is scored with a token after it");
        }
        if !(self.temperature > 0.0 && self.temperature <= 100.0) {
            return refuse(&format!(
                "temperature must be above 0 and at most 100, got {}: for the most probable token ask for top_k 1",
                self.temperature
            ));
        }
        if self.top_k > 0 && self.top_p > 0.0 {
            return refuse("top_k and top_p exclude each other: leave one of them 0");
        }
        let unsupported = [
            ("top_p_decay", self.top_p_decay != 0.0),
            ("top_p_bound", self.top_p_bound != 0.0),
            ("prevent_newline_after_colon", self.prevent_newline_after_colon),
            ("beam_width", self.beam_width.is_some()),
            ("stop_token", self.stop_token.is_some()),
            ("length_penalty", self.length_penalty.is_some()),
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
        let request: GenerateRequest = serde_json::from_value(request).map_err(|error| error.to_string())?;
        request.asked().map_err(|error| error.message)
    }

    #[test]
    fn what_is_left_out_is_what_megatron_lm_takes() {
        let asked = asked(json!({"prompts": ["a", "b"]})).unwrap();
        assert_eq!(asked.prompts, ["a", "b"].map(|text| Prompt::Text(text.to_owned())));
        assert_eq!((asked.max_new_tokens, asked.num_samples, asked.seed), (64, 1, None));
        assert_eq!((asked.sampling.temperature, asked.sampling.top_k), (1.0, 0));
        assert_eq!(asked.sampling.top_p, 1.0);
        assert!(asked.stop.is_empty());
    }

    #[test]
    fn fields_are_passed_on() {
        let request = json!({
            "prompts": [""], "tokens_to_generate": 3, "temperature": 0.5, "top_p": 0.9, "random_seed": 7,
            "no_log": true,
            "add_BOS": true, "stop_on_eol": true, "stop_on_double_eol": true, "top_p_decay": 0.0,
        });
        let asked = asked(request).unwrap();
        assert_eq!(asked.prompts, [Prompt::TextAfterEnd(String::new())]);
        assert_eq!((asked.max_new_tokens, asked.seed), (3, Some(7)));
        assert_eq!((asked.sampling.temperature, asked.sampling.top_p), (0.5, 0.9));
        assert_eq!(asked.stop, ["\n\n"]);
    }

    #[test]
    fn what_is_not_supported_is_refused_by_its_name() {
        for (name, value) in [
            ("top_p_decay", json!(0.5)),
            ("top_p_bound", json!(0.5)),
            ("prevent_newline_after_colon", json!(true)),
            ("beam_width", json!(2)),
            ("stop_token", json!(0)),
            ("length_penalty", json!(1.0)),
            ("max_len", json!(5)),
            ("sentences", json!(["a"])),
        ] {
            let error = asked(json!({"prompts": ["a"], name: value})).unwrap_err();
            assert!(error.contains(name), "{name}: {error}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (request, words) in [
            (json!({}), "missing field `prompts`"),
            (json!({"prompts": []}), "prompts is empty"),
            (json!({"prompts": "a"}), "expected a sequence"),
            (json!({"prompts": [""]}), "add_BOS"),
            (json!({"prompts": ["a"], "tokens_to_generate": 0}), "tokens_to_generate"),
            (json!({"prompts": ["a"], "tokens_to_generate": -1}), "expected usize"),
            (json!({"prompts": ["a"], "temperature": 0}), "temperature"),
            (json!({"prompts": ["a"], "random_seed": -1}), "expected u64"),
            (
                json!({"prompts": ["a"], "top_k": 2, "top_p": 0.5}),
                "exclude each other",
            ),
        ] {
            let error = asked(request.clone()).unwrap_err();
            assert!(error.contains(words), "{request}: {error}");
        }
    }
}
