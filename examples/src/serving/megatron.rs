//! `PUT /api`, as Megatron-LM's text generation server has it: prompts in, prompts and their continuations out.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use burn_megatron_data::names::{Effect, Table};
use models::generation::{FinishReason, SamplingConfig};
use serde_json::{Value, json};

use super::app::{App, Prompt, json_response};
use super::asking::{Asked, Output};
use super::error::ApiError;
use super::fields::{FALSE, Fields, NEVER, ONE, ZERO, list};

/// The fields of a request.
const FIELDS: &Table = &[
    ("prompts", Effect::Read),
    ("tokens_to_generate", Effect::Read),
    ("logprobs", Effect::Read),
    ("temperature", Effect::Read),
    ("top_k", Effect::Read),
    ("top_p", Effect::Read),
    ("add_BOS", Effect::Read),
    ("stop_on_double_eol", Effect::Read),
    ("stop_on_eol", Effect::Read),
    ("random_seed", Effect::Read),
    // Requests are not logged here.
    ("no_log", Effect::Elsewhere),
    ("top_p_decay", ZERO),
    ("top_p_bound", ZERO),
    ("prevent_newline_after_colon", FALSE),
    ("beam_width", NEVER),
    ("stop_token", NEVER),
    ("length_penalty", ONE),
    ("max_len", NEVER),
    ("sentences", NEVER),
];

#[derive(Clone, Debug)]
struct GenerateRequest {
    prompts: Vec<String>,
    tokens_to_generate: usize,
    has_log_probabilities: bool,
    temperature: f64,
    top_k: usize,
    top_p: f64,
    adds_end: bool,
    stops_on_double_eol: bool,
    stops_on_eol: bool,
    seed: Option<u64>,
}

/// Answers `PUT /api`.
pub(super) async fn generate(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let request = GenerateRequest::take(app.fields(&app.read(request).await?, &[FIELDS])?)?;
    let asked = request.asked()?;
    let mut generating = asked.begin(&app).await?;
    let outputs = generating.outputs().await?;
    let tokenizer = app.engine.tokenizer();
    let (mut texts, mut segments, mut log_probabilities) = (Vec::new(), Vec::new(), Vec::new());
    for ((text, prompt), output) in request.prompts.iter().zip(&generating.prompts).zip(&outputs) {
        texts.push(request.whole_text(text, output));
        let tokens = prompt.iter().chain(output.tokens.iter().map(|token| &token.token));
        segments.push(tokens.map(|token| tokenizer.token_text(*token)).collect::<Vec<_>>());
        log_probabilities.push(log_probabilities_of(output));
    }
    Ok(json_response(&json!({
        "text": texts,
        "segments": segments,
        "logprobs": request.has_log_probabilities.then_some(log_probabilities),
    })))
}

/// The log-probability of every segment but the first, in nats, as Megatron-LM has them.
fn log_probabilities_of(output: &Output) -> Vec<Option<f64>> {
    let of_prompt = output.prompt.iter().map(|token| Some(token.log_probability));
    let tokens = output.tokens.iter().map(|token| token.log_probability);
    of_prompt.chain(tokens).collect()
}

impl GenerateRequest {
    fn take(mut fields: Fields) -> Result<Self, ApiError> {
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let prompts = fields.read("prompts", "a list of texts", |value| list(value, text))?;
        Ok(Self {
            prompts: prompts.ok_or_else(|| ApiError::bad_request("missing field prompts"))?,
            tokens_to_generate: fields.count("tokens_to_generate")?.unwrap_or(64),
            has_log_probabilities: fields.is_set("logprobs")?,
            temperature: fields.number("temperature")?.unwrap_or(1.0),
            top_k: fields.count("top_k")?.unwrap_or(0),
            top_p: fields.number("top_p")?.unwrap_or(0.0),
            adds_end: fields.is_set("add_BOS")?,
            stops_on_double_eol: fields.is_set("stop_on_double_eol")?,
            stops_on_eol: fields.is_set("stop_on_eol")?,
            seed: fields.seed("random_seed")?,
        })
    }

    fn asked(&self) -> Result<Asked, ApiError> {
        self.check()?;
        let as_prompt = if self.adds_end {
            Prompt::TextAfterEnd
        } else {
            Prompt::Text
        };
        Ok(Asked {
            prompts: self.prompts.iter().cloned().map(as_prompt).collect(),
            max_new_tokens: Some(self.tokens_to_generate),
            num_samples: 1,
            seed: self.seed,
            sampling: SamplingConfig {
                temperature: self.temperature,
                top_k: self.top_k,
                top_p: if self.top_p == 0.0 { 1.0 } else { self.top_p },
                ..SamplingConfig::default()
            },
            stop: self.stop().map(str::to_owned).into_iter().collect(),
            scores_prompt: self.has_log_probabilities,
            ..Asked::default()
        })
    }

    /// The text that ends an output.
    fn stop(&self) -> Option<&'static str> {
        match (self.stops_on_double_eol, self.stops_on_eol) {
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
        if self.prompts.iter().any(String::is_empty) && !self.adds_end {
            return refuse("an empty prompt needs add_BOS true");
        }
        if self.tokens_to_generate == 0 && !self.has_log_probabilities {
            return refuse("tokens_to_generate 0 needs logprobs true: there would be nothing to answer");
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
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(request: Value) -> Result<Asked, String> {
        let asked = Fields::of(request, "", &[FIELDS]).and_then(GenerateRequest::take);
        asked.and_then(|request| request.asked()).map_err(|error| error.message)
    }

    #[test]
    fn what_is_left_out_is_what_megatron_lm_takes() {
        let asked = asked(json!({"prompts": ["a", "b"]})).unwrap();
        assert_eq!(asked.prompts, ["a", "b"].map(|text| Prompt::Text(text.to_owned())));
        assert_eq!(
            (asked.max_new_tokens, asked.num_samples, asked.seed),
            (Some(64), 1, None)
        );
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
        assert_eq!((asked.max_new_tokens, asked.seed), (Some(3), Some(7)));
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
            ("length_penalty", json!(0.5)),
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
            (json!({}), "missing field prompts"),
            (json!([["a"], 5]), "a request must be an object"),
            (
                json!({"prompts": ["a"], "tokens_to_generat": 5}),
                "the nearest known name is tokens_to_generate",
            ),
            (json!({"prompts": []}), "prompts is empty"),
            (json!({"prompts": "a"}), "prompts must be a list of texts, got \"a\""),
            (json!({"prompts": [""]}), "add_BOS"),
            (json!({"prompts": ["a"], "tokens_to_generate": 0}), "tokens_to_generate"),
            (
                json!({"prompts": ["a"], "tokens_to_generate": -1}),
                "tokens_to_generate must be a whole number",
            ),
            (json!({"prompts": ["a"], "temperature": 0}), "temperature"),
            (
                json!({"prompts": ["a"], "random_seed": "x"}),
                "random_seed must be a whole number",
            ),
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
