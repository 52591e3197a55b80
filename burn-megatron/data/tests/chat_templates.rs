//! Conversations become the texts, tokens and masks of Hugging Face's transformers: `fixtures/chat_templates.json`,
//! which `fixtures/chat_templates.py` made.

#![allow(clippy::unwrap_used)] // Its helpers are tests too.

use std::path::Path;
use std::sync::Arc;

use burn_megatron_data::chat_dataset::{
    ChatDataset, ChatDatasetConfig, ChatSample, ChatTemplate, Conversations, LongConversations,
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
                // What Python says of types is not what minijinja says.
                let is_same = error.to_string().contains(expected) || expected.contains("has no attribute");
                assert!(is_same, "{name}: {error}");
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
        let name = format!("{} of {}", case.template, case.line);
        if let Err(error) = conversations.read(&path, &template, &*tokenizer) {
            // Some templates write no calls and no thoughts. Mistral's leaves the system's message out of the whole,
            // which each answer's prompt has.
            let reasons = [
                "does not write the key \"tool_calls\"",
                "leaves out what was thought",
                "the conversation has",
            ];
            assert!(
                reasons.iter().any(|reason| error.to_string().contains(reason)),
                "{name}: {error}"
            );
            continue;
        }
        let config = ChatDatasetConfig::new(None);
        let all = 0..conversations.len();
        let is_one = all.len() == 1;
        let dataset = ChatDataset::new(&config, Arc::new(conversations), all, &*tokenizer).unwrap();
        let samples: Vec<ChatSample> = (0..dataset.num_samples())
            .map(|index| dataset.read(index).unwrap())
            .collect();
        // A template that writes earlier messages otherwise when others follow gives them samples of their own.
        let is_whole = |sample: &&ChatSample| {
            (&sample.tokens[..], &sample.targets[..]) == (&expected[..seq_length], &expected[1..])
        };
        let Some(sample) = samples.iter().find(is_whole) else {
            assert!(["thinking", "features", "mistral"].contains(&&*case.template), "{name}");
            continue;
        };
        if let Some(mask) = &case.mask {
            let found: Vec<bool> = sample.loss_mask.iter().map(|&weight| weight > 0.0).collect();
            let expected: Vec<bool> = mask[1..].chars().map(|mask| mask == '1').collect();
            if is_one {
                assert_eq!(found, expected, "{name}");
                masks += 1;
            } else {
                assert!(
                    found.iter().zip(&expected).all(|(found, expected)| !found || *expected),
                    "{name}"
                );
            }
        }
    }
    assert!(masks >= 6, "{masks} masks");
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
