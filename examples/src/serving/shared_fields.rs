//! [`SharedFields`]: what OpenAI's two APIs have in common, with the fields that vLLM and others add.

use burn_megatron_data::names::{Effect, Table};
use models::generation::SamplingConfig;
use serde_json::Value;

use super::app::App;
use super::asking::Asked;
use super::error::ApiError;
use super::fields::{EMPTY, FALSE, Fields, NEVER, ONE, TRUE, ZERO, list, token, whole, wrong};

/// The most probable tokens whose log-probabilities are given.
const MOST_LOG_PROBABILITIES: usize = 20;
/// Texts that may end an output.
const MOST_STOPS: usize = 16;

/// The fields of both APIs.
pub(super) const SHARED: &Table = &[
    ("model", Effect::Read),
    ("max_tokens", Effect::Read),
    ("temperature", Effect::Read),
    ("top_p", Effect::Read),
    ("top_k", Effect::Read),
    ("min_p", Effect::Read),
    ("n", Effect::Read),
    ("stream", Effect::Read),
    ("stream_options", Effect::Read),
    ("stop", Effect::Read),
    ("stop_token_ids", Effect::Read),
    ("seed", Effect::Read),
    ("logprobs", Effect::Read),
    ("logit_bias", Effect::Read),
    ("presence_penalty", Effect::Read),
    ("frequency_penalty", Effect::Read),
    ("repetition_penalty", Effect::Read),
    ("ignore_eos", Effect::Read),
    ("add_special_tokens", Effect::Read),
    // Who asks, and how urgently; what is kept of it, where nothing is.
    ("user", Effect::Elsewhere),
    ("metadata", Effect::Elsewhere),
    ("store", Effect::Elsewhere),
    ("service_tier", Effect::Elsewhere),
    ("safety_identifier", Effect::Elsewhere),
    ("prompt_cache_key", Effect::Elsewhere),
    ("prompt_cache_retention", Effect::Elsewhere),
    ("cache_prompt", Effect::Elsewhere),
    ("cache_salt", Effect::Elsewhere),
    ("priority", Effect::Elsewhere),
    ("request_id", Effect::Elsewhere),
    // Between special tokens, which texts do not have.
    ("spaces_between_special_tokens", Effect::Elsewhere),
    ("skip_special_tokens", TRUE),
    (
        "response_format",
        Effect::Only(&[r#"{"type":"text"}"#], "outputs are texts"),
    ),
    ("min_tokens", ZERO),
    ("length_penalty", ONE),
    ("use_beam_search", FALSE),
    ("early_stopping", FALSE),
    ("include_stop_str_in_output", FALSE),
    ("return_tokens_as_token_ids", FALSE),
    ("return_token_ids", FALSE),
    ("prompt_logprobs", NEVER),
    ("truncate_prompt_tokens", NEVER),
    ("allowed_token_ids", NEVER),
    ("bad_words", EMPTY),
    ("logits_processors", EMPTY),
    ("structured_outputs", NEVER),
    ("guided_json", NEVER),
    ("guided_regex", NEVER),
    ("guided_choice", NEVER),
    ("guided_grammar", NEVER),
    ("grammar", EMPTY),
    ("json_schema", EMPTY),
    ("top_a", ZERO),
    ("tfs", ONE),
    ("tfs_z", ONE),
    ("typical_p", ONE),
    ("mirostat", ZERO),
    ("mirostat_mode", ZERO),
    ("xtc_probability", ZERO),
    ("dry_multiplier", ZERO),
    ("dynatemp_range", ZERO),
    ("repeat_penalty", ONE),
    ("n_predict", NEVER),
    ("max_new_tokens", NEVER),
    ("max_length", NEVER),
    ("stop_sequences", EMPTY),
    ("functions", EMPTY),
    ("prompt_embeds", NEVER),
];

/// The fields of `stream_options`.
const STREAM_OPTIONS: &Table = &[
    ("include_usage", Effect::Read),
    ("continuous_usage_stats", Effect::Read),
    ("include_obfuscation", Effect::Elsewhere),
];

/// The delivery of an answer, whole or streamed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Delivery {
    pub(super) streams: bool,
    /// True if a stream ends with the usage.
    pub(super) includes_usage: bool,
    /// True if every piece of a stream has the usage so far.
    pub(super) has_continuous_usage: bool,
}

/// The request, as far as both APIs have it in common.
#[derive(Debug)]
pub(super) struct SharedFields {
    model: Option<String>,
    pub(super) delivery: Delivery,
    /// True if the tokenizer's post-processor adds to the prompt.
    pub(super) adds_special_tokens: Option<bool>,
    /// Without prompts, and with one output each.
    pub(super) asked: Asked,
}

impl SharedFields {
    pub(super) fn take(fields: &mut Fields) -> Result<Self, ApiError> {
        let usual = SamplingConfig::default();
        let sampling = SamplingConfig {
            logit_bias: logit_bias(fields)?,
            temperature: fields.number("temperature")?.unwrap_or(usual.temperature),
            top_k: top_k(fields)?.unwrap_or(usual.top_k),
            top_p: fields.number("top_p")?.unwrap_or(usual.top_p),
            min_p: fields.number("min_p")?.unwrap_or(usual.min_p),
            repetition_penalty: fields.number("repetition_penalty")?.unwrap_or(usual.repetition_penalty),
            frequency_penalty: fields.number("frequency_penalty")?.unwrap_or(usual.frequency_penalty),
            presence_penalty: fields.number("presence_penalty")?.unwrap_or(usual.presence_penalty),
            seed: usual.seed,
        };
        sampling
            .validate()
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
        let stop_tokens = fields.read("stop_token_ids", "a list of tokens", |value| list(value, token))?;
        Ok(Self {
            model: fields.text("model")?,
            delivery: delivery(fields)?,
            adds_special_tokens: fields.flag("add_special_tokens")?,
            asked: Asked {
                max_new_tokens: fields.count("max_tokens")?,
                num_samples: fields.count("n")?.unwrap_or(1),
                seed: fields.seed("seed")?,
                sampling,
                stop: stops(fields)?,
                stop_tokens: stop_tokens.into_iter().flatten().map(|token| vec![token]).collect(),
                ignores_end_of_document: fields.is_set("ignore_eos")?,
                ..Asked::default()
            },
        })
    }

    /// Checks that the model that is asked for is the one that is served.
    pub(super) fn check_model(&self, app: &App) -> Result<(), ApiError> {
        self.model.as_deref().map_or(Ok(()), |model| app.check_model(model))
    }
}

/// Checks how many of the most probable tokens are asked for.
pub(super) fn check_top(name: &str, count: usize) -> Result<usize, ApiError> {
    if count > MOST_LOG_PROBABILITIES {
        let message = format!("{name} must be at most {MOST_LOG_PROBABILITIES}, got {count}");
        return Err(ApiError::bad_request(message));
    }
    Ok(count)
}

fn delivery(fields: &mut Fields) -> Result<Delivery, ApiError> {
    let streams = fields.is_set("stream")?;
    let Some(options) = fields.take("stream_options") else {
        return Ok(Delivery {
            streams,
            ..Delivery::default()
        });
    };
    let mut options = Fields::of(options, "stream_options.", &[STREAM_OPTIONS])?;
    fields.unknown.append(&mut options.unknown);
    if !streams {
        return Err(ApiError::bad_request("stream_options needs stream true"));
    }
    Ok(Delivery {
        streams,
        includes_usage: options.is_set("include_usage")?,
        has_continuous_usage: options.is_set("continuous_usage_stats")?,
    })
}

/// The number of tokens to draw from; −1 is all, as 0 is.
fn top_k(fields: &mut Fields) -> Result<Option<usize>, ApiError> {
    fields.read(
        "top_k",
        "a whole number, −1 or 0 for all tokens",
        |value| match whole(value)? {
            -1 => Some(0),
            count => usize::try_from(count).ok(),
        },
    )
}

/// Texts that end an output. One without a character ends none.
fn stops(fields: &mut Fields) -> Result<Vec<String>, ApiError> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let stops = fields.read("stop", "a text or a list of texts", |value| match value {
        Value::String(stop) => Some(vec![stop.clone()]),
        value => list(value, text),
    })?;
    let mut stops = stops.unwrap_or_default();
    stops.retain(|stop| !stop.is_empty());
    if stops.len() > MOST_STOPS {
        let message = format!("stop has {} texts, at most {MOST_STOPS} are allowed", stops.len());
        return Err(ApiError::bad_request(message));
    }
    Ok(stops)
}

fn logit_bias(fields: &mut Fields) -> Result<Vec<(u32, f64)>, ApiError> {
    let Some(value) = fields.take("logit_bias") else {
        return Ok(Vec::new());
    };
    let entries = value.as_object().map(|entries| {
        let entry = |(token, bias): (&String, &Value)| Some((token.parse().ok()?, bias.as_f64()?));
        entries.iter().map(entry).collect()
    });
    let expected = "an object of tokens and what is added to their scores, as {\"50256\": -100}";
    entries.flatten().ok_or_else(|| wrong("logit_bias", expected, &value))
}
