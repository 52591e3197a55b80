//! Conversations become the texts, tokens and masks of Hugging Face's transformers: `fixtures/chat_templates.json`,
//! which `fixtures/chat_templates.py` made.

#![allow(clippy::unwrap_used)] // Its helpers are tests too.

use std::path::Path;
use std::sync::Arc;

use burn_megatron_data::chat_dataset::{
    ChatDataset, ChatDatasetConfig, ChatTemplate, Conversations, LongConversations,
};
use burn_megatron_data::samples::SampleSet;
use burn_megatron_data::tokenizer::{Tokenizer, TokenizerFiles, TokenizerKind};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Fixture {
    templates: Value,
    special_tokens: Value,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    template: String,
    line: String,
    text: Option<String>,
    prompt: Option<String>,
    tokens: Option<Vec<u32>>,
    mask: Option<String>,
    error: Option<String>,
}

fn fixture() -> Fixture {
    serde_json::from_str(include_str!("fixtures/chat_templates.json")).unwrap()
}

/// The tokenizer of the fixtures with a template.
fn load(fixture: &Fixture, name: &str) -> (Arc<dyn Tokenizer>, ChatTemplate) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizers/llama3");
    let mut config = fixture.special_tokens.clone();
    config["chat_template"] = fixture.templates[name].clone();
    let files = vec![
        (
            "tokenizer.json".to_owned(),
            std::fs::read(folder.join("tokenizer.json")).unwrap(),
        ),
        ("tokenizer_config.json".to_owned(), config.to_string().into_bytes()),
    ];
    let files = TokenizerFiles::from_parts(TokenizerKind::HuggingFaceTokenizer, None, files);
    let template = ChatTemplate::of_tokenizer(&files).unwrap().unwrap();
    let template = template.with_time("2026-03-07T09:05:00".parse().unwrap());
    (files.tokenizer().unwrap(), template)
}

#[test]
fn texts_are_those_of_transformers() {
    let fixture = fixture();
    assert!(fixture.cases.len() >= 25);
    for case in &fixture.cases {
        let (_, template) = load(&fixture, &case.template);
        let name = format!("{} of {}", case.template, case.line);
        let texts = [false, true].map(|prompt| template.render(&case.line, prompt));
        let [text, prompt] = match texts {
            [Ok(text), Ok(prompt)] => [text, prompt],
            [Err(error), _] | [_, Err(error)] => {
                let expected = case.error.as_deref().unwrap_or_else(|| panic!("{name}: {error}"));
                assert!(error.to_string().contains(expected), "{name}: {error}");
                continue;
            }
        };
        assert_eq!(Some(text), case.text, "{name}");
        assert_eq!(Some(prompt), case.prompt, "{name}");
    }
}

#[test]
fn tokens_and_masks_of_generated_parts_are_those_of_transformers() {
    let fixture = fixture();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("one.jsonl");
    let mut masks = 0;
    for case in fixture.cases.iter().filter(|case| case.tokens.is_some()) {
        let (tokenizer, template) = load(&fixture, &case.template);
        let expected = case.tokens.as_ref().unwrap();
        let seq_length = expected.len() - 1;
        let mut conversations = Conversations::new(tokenizer.vocabulary_size(), seq_length, LongConversations::Refused);
        std::fs::write(&path, &case.line).unwrap();
        if let Err(error) = conversations.read(&path, &template, &*tokenizer) {
            // What Mistral's writes before the last user's message depends on there being no other.
            assert!(
                case.template == "mistral" && error.to_string().contains("message 3"),
                "{error}"
            );
            continue;
        }
        let name = format!("{} of {}", case.template, case.line);
        let config = ChatDatasetConfig::new(None);
        let dataset = ChatDataset::new(&config, Arc::new(conversations), 0..1, &*tokenizer).unwrap();
        let sample = dataset.read(0).unwrap();
        assert_eq!(
            (&sample.tokens[..], &sample.targets[..]),
            (&expected[..seq_length], &expected[1..]),
            "{name}"
        );
        if let Some(mask) = &case.mask {
            let found: String = sample
                .loss_mask
                .iter()
                .map(|&weight| if weight > 0.0 { '1' } else { '0' })
                .collect();
            assert_eq!(found, mask[1..], "{name}");
            masks += 1;
        }
    }
    assert!(masks >= 10);
}

#[test]
fn a_template_of_its_own_file_comes_first_and_of_several_the_default_one() {
    let template = |files: Vec<(&str, String)>| {
        let files = files
            .into_iter()
            .map(|(name, content)| (name.to_owned(), content.into_bytes()))
            .collect();
        ChatTemplate::of_tokenizer(&TokenizerFiles::from_parts(
            TokenizerKind::HuggingFaceTokenizer,
            None,
            files,
        ))
    };
    let text = |files| {
        template(files)
            .unwrap()
            .unwrap()
            .render(r#"{"messages": [{"role": "user"}]}"#, false)
            .unwrap()
    };
    let several = json!({ "bos_token": { "content": "<s>" }, "chat_template": [
        { "name": "tool_use", "template": "tools" }, { "name": "default", "template": "{{ bos_token }} default" },
    ] });
    let config = ("tokenizer_config.json", several.to_string());
    assert_eq!(text(vec![config.clone()]), "<s> default");
    assert_eq!(
        text(vec![config, ("chat_template.jinja", "{{ bos_token }} file".to_owned())]),
        "<s> file"
    );
    assert!(template(vec![]).unwrap().is_none());
    let broken = json!({ "chat_template": "a\n{% for x in %}" });
    let message = template(vec![("tokenizer_config.json", broken.to_string())])
        .unwrap_err()
        .to_string();
    assert!(
        message.starts_with("chat template of tokenizer_config.json: syntax error"),
        "{message}"
    );
    assert!(message.contains(":2"), "{message}");
}
