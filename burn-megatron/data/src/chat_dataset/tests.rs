//! Tests of `chat_dataset`: which tokens are learnt, how conversations are packed, and which files are refused.

use std::fs;
use std::path::PathBuf;

use proptest::prelude::*;

use super::answers::encode;
use super::conversation::Conversation;
use super::*;
use crate::tokenizer::ByteTokenizer;

/// What the sample's targets that count are, as a text, with `|` between parts.
fn answers(sample: &ChatSample) -> String {
    let mut parts = vec![];
    let mut previous = false;
    for (&target, &mask) in sample.targets.iter().zip(&sample.loss_mask) {
        if mask > 0.0 && !previous {
            parts.push(vec![]);
        }
        if let (Some(part), true) = (parts.last_mut(), mask > 0.0) {
            part.push(target);
        }
        previous = mask > 0.0;
    }
    parts
        .iter()
        .map(|part| ByteTokenizer.decode(part))
        .collect::<Vec<_>>()
        .join("|")
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, lines: &str) -> PathBuf {
        let path = self.0.path().join("chats.jsonl");
        fs::write(&path, lines).unwrap();
        path
    }

    fn read(&self, lines: &str, seq_length: usize, template: &ChatTemplate) -> Result<Conversations, ChatError> {
        let mut conversations =
            Conversations::new(ByteTokenizer::VOCABULARY_SIZE, seq_length, LongConversations::default());
        conversations.read(&self.write(lines), template, &ByteTokenizer)?;
        Ok(conversations)
    }
}

fn dataset(conversations: Conversations, num_samples: Option<u64>) -> ChatDataset {
    let range = 0..conversations.len();
    ChatDataset::new(
        &ChatDatasetConfig::new(num_samples),
        Arc::new(conversations),
        range,
        &ByteTokenizer,
    )
    .unwrap()
}

const LINES: &str = r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "bc"}]}

{"conversations": [{"from": "system", "value": "s"}, {"from": "human", "value": "d"}, {"from": "gpt", "value": "e"}]}
{"messages": [{"role": "user", "content": "no answer"}]}
"#;

#[test]
fn the_loss_counts_answers_alone_and_conversations_do_not_meet() {
    let conversations = Folder::new().read(LINES, 200, &ChatTemplate::chatml()).unwrap();
    let totals = ConversationTotals {
        taken: 2,
        cut: 0,
        without_answers: 1,
    };
    assert_eq!(conversations.totals(), totals);
    let dataset = dataset(conversations, None);
    assert_eq!(dataset.num_samples(), 1);
    let sample = dataset.read(0).unwrap();
    assert_eq!(answers(&sample), "bc<|im_end|>|e<|im_end|>");
    let first = "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nbc<|im_end|>\n".len() - 1;
    let text = ByteTokenizer.decode(&sample.tokens[..sample.length]);
    assert!(
        text[first..].starts_with("<|im_start|>system\ns<|im_end|>\n<|im_start|>user\nd"),
        "{text}"
    );
    let starts = |place| {
        if place < first {
            0
        } else if place < sample.length {
            first
        } else {
            sample.length
        }
    };
    for place in 0..200 {
        assert_eq!(sample.document_starts[place], starts(place));
        assert_eq!(sample.position_ids[place] as usize, place - starts(place));
    }
    assert!(
        sample.tokens[sample.length..]
            .iter()
            .all(|&token| token == ByteTokenizer::END_OF_DOCUMENT)
    );
    assert!(sample.loss_mask[sample.length..].iter().all(|&mask| mask == 0.0));
}

#[test]
fn answers_are_found_without_marks() {
    let source = "{% for m in messages %}[{{ m.role }}]{{ m.content }}.{% endfor %}\
        {% if add_generation_prompt %}[assistant]{% endif %}";
    let template = ChatTemplate::from_source(source).unwrap();
    assert!(!template.marks_answers());
    let conversations = Folder::new().read(LINES, 200, &template).unwrap();
    assert_eq!(answers(&dataset(conversations, None).read(0).unwrap()), "bc.|e.");
    // A template whose prompt is not how answers begin, and a conversation that begins with an answer.
    let thinks = ChatTemplate::from_source(&source.replace("[assistant]{", "[assistant]<think>{")).unwrap();
    let line = r#"{"messages": [{"role": "assistant", "content": "x"}, {"role": "user", "content": "y"},
        {"role": "assistant", "content": "z"}]}"#
        .replace('\n', " ");
    let conversations = Folder::new().read(&line, 200, &thinks).unwrap();
    assert_eq!(
        answers(&dataset(conversations, None).read(0).unwrap()),
        "assistant]x.|[assistant]z."
    );
}

#[test]
fn what_is_wrong_is_said_with_file_line_and_message() {
    let error =
        |lines: &str, template: &ChatTemplate| Folder::new().read(lines, 200, template).unwrap_err().to_string();
    let chatml = ChatTemplate::chatml();
    for (lines, problem) in [
        ("{", "chats.jsonl, line 1: EOF"),
        ("\n{\"text\": 1}", "chats.jsonl, line 2: no list \"messages\""),
        ("{\"messages\": []}", "line 1: a conversation without messages"),
        ("{\"messages\": [3]}", "line 1, message 1: number instead of an object"),
        (
            "{\"messages\": [{\"role\": \"user\", \"content\": \"\"}, {}]}",
            "line 1, message 2: no text \"role\"",
        ),
        (
            "{\"messages\": [{\"role\": \"user\", \"content\": \"\u{FDD0}\"}]}",
            "line 1: it has U+FDD0",
        ),
    ] {
        let message = error(lines, &chatml);
        assert!(message.contains(problem), "{message}");
    }
    let reversed = "{% for m in messages[::-1] %}{{ m.content }}{% endfor %}";
    let message = error(LINES, &ChatTemplate::from_source(reversed).unwrap());
    assert!(
        message.contains("line 1, message 2: the template writes the text before it otherwise"),
        "{message}"
    );
    let counts = "{{ messages|length }}{% for m in messages %}{{ m.content }}{% endfor %}";
    let two =
        r#"{"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user"}]}"#;
    let message = error(two, &ChatTemplate::from_source(counts).unwrap());
    assert!(
        message.contains("line 1, message 2: the template writes the text up to it otherwise"),
        "{message}"
    );
    let refuses = "{% if messages|length > 1 %}{{ raise_exception('one only') }}{% endif %}";
    let message = error(LINES, &ChatTemplate::from_source(refuses).unwrap());
    assert!(
        message.contains("line 1: invalid operation: one only (in template:1)"),
        "{message}"
    );
    let endless = "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}";
    let message = error(LINES, &ChatTemplate::from_source(endless).unwrap());
    assert!(message.contains("line 1: engine ran out of fuel"), "{message}");
    let missing =
        Conversations::new(257, 8, LongConversations::Cut).read("none.jsonl".as_ref(), &chatml, &ByteTokenizer);
    assert!(missing.unwrap_err().to_string().starts_with("cannot read none.jsonl: "));
}

#[test]
fn a_long_conversation_is_cut_and_counted_or_refused() {
    let folder = Folder::new();
    let source = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let template = ChatTemplate::from_source(source).unwrap();
    let line = |question: &str, answer: &str| {
        let messages = serde_json::json!([
            { "role": "user", "content": question }, { "role": "assistant", "content": answer }
        ]);
        serde_json::json!({ "messages": messages }).to_string()
    };
    let lines = [line("ab", "cdefgh"), line("abcdefgh", "i"), line("a", "b")].join("\n");
    let conversations = folder.read(&lines, 4, &template).unwrap();
    let totals = ConversationTotals {
        taken: 2,
        cut: 1,
        without_answers: 1,
    };
    assert_eq!(conversations.totals(), totals);
    let dataset = dataset(conversations, None);
    let mut samples: Vec<ChatSample> = (0..2).map(|index| dataset.read(index).unwrap()).collect();
    samples.sort_by_key(|sample| sample.length);
    assert_eq!(answers(&samples[0]), "b");
    assert_eq!(answers(&samples[1]), "cde");
    let mut refused = Conversations::new(ByteTokenizer::VOCABULARY_SIZE, 4, LongConversations::Refused);
    let message = refused
        .read(&folder.write(&lines), &template, &ByteTokenizer)
        .unwrap_err()
        .to_string();
    assert!(
        message.contains("line 1: the conversation has 8 tokens, and a sample of --seq-length 4 takes 5"),
        "{message}"
    );
}

#[test]
fn every_epoch_has_every_sample_once() {
    let lines: String = (0..40)
        .map(|number| {
            let answer = "x".repeat(number % 7 + 1);
            format!(
                "{{\"messages\": [{{\"role\": \"user\", \"content\": \"{number}\"}}, {{\"role\": \"assistant\", \
                \"content\": \"{answer}\"}}]}}\n"
            )
        })
        .collect();
    let template = ChatTemplate::from_source("{% for m in messages %}{{ m.content }}/{% endfor %}").unwrap();
    let conversations = Folder::new().read(&lines, 30, &template).unwrap();
    let one = dataset(conversations.clone(), None);
    let many = dataset(conversations, Some(3 * one.num_samples() - 1));
    assert_eq!(many.num_samples(), 3 * one.num_samples());
    let texts = |samples: Range<u64>| {
        samples
            .map(|index| many.read(index).unwrap().tokens)
            .collect::<Vec<_>>()
    };
    let n = one.num_samples();
    // A longer run has the same samples first.
    assert_eq!(one.order(), many.order());
    assert!((0..n).all(|index| one.read(index).unwrap() == many.read(index).unwrap()));
    let mut epochs = [texts(0..n), texts(n..2 * n), texts(2 * n..3 * n)];
    assert!(epochs[0] != epochs[1] && epochs[1] != epochs[2]);
    epochs.iter_mut().for_each(|epoch| epoch.sort());
    assert!(epochs[0] == epochs[1] && epochs[1] == epochs[2]);
    let message = many.read(3 * n).unwrap_err().to_string();
    assert!(message.contains("requested from a data set of"), "{message}");
}

#[test]
fn an_empty_data_set_is_an_error() {
    let conversations = Arc::new(Conversations::new(257, 8, LongConversations::Cut));
    let error = ChatDataset::new(&ChatDatasetConfig::new(None), conversations, 0..0, &ByteTokenizer).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("conversations with answers must be at least 1, got 0"),
        "{error}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn answers_with_and_without_marks_are_the_same(
        contents in prop::collection::vec("[a-zA-Zäß漢\\n <|>]{0,12}", 1..7),
        with_system in any::<bool>(),
    ) {
        let turns = contents.iter().enumerate().map(|(place, content)| {
            let role = match (place, with_system) {
                (0, true) => "system",
                _ if (place + usize::from(with_system)).is_multiple_of(2) => "user",
                _ => "assistant",
            };
            serde_json::json!({ "role": role, "content": content })
        });
        let line = serde_json::json!({ "messages": turns.collect::<Vec<_>>() }).to_string();
        let conversation = Conversation::parse(line.as_bytes()).unwrap();
        let marked = "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}\
            {% generation %}{{ m.content }}.\
            {% endgeneration %}{% else %}{{ m.content }}.{% endif %}{% endfor %}\
            {% if add_generation_prompt %}[assistant]{% endif %}";
        let plain = marked.replace("{% generation %}", "").replace("{% endgeneration %}", "");
        let [marked, plain] = [marked.to_owned(), plain].map(|source| {
            encode(&conversation, &ChatTemplate::from_source(&source).unwrap(), &ByteTokenizer).unwrap()
        });
        // A first message of the assistant has no prompt, so all of it is the answer.
        let first = usize::from(conversation.answers().next() == Some(0));
        prop_assert_eq!(&marked.tokens, &plain.tokens);
        prop_assert_eq!(&marked.answers[first..], &plain.answers[first..]);
    }
}
