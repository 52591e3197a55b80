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
        conversations: 3,
        texts: 2,
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
        ("{", "chats.jsonl, line 1: the object does not end on its line"),
        (
            "[{",
            "chats.jsonl, line 1: it begins a JSON array, and one object on each line is wanted",
        ),
        (
            "{\"mesages\": []}",
            "line 1: mesages is not known: the nearest known name is messages",
        ),
        (
            "{\"messages\": [], \"mask\": \"User\"}",
            "line 1: mask cannot be honoured: it would change what is learnt",
        ),
        (
            "{\"messages\": [], \"weight\": 0}",
            "line 1: weight cannot be honoured: it is for messages",
        ),
        ("\n{\"text\": 1}", "chats.jsonl, line 2: no list \"messages\""),
        ("{\"messages\": []}", "line 1: a conversation without messages"),
        (
            "{\"messages\": \"[]\"}",
            "line 1: the messages are a string, and a list is wanted",
        ),
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

/// Writes `[role]`, the content and a stop; of an assistant that comes before a user, no thought.
const THINKING: &str = "{% set ns = namespace(last=-1) %}\
    {% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}\
    {% for m in messages %}[{{ m.role }}]{% set c = m.content.split('</think>') %}\
    {% if m.role == 'assistant' and loop.index0 > ns.last %}\
    <{{ c[0].split('<think>')[-1] if c|length > 1 else '' }}>{% endif %}{{ c[-1] }}.{% endfor %}\
    {% if add_generation_prompt %}[assistant]{% endif %}";

/// A line of messages, of which each has a role's first letter, a content, and more keys.
fn line(messages: &[(&str, &str, &str)]) -> String {
    let message = |(role, content, more): &(&str, &str, &str)| {
        let role = match *role {
            "u" => "user",
            "a" => "assistant",
            "s" => "system",
            other => other,
        };
        format!(
            r#"{{"role": "{role}", "content": {}{more}}}"#,
            serde_json::Value::from(*content)
        )
    };
    let messages: Vec<String> = messages.iter().map(message).collect();
    format!("{{\"messages\": [{}]}}\n", messages.join(", "))
}

/// The text of each conversation's own sample, and its answers.
fn texts(lines: &str, template: &str) -> Result<Vec<(String, String)>, String> {
    let template = ChatTemplate::from_source(template).unwrap();
    let conversations = Folder::new()
        .read(lines, 400, &template)
        .map_err(|error| error.to_string())?;
    let text = |index| {
        let (tokens, answers) = conversations.conversation(index);
        let answers: Vec<String> = answers.map(|answer| ByteTokenizer.decode(&tokens[answer])).collect();
        (ByteTokenizer.decode(&tokens), answers.join("|"))
    };
    Ok((0..conversations.len()).map(text).collect())
}

#[test]
fn each_answer_is_learnt_after_what_generation_sees() {
    let two = line(&[
        ("u", "q1", ""),
        ("a", "<think>T1</think>A1", ""),
        ("u", "q2", ""),
        ("a", "<think>T2</think>A2", ""),
    ]);
    let tail = line(&[("u", "q1", ""), ("a", "<think>T1</think>A1", ""), ("u", "q2", "")]);
    let expected: &[(&str, &str)] = &[
        ("[user]q1.[assistant]<T1>A1.", "<T1>A1."),
        ("[user]q1.[assistant]A1.[user]q2.[assistant]<T2>A2.", "<T2>A2."),
        // The text of the whole conversation would have lost its thought.
        ("[user]q1.[assistant]<T1>A1.", "<T1>A1."),
    ];
    let marked = THINKING.replace("<{{ c[0]", "{% generation %}<{{ c[0]");
    assert_eq!(marked.matches("generation %}").count(), 1);
    let marked = marked.replace(
        "{% endif %}{{ c[-1] }}.{% endfor %}",
        "{{ c[-1] }}.{% endgeneration %}{% else %}{{ c[-1] }}.{% endif %}{% endfor %}",
    );
    for template in [THINKING, &marked] {
        let found = texts(&(two.clone() + &tail), template).unwrap();
        let found: Vec<(&str, &str)> = found.iter().map(|(text, answers)| (&**text, &**answers)).collect();
        assert_eq!(found, expected, "{template}");
    }
    // Without thoughts to lose, one text has all answers.
    let plain = "{% for m in messages %}[{{ m.role }}]{{ m.content }}.{% endfor %}{% if add_generation_prompt %}\
        [assistant]{% endif %}";
    let found = texts(&two, plain).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].1, "<think>T1</think>A1.|<think>T2</think>A2.");
    // A template that writes what is before an answer otherwise: generation sees the prompt.
    let numbered = plain.replace("{% for", "{{ messages|length }}{% for");
    let found = texts(&two, &numbered).unwrap();
    let found: Vec<&str> = found.iter().map(|(text, _)| &**text).collect();
    assert_eq!(
        found,
        [
            "1[user]q1.[assistant]<think>T1</think>A1.",
            "3[user]q1.[assistant]<think>T1</think>A1.[user]q2.[assistant]<think>T2</think>A2.",
        ]
    );
    // A template that never writes thoughts loses them, also those under keys.
    let never = plain.replace("m.content", "m.content.split('</think>')[-1]");
    let thinks = line(&[("u", "q", ""), ("a", "A", r#", "reasoning": "T""#)]);
    for (lines, template) in [(&two, &*never), (&thinks, plain)] {
        let message = texts(lines, template).unwrap_err();
        assert!(
            message.contains("message 2: the template leaves out what was thought"),
            "{message}"
        );
    }
    let writes = plain.replace("m.content", "m.thinking ~ '!' ~ m.reasoning_content ~ m.content");
    assert_eq!(texts(&thinks, &writes).unwrap()[0].1, "T!TA.");
}

#[test]
fn an_answer_that_is_not_to_be_learnt_is_in_no_loss() {
    let plain = "{% for m in messages %}[{{ m.role }}]{{ m.content }}.{% endfor %}{% if add_generation_prompt %}\
        [assistant]{% endif %}";
    let marked = "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}{{ m.content }}.\
        {% endgeneration %}{% else %}{{ m.content }}.{% endif %}{% endfor %}";
    for (more, expected) in [
        ("", "WRONG.|RIGHT."),
        (r#", "weight": 0"#, "RIGHT."),
        (r#", "train": false"#, "RIGHT."),
        (r#", "loss": false"#, "RIGHT."),
        (r#", "weight": 1.0, "train": true, "loss": null"#, "WRONG.|RIGHT."),
        (r#", "weight": 1, "train": false"#, "RIGHT."),
    ] {
        let lines = line(&[
            ("u", "q", ""),
            ("a", "WRONG", more),
            ("u", "r", r#", "weight": 0"#),
            ("a", "RIGHT", ""),
        ]);
        for template in [plain, marked] {
            assert_eq!(texts(&lines, template).unwrap()[0].1, expected, "{more}");
        }
    }
    let none = line(&[("u", "q", ""), ("a", "x", r#", "weight": 0"#)]);
    assert!(texts(&none, plain).unwrap().is_empty());
    for (messages, expected) in [
        (
            line(&[("a", "x", r#", "weight": 0.5"#)]),
            "message 1: \"weight\" is 0 or 1, false or true, got 0.5",
        ),
        (
            line(&[("u", "x", r#", "train": true"#)]),
            "message 1: \"train\" asks to learn a message of the role \"user\"",
        ),
        (
            line(&[("u", "q", ""), ("a", "x", r#", "wieght": 7"#)]),
            "message 2: the template does not write the key \"wieght\"",
        ),
        (
            line(&[("u", "q", ""), ("a", "x", r#", "tool_calls": [{}]"#)]),
            "the template does not write the key \"tool_calls\"",
        ),
        (
            line(&[("u", "q", ""), ("asistant", "x", "")]),
            "message 2: the role \"asistant\" is unknown: known are system",
        ),
        (
            line(&[("a", "x", "")]).replace("\"x\"", "null"),
            "message 1: the assistant's message has no \"content\"",
        ),
    ] {
        let message = texts(&messages, plain).unwrap_err();
        assert!(message.contains(expected), "{message}");
    }
    // Of a template that names a role or writes a key they are known.
    let names = plain.replace(
        "{{ m.content }}",
        "{{ m.content }}{{ m.mood }}{% if m.role == 'critic' %}!{% endif %}",
    );
    let lines = line(&[("critic", "q", r#", "mood": "ok""#), ("a", "x", r#", "id": 7"#)]);
    assert_eq!(texts(&lines, &names).unwrap()[0].0, "[critic]qok!.[assistant]x.");
}

#[test]
fn other_forms_of_conversations_have_the_roles_and_the_system_of_templates() {
    let template = "{{ tools | length if tools else '' }}{{ mood }}\
        {% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}";
    let lines = [
        r#"{"conversations": [{"from": "system", "value": "s"}, {"from": "Human", "value": "q"},
            {"from": "chatgpt", "value": "a"}, {"from": "observation", "value": "o"},
            {"from": "model", "value": "b"}]}"#,
        r#"{"system": "s", "messages": [{"role": "user", "content": "q"}, {"role": "gpt", "content": "a"}],
            "tools": "[{}, {}]", "chat_template_kwargs": {"mood": "!"}, "id": 7, "task": "x", "score": NaN}"#,
        r#"{"system": "s", "messages": [{"role": "system", "content": "s"}, {"role": "assistant", "content": "a"}]}"#,
    ]
    .map(|line| line.replace('\n', " "));
    let found = texts(&lines.join("\n"), template).unwrap();
    let found: Vec<&str> = found.iter().map(|(text, _)| &**text).collect();
    assert_eq!(
        found,
        [
            "[system]s[user]q[assistant]a[tool]o[assistant]b",
            "2![system]s[user]q[assistant]a",
            "[system]s[assistant]a"
        ]
    );
    let template = ChatTemplate::from_source(template).unwrap();
    let conversations = Folder::new().read(&lines[1], 100, &template).unwrap();
    assert_eq!(conversations.ignored_keys().collect::<Vec<_>>(), ["id", "task"]);
    let two = lines[2].replacen("\"s\"", "\"t\"", 1);
    let message = Folder::new().read(&two, 100, &template).unwrap_err().to_string();
    assert!(
        message.contains("line 1: \"system\" and the first message"),
        "{message}"
    );
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
        conversations: 3,
        texts: 2,
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
        let begins_with_answer = conversation.messages[0].is_answer;
        let marked = "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}\
            {% generation %}{{ m.content }}.\
            {% endgeneration %}{% else %}{{ m.content }}.{% endif %}{% endfor %}\
            {% if add_generation_prompt %}[assistant]{% endif %}";
        let plain = marked.replace("{% generation %}", "").replace("{% endgeneration %}", "");
        let [marked, plain] = [marked.to_owned(), plain].map(|source| {
            encode(&conversation, &ChatTemplate::from_source(&source).unwrap(), &ByteTokenizer).unwrap()
        });
        prop_assert_eq!(marked.len(), plain.len());
        let (Some(marked), Some(plain)) = (marked.first(), plain.first()) else {
            return Ok(());
        };
        // A first message of the assistant has no prompt, so all of it is the answer.
        let first = usize::from(begins_with_answer);
        prop_assert_eq!(&marked.tokens, &plain.tokens);
        prop_assert_eq!(&marked.answers[first..], &plain.answers[first..]);
    }
}
