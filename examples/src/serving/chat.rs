//! `POST /v1/chat/completions`, as OpenAI's API has it: messages that the checkpoint's chat template makes a prompt of.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use burn_megatron_data::chat_dataset::PromptEnd;
use burn_megatron_data::names::{Effect, Table};

use super::app::{App, Conversation, Prompt};
use super::asking::Asked;
use super::completion::{Completion, Shape};
use super::completions::answer;
use super::error::ApiError;
use super::fields::{EMPTY, FALSE, Fields, NEVER, ONE, TRUE};
use super::shared_fields::{SHARED, SharedFields, check_top};

/// The fields of this API alone. Those that the template takes are read with it.
const FIELDS: &Table = &[
    ("messages", Effect::Read),
    ("tools", Effect::Read),
    ("tool_choice", Effect::Only(&["auto", "none"], "")),
    ("documents", Effect::Read),
    ("chat_template_kwargs", Effect::Read),
    ("reasoning_effort", Effect::Read),
    ("enable_thinking", Effect::Read),
    ("add_generation_prompt", Effect::Read),
    ("continue_final_message", Effect::Read),
    ("max_completion_tokens", Effect::Read),
    ("top_logprobs", Effect::Read),
    // A guess of the output, and pieces that outputs here do not have.
    ("prediction", Effect::Elsewhere),
    ("include_reasoning", Effect::Elsewhere),
    ("modalities", Effect::Only(&[r#"["text"]"#], "outputs are texts")),
    ("parallel_tool_calls", TRUE),
    ("function_call", Effect::Only(&["auto", "none"], "")),
    ("verbosity", Effect::Only(&["medium"], "")),
    ("audio", NEVER),
    ("web_search_options", NEVER),
    ("chat_template", NEVER),
    ("mm_processor_kwargs", EMPTY),
    ("echo", FALSE),
    ("prompt", EMPTY),
    ("suffix", EMPTY),
    ("best_of", ONE),
];

#[derive(Debug)]
struct ChatRequest {
    shared: SharedFields,
    has_log_probabilities: bool,
}

/// Answers `POST /v1/chat/completions`.
pub(super) async fn complete(State(app): State<Arc<App>>, request: Request) -> Result<Response, ApiError> {
    let body = app.read(request).await?;
    let fields = app.fields(&body, &[SHARED, FIELDS])?;
    let body = String::from_utf8(body.into()).map_err(|error| ApiError::bad_request(format!("the body: {error}")))?;
    let request = ChatRequest::take(fields, body)?;
    request.shared.check_model(&app)?;
    let mut completion = Completion::new(&app, Shape::Chat, request.shared.delivery)?;
    completion.has_log_probabilities = request.has_log_probabilities;
    let num_samples = request.shared.asked.num_samples;
    let generating = request.shared.asked.begin(&app).await?;
    answer(completion, generating, num_samples).await
}

impl ChatRequest {
    fn take(mut fields: Fields, body: String) -> Result<Self, ApiError> {
        let refuse = |message: &str| Err(ApiError::bad_request(message));
        let mut shared = SharedFields::take(&mut fields)?;
        let has_log_probabilities = fields.is_set("logprobs")?;
        let top = check_top("top_logprobs", fields.count("top_logprobs")?.unwrap_or(0))?;
        if top > 0 && !has_log_probabilities {
            return refuse("top_logprobs needs logprobs true");
        }
        let continues = fields.is_set("continue_final_message")?;
        let end = match fields.flag("add_generation_prompt")? {
            Some(true) if continues => {
                return refuse("add_generation_prompt and continue_final_message exclude each other");
            }
            Some(false) if !continues => PromptEnd::Whole,
            _ if continues => PromptEnd::FinalMessage,
            _ => PromptEnd::GenerationPrompt,
        };
        let conversation = Conversation {
            request: body,
            end,
            adds_special_tokens: shared.adds_special_tokens == Some(true),
        };
        let most = fields.count("max_completion_tokens")?;
        shared.asked = Asked {
            prompts: vec![Prompt::Conversation(conversation)],
            max_new_tokens: most.or(shared.asked.max_new_tokens),
            top_log_probabilities: top,
            ..shared.asked
        };
        Ok(Self {
            shared,
            has_log_probabilities,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn request(mut fields: Value) -> Result<ChatRequest, String> {
        if fields["messages"].is_null() {
            fields["messages"] = json!([{"role": "user", "content": "a"}]);
        }
        let body = fields.to_string();
        let fields = Fields::of(fields, "", &[SHARED, FIELDS]);
        let request = fields.and_then(|fields| ChatRequest::take(fields, body));
        request.map_err(|error| error.message)
    }

    #[test]
    fn prompts_end_as_vllm_has_it() {
        for (fields, expected) in [
            (json!({}), PromptEnd::GenerationPrompt),
            (json!({"add_generation_prompt": true}), PromptEnd::GenerationPrompt),
            (json!({"add_generation_prompt": false}), PromptEnd::Whole),
            (json!({"continue_final_message": true}), PromptEnd::FinalMessage),
            (
                json!({"continue_final_message": true, "add_generation_prompt": false}),
                PromptEnd::FinalMessage,
            ),
        ] {
            let asked = request(fields.clone()).unwrap().shared.asked;
            let [Prompt::Conversation(conversation)] = &asked.prompts[..] else {
                panic!("{asked:?}");
            };
            assert_eq!(conversation.end, expected, "{fields}");
            assert!(!conversation.adds_special_tokens);
        }
        let error = request(json!({"continue_final_message": true, "add_generation_prompt": true})).unwrap_err();
        assert!(error.contains("exclude each other"), "{error}");
    }

    #[test]
    fn limits_and_log_probabilities_have_the_names_of_this_api() {
        let found = request(json!({"max_completion_tokens": 5, "max_tokens": 7, "logprobs": true, "top_logprobs": 2}));
        let found = found.unwrap();
        assert_eq!(found.shared.asked.max_new_tokens, Some(5));
        assert!(found.has_log_probabilities && found.shared.asked.top_log_probabilities == 2);
        // All positions that are left.
        assert_eq!(request(json!({})).unwrap().shared.asked.max_new_tokens, None);
    }

    #[test]
    fn what_is_not_supported_is_refused_by_its_name() {
        for (name, value) in [
            ("top_logprobs", json!(3)),
            ("logprobs", json!(3)),
            ("tool_choice", json!("required")),
            ("parallel_tool_calls", json!(false)),
            ("response_format", json!({"type": "json_schema"})),
            ("modalities", json!(["text", "audio"])),
            ("chat_template", json!("{{ messages }}")),
            ("prompt", json!("a")),
            ("message", json!([])),
            ("max_completion_token", json!(5)),
        ] {
            let error = request(json!({name: value})).unwrap_err();
            assert!(error.contains(name), "{name}: {error}");
        }
        for (name, value) in [
            ("tool_choice", json!("auto")),
            ("parallel_tool_calls", json!(true)),
            ("reasoning_effort", json!("low")),
            ("modalities", json!(["text"])),
            ("store", json!(true)),
        ] {
            assert!(request(json!({name: value})).is_ok(), "{name}");
        }
    }
}
