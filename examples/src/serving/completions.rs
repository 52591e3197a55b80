//! `POST /v1/completions`, as OpenAI's API has it.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use burn_megatron_data::names::{Effect, Table};
use serde_json::Value;

use super::app::{App, Prompt, json_response};
use super::asking::{Asked, Generating, Output, OutputToken};
use super::completion::{Choice, Completion, Part, Shape, usage};
use super::error::ApiError;
use super::fields::{EMPTY, Fields, NEVER, count, list, token};
use super::shared_fields::{SHARED, SharedFields, check_top};
use super::streaming::stream;

/// The fields of this API alone.
const FIELDS: &Table = &[
    ("prompt", Effect::Read),
    ("echo", Effect::Read),
    ("best_of", Effect::Read),
    ("suffix", EMPTY),
    ("messages", EMPTY),
    ("tools", EMPTY),
    ("max_completion_tokens", NEVER),
    ("top_logprobs", NEVER),
];

#[derive(Debug)]
struct CompletionRequest {
    shared: SharedFields,
    echoes: bool,
    has_log_probabilities: bool,
    /// The outputs of each prompt that are answered, of those that are generated.
    num_answered: usize,
}

/// Answers `POST /v1/completions`.
pub(super) async fn complete(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let fields = app.fields(&app.read(request).await?, &[SHARED, FIELDS])?;
    let request = CompletionRequest::take(fields)?;
    request.shared.check_model(&app)?;
    let mut completion = Completion::new(&app, Shape::Text, request.shared.delivery)?;
    completion.echoes = request.echoes;
    completion.has_log_probabilities = request.has_log_probabilities;
    let generating = request.shared.asked.begin(&app).await?;
    answer(completion, generating, request.num_answered).await
}

/// Answers with `num_answered` outputs of each prompt, those of the highest mean log-probability.
pub(super) async fn answer(
    completion: Completion,
    mut generating: Generating,
    num_answered: usize,
) -> Result<Response, ApiError> {
    if completion.delivery.streams {
        return Ok(stream(completion, generating));
    }
    let mut outputs = generating.outputs().await?;
    let num_drawn = outputs.iter().map(|output| output.tokens.len()).sum();
    let answered = best(&outputs, generating.num_samples(), num_answered);
    let choices = answered.into_iter().enumerate().map(|(index, output)| {
        let Output {
            text,
            prompt,
            tokens,
            finished,
        } = std::mem::take(&mut outputs[output]);
        let before = completion.shown_prompt(&generating, output);
        let start = before.chars().count();
        let of_prompt = completion.shown_prompt_tokens(&generating, output, prompt);
        let drawn = tokens.into_iter().map(|token| token.after(start));
        completion.choice(&Choice {
            index,
            part: Part::Whole,
            text: before + &text,
            tokens: of_prompt.into_iter().chain(drawn).collect::<Vec<OutputToken>>(),
            finished,
        })
    });
    let choices: Vec<Value> = choices.collect();
    let usage = usage(&generating, num_drawn);
    Ok(json_response(&completion.answer(choices, Some(usage))))
}

/// Returns the places of the `count` best of every `of` outputs: all in their order, or the best first.
fn best(outputs: &[Output], of: usize, count: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..outputs.len()).collect();
    if count < of {
        let mean = |place: &usize| outputs[*place].mean_log_probability();
        for places in places.chunks_mut(of) {
            places.sort_by(|left, right| mean(right).total_cmp(&mean(left)));
        }
        places = places.chunks(of).flat_map(|places| &places[..count]).copied().collect();
    }
    places
}

impl CompletionRequest {
    fn take(mut fields: Fields) -> Result<Self, ApiError> {
        let mut shared = SharedFields::take(&mut fields)?;
        let echoes = fields.is_set("echo")?;
        // `false` is none, as null is.
        let top = fields.read("logprobs", "a whole number from 0 on", |value| match value {
            Value::Bool(false) => Some(None),
            value => count(value).map(Some),
        })?;
        let top = top.flatten();
        let num_answered = shared.asked.num_samples;
        let num_samples = fields.count("best_of")?.unwrap_or(num_answered);
        if num_samples < num_answered {
            let message = format!("best_of must be at least n, {num_answered}, got {num_samples}");
            return Err(ApiError::bad_request(message));
        }
        if num_samples > num_answered && shared.delivery.streams {
            let message = "best_of above n cannot be streamed: the best are known at the end";
            return Err(ApiError::bad_request(message));
        }
        shared.asked = Asked {
            prompts: prompts(&mut fields, shared.adds_special_tokens != Some(false))?,
            max_new_tokens: shared.asked.max_new_tokens.or(Some(16)),
            num_samples,
            top_log_probabilities: check_top("logprobs", top.unwrap_or(0))?,
            scores_prompt: top.is_some() && echoes,
            ..shared.asked
        };
        Ok(Self {
            shared,
            echoes,
            has_log_probabilities: top.is_some(),
            num_answered,
        })
    }
}

/// Prompts as clients give them: as text or as tokens, one or several.
fn prompts(fields: &mut Fields, adds_special_tokens: bool) -> Result<Vec<Prompt>, ApiError> {
    let as_prompt = if adds_special_tokens {
        Prompt::Text
    } else {
        Prompt::TextAlone
    };
    let text = |value: &Value| Some(as_prompt(value.as_str()?.to_owned()));
    let tokens = |value: &Value| list(value, token).map(Prompt::Tokens);
    let expected = "a text, tokens, or a list of one of these";
    let prompts = fields.read("prompt", expected, |value| match value {
        Value::String(_) => Some(vec![text(value)?]),
        // Of no elements, a list is of no texts.
        Value::Array(elements) if elements.iter().any(Value::is_number) => Some(vec![tokens(value)?]),
        value => list(value, text).or_else(|| list(value, tokens)),
    })?;
    prompts.ok_or_else(|| ApiError::bad_request("missing field prompt"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::shared_fields::Delivery;
    use super::*;

    fn request(mut fields: Value) -> Result<CompletionRequest, String> {
        if fields["prompt"].is_null() {
            fields["prompt"] = "a".into();
        }
        let request = Fields::of(fields, "", &[SHARED, FIELDS]).and_then(CompletionRequest::take);
        request.map_err(|error| error.message)
    }

    fn asked(fields: Value) -> Asked {
        request(fields).unwrap().shared.asked
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
            assert_eq!(asked(json!({"prompt": given})).prompts, prompts);
        }
        let alone = asked(json!({"prompt": ["a"], "add_special_tokens": false}));
        assert_eq!(alone.prompts, [Prompt::TextAlone("a".to_owned())]);
        for wrong in [
            json!({"text": "a"}),
            json!(["a", 1]),
            json!([1, "a"]),
            json!([[1], "a"]),
            json!([-1]),
        ] {
            let error = request(json!({"prompt": wrong})).unwrap_err();
            assert!(
                error.starts_with("prompt must be a text, tokens, or a list of"),
                "{error}"
            );
        }
        let missing = Fields::of(json!({}), "", &[SHARED, FIELDS]).and_then(CompletionRequest::take);
        assert_eq!(missing.unwrap_err().message, "missing field prompt");
    }

    #[test]
    fn what_is_left_out_is_what_openai_takes() {
        let asked = asked(json!({"max_tokens": null, "presence_penalty": 0, "best_of": 1, "logit_bias": {}}));
        assert_eq!(
            (asked.max_new_tokens, asked.num_samples, asked.seed),
            (Some(16), 1, None)
        );
        assert_eq!(asked.sampling, models::generation::SamplingConfig::default());
        assert!(asked.stop.is_empty() && asked.stop_tokens.is_empty() && !asked.ignores_end_of_document);
    }

    #[test]
    fn what_clients_send_and_changes_nothing_is_taken() {
        let plain = format!("{:?}", asked(json!({})));
        for (name, value) in [
            ("seed", json!(-1)),
            ("min_p", json!(0)),
            ("top_k", json!(-1)),
            ("top_k", json!(0)),
            ("top_p", json!(1)),
            ("stop", json!([""])),
            ("stop", json!("")),
            ("stop_token_ids", json!([])),
            ("skip_special_tokens", json!(true)),
            ("spaces_between_special_tokens", json!(false)),
            ("add_special_tokens", json!(true)),
            ("response_format", json!({"type": "text", "json_schema": null})),
            ("user", json!("someone")),
            ("suffix", json!("")),
            ("logprobs", json!(false)),
            ("use_beam_search", json!(false)),
            ("top_a", json!(0)),
            ("min_tokens", json!(0)),
            ("something_of_a_client", json!({"a": [1]})),
        ] {
            assert_eq!(format!("{:?}", asked(json!({name: value}))), plain, "{name}");
        }
    }

    #[test]
    fn fields_are_passed_on() {
        let asked = asked(json!({
            "max_tokens": 0, "n": 2, "best_of": 3, "echo": true, "logprobs": 2, "seed": 7, "temperature": 0.5,
            "top_k": 5, "top_p": 0.9, "min_p": 0.1, "repetition_penalty": 1.1, "frequency_penalty": 0.2,
            "presence_penalty": -0.3, "logit_bias": {"5": -100, "17": 2.5}, "stop": ["x", ""], "ignore_eos": true,
            "stop_token_ids": [3, 4],
        }));
        assert_eq!(
            (asked.max_new_tokens, asked.num_samples, asked.seed),
            (Some(0), 3, Some(7))
        );
        assert_eq!((asked.top_log_probabilities, asked.scores_prompt), (2, true));
        assert_eq!(
            (asked.stop, asked.stop_tokens),
            (vec!["x".to_owned()], vec![vec![3], vec![4]])
        );
        assert!(asked.ignores_end_of_document);
        let expected = models::generation::SamplingConfig {
            logit_bias: vec![(17, 2.5), (5, -100.0)],
            temperature: 0.5,
            top_k: 5,
            top_p: 0.9,
            min_p: 0.1,
            repetition_penalty: 1.1,
            frequency_penalty: 0.2,
            presence_penalty: -0.3,
            ..Default::default()
        };
        assert_eq!(asked.sampling, expected);
    }

    #[test]
    fn streams_may_have_the_usage() {
        let delivery = |value: Value| request(value).map(|request| request.shared.delivery);
        let options = json!({"include_usage": true, "continuous_usage_stats": true, "include_obfuscation": false});
        let found = delivery(json!({"stream": true, "stream_options": options})).unwrap();
        assert!(found.streams && found.includes_usage && found.has_continuous_usage);
        let found = delivery(json!({"stream": false, "stream_options": null})).unwrap();
        assert_eq!(found, Delivery::default());
        let error = delivery(json!({"stream": true, "stream_options": {"include_usages": true}})).unwrap_err();
        assert!(error.ends_with("name is stream_options.include_usage"), "{error}");
        let error = delivery(json!({"stream": true, "stream_options": []})).unwrap_err();
        assert_eq!(error, "stream_options must be an object with fields, got []");
    }

    #[test]
    fn what_is_not_supported_is_refused_by_its_name() {
        for (name, value) in [
            ("best_of", json!(0)),
            ("presence_penalty", json!(2.5)),
            ("frequency_penalty", json!("1")),
            ("repetition_penalty", json!(0)),
            ("logit_bias", json!({"a": 1})),
            ("logit_bias", json!({"5": 101})),
            ("logit_bias", json!([5])),
            ("suffix", json!("b")),
            ("functions", json!([{}])),
            ("tools", json!([{}])),
            ("messages", json!([{}])),
            ("logprobs", json!(21)),
            ("logprobs", json!(true)),
            ("stream_options", json!({"include_usage": true})),
            ("max_tokens", json!(-1)),
            ("max_token", json!(5)),
            ("stop", json!(5)),
            ("stop_token_ids", json!(["a"])),
            ("top_k", json!(-2)),
            ("min_p", json!(1.5)),
            ("temperature", json!(-0.5)),
            ("seed", json!("7")),
            ("skip_special_tokens", json!(false)),
            ("response_format", json!({"type": "json_object"})),
            ("min_tokens", json!(2)),
            ("guided_regex", json!("a*")),
            ("prompt_logprobs", json!(0)),
        ] {
            let error = request(json!({name: value})).unwrap_err();
            assert!(error.contains(name), "{name}: {error}");
            assert!(!error.contains("at line"), "{name}: {error}");
        }
        let error = request(json!({"n": 1, "best_of": 2, "stream": true})).unwrap_err();
        assert!(error.contains("best_of above n cannot be streamed"), "{error}");
    }

    #[test]
    fn the_best_outputs_have_the_highest_mean_log_probability() {
        let output = |logs: &[f64]| Output {
            tokens: logs
                .iter()
                .map(|log| OutputToken {
                    token: 0,
                    log_probability: Some(*log),
                    top: Vec::new(),
                    offset: 0,
                })
                .collect(),
            ..Output::default()
        };
        // Means −2, −1, −1.5; then −1, −3, −1, of which the first of equal ones is taken first.
        let outputs = [&[-2.0][..], &[-1.0, -1.0], &[-1.0, -2.0], &[-1.0], &[-3.0], &[-1.0]].map(output);
        assert_eq!(best(&outputs, 3, 2), [1, 2, 3, 5]);
        assert_eq!(best(&outputs, 3, 3), [0, 1, 2, 3, 4, 5]);
    }
}
