//! The encoder against the `tokenizers` crate.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::split::Pattern;
use super::*;

const LLAMA_3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|",
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

fn words(pattern: Pattern, mut text: &str) -> Vec<&str> {
    let mut words = vec![];
    while !text.is_empty() {
        let (word, rest) = text.split_at(pattern.first_word(text, CharClasses::new()));
        words.push(word);
        text = rest;
    }
    words
}

/// A vocabulary of all bytes and of these merges, in this order.
fn description(pre_tokenizer: Value, merges: &[(&str, &str)], ignore_merges: bool) -> Value {
    let mut vocabulary = serde_json::Map::new();
    for byte in 0..=u8::MAX {
        vocabulary.insert(character_of_byte(byte).to_string(), json!(byte));
    }
    for (left, right) in merges {
        let next = vocabulary.len();
        vocabulary.entry(format!("{left}{right}")).or_insert(json!(next));
    }
    // A word that no merge makes.
    let next = vocabulary.len();
    vocabulary.insert("Ġzq".to_owned(), json!(next));
    let end = json!({
        "id": next + 1, "content": "<end>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
        "special": true,
    });
    json!({
        "version": "1.0", "added_tokens": [end], "normalizer": null, "pre_tokenizer": pre_tokenizer,
        "post_processor": null, "decoder": byte_level(true),
        "model": {
            "type": "BPE", "ignore_merges": ignore_merges, "vocab": vocabulary,
            "merges": merges.iter().map(|(left, right)| json!([left, right])).collect::<Vec<_>>(),
        },
    })
}

fn byte_level(use_regex: bool) -> Value {
    json!({ "type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex })
}

fn llama3() -> Value {
    json!({
        "type": "Sequence",
        "pretokenizers": [
            { "type": "Split", "pattern": { "Regex": LLAMA_3 }, "behavior": "Isolated", "invert": false },
            byte_level(false),
        ],
    })
}

/// Both encoders of a description.
fn encoders(description: &Value) -> (ByteLevelEncoder, tokenizers::Tokenizer) {
    let inner = tokenizers::Tokenizer::from_bytes(description.to_string()).unwrap();
    (
        ByteLevelEncoder::from_json(description, |text| inner.token_to_id(text)).unwrap(),
        inner,
    )
}

fn check(description: &Value, text: &str) {
    let (ours, theirs) = encoders(description);
    let expected = theirs.encode_fast(text, false).unwrap();
    let mut tokens = vec![];
    // The second time, words are in the cache.
    for _ in 0..2 {
        tokens.clear();
        ours.encode(text, &mut tokens);
        assert_eq!(tokens, expected.get_ids(), "{text:?}");
    }
}

const MERGES: [(&str, &str); 10] = [
    ("a", "b"),
    ("Ġ", "a"),
    ("b", "c"),
    ("ab", "c"),
    ("a", "bc"),
    ("abc", "abc"),
    ("ab", "ab"),
    ("Ġa", "b"),
    ("Ã", "©"),
    ("Ċ", "Ċ"),
];

#[test]
fn words_are_gpt2s() {
    let text = "I'll  say 'tis 42x!?\n\n end \u{3000}é'S 　";
    let expected = [
        "I", "'ll", " ", " say", " '", "tis", " 42", "x", "!?", "\n\n", " end", " ", "\u{3000}", "é", "'", "S", " 　",
    ];
    assert_eq!(words(Pattern::Gpt2, text), expected);
}

#[test]
fn words_are_llama3s() {
    let text = "I'LL say'ſ 12345 (x)\n\n  \n  y ...\r\n z\t\t";
    let expected = [
        "I", "'LL", " say", "'ſ", " ", "123", "45", " (", "x", ")\n\n", "  \n", " ", " y", " ...\r\n", " z", "\t\t",
    ];
    assert_eq!(words(Pattern::of(LLAMA_3).unwrap(), text), expected);
}

#[test]
fn what_is_not_built_here_is_left_to_the_crate() {
    let built = |description: &Value| ByteLevelEncoder::from_json(description, |_| Some(300)).is_some();
    let plain = description(byte_level(true), &MERGES, false);
    assert!(built(&plain));
    let changes = [
        ("/normalizer", json!({ "type": "NFC" })),
        ("/model/unk_token", json!("<unk>")),
        ("/model/type", json!("WordPiece")),
        ("/model/dropout", json!(0.1)),
        ("/pre_tokenizer/add_prefix_space", json!(true)),
        ("/pre_tokenizer/use_regex", json!(false)),
        ("/added_tokens/0/lstrip", json!(true)),
        ("/model/vocab/!", json!("none")),
        ("/model/merges/0", json!(["a", "zz"])),
    ];
    for (place, value) in changes {
        let mut changed = plain.clone();
        match changed.pointer_mut(place) {
            Some(old) => *old = value,
            None => changed["model"][&place[7..]] = value,
        }
        assert!(!built(&changed), "{place}");
    }
}

#[test]
fn long_words_are_merged_as_short_ones() {
    for merges in [&MERGES[..3], &MERGES] {
        let description = description(byte_level(true), merges, false);
        for length in [1, 31, 32, 33, 34, 500] {
            check(&description, &"abc".repeat(length));
            check(&description, &"a".repeat(length));
            check(&description, &"abcab".repeat(length));
        }
    }
}

/// The merges whose parts are bytes, or made by the others.
fn complete(mut merges: Vec<(&'static str, &'static str)>) -> Vec<(&'static str, &'static str)> {
    loop {
        let made: Vec<String> = merges.iter().map(|(left, right)| format!("{left}{right}")).collect();
        let is_there = |part: &str| part.chars().count() == 1 || made.iter().any(|made| made == part);
        let before = merges.len();
        merges.retain(|(left, right)| is_there(left) && is_there(right));
        if merges.len() == before {
            return merges;
        }
    }
}

/// Texts of what patterns and merges distinguish.
fn text() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        6 => "[abc]{1,6}",
        2 => "[ \n\t\r\u{a0}\u{3000}\u{85}]{1,3}",
        1 => "'[smtdrvlLSDe]{1,2}",
        1 => "[0-9½]{1,5}",
        1 => "[!.,'_\u{301}\u{200d}👍]{1,3}",
        1 => Just(" zq".to_owned()),
        1 => Just("<end>".to_owned()),
        1 => any::<String>(),
    ];
    prop::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn tokens_are_those_of_the_crate(
        text in text(),
        merges in prop::collection::vec(0..MERGES.len(), 0..MERGES.len()),
    ) {
        // Some orders of merges do not follow from the numbers of the tokens.
        let merges: Vec<(&'static str, &'static str)> = merges.into_iter().map(|place| MERGES[place]).collect();
        let merges = complete(merges);
        check(&description(byte_level(true), &merges, false), &text);
        check(&description(llama3(), &merges, true), &text);
    }
}
