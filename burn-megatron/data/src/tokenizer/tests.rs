//! Loading, saving, comparing.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::hugging_face::special_token;
use super::settings::TokenizerSettings;
use super::train::{TrainConfig, VocabularyKind, train};
use super::*;

/// A folder with a GPT-2 vocabulary of 300 tokens.
fn vocabulary(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let corpus = folder.path().join("corpus.txt");
    fs::write(&corpus, text.repeat(50)).unwrap();
    let config = TrainConfig {
        kind: VocabularyKind::Bpe,
        vocab_size: 300,
        lower_case: true,
        num_sentinels: 0,
    };
    train(&config, &[corpus], &|_| {}).unwrap().save(folder.path()).unwrap();
    folder
}

const TEXT: &str = "Once upon a time, there was a tokenizer in the forest that met a wolf at the door of the house.\n";

fn gpt2(folder: &Path) -> TokenizerConfig {
    TokenizerConfig {
        kind: TokenizerKind::GPT2BPETokenizer,
        vocab_file: Some(folder.join("vocab.json")),
        ..Default::default()
    }
}

fn hugging_face(folder: &Path) -> TokenizerConfig {
    TokenizerConfig {
        kind: TokenizerKind::HuggingFaceTokenizer,
        model: Some(folder.to_owned()),
        ..Default::default()
    }
}

fn message(config: &TokenizerConfig) -> String {
    config.load().err().unwrap().to_string()
}

fn replace(path: PathBuf, from: &str, to: &str) {
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.contains(from), "{from} in {}", path.display());
    fs::write(path, text.replacen(from, to, 1)).unwrap();
}

#[test]
fn names_are_megatrons() {
    for kind in TokenizerKind::ALL {
        assert_eq!(kind.name().parse::<TokenizerKind>().unwrap(), *kind);
        assert_eq!(serde_json::to_string(&kind).unwrap(), format!("{:?}", kind.name()));
    }
    let error = "GPT2".parse::<TokenizerKind>().unwrap_err().to_string();
    assert!(error.contains("GPT2BPETokenizer, HuggingFaceTokenizer"), "{error}");
}

/// Parts of characters, spaces before words, special tokens.
#[test]
fn bytes_of_tokens_are_what_they_add_to_a_text() {
    let byte_level = json!({
        "version": "1.0", "added_tokens": [special_token(5, "<|end|>")],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "merges": [], "vocab": {"a": 0, "Ġb": 1, "ä": 2, "Ġð": 3, "Ċ": 4}},
    });
    let sentencepiece = json!({
        "version": "1.0", "added_tokens": [special_token(5, "</s>")],
        "decoder": {"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]},
        "model": {
            "type": "BPE", "byte_fallback": true, "unk_token": "a", "merges": [],
            "vocab": {"a": 0, "▁b": 1, "<0xE4>": 2, "<0x41>": 3, "▁": 4},
        },
    });
    let word_pieces = json!({
        "version": "1.0", "added_tokens": [special_token(3, "[SEP]")],
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {
            "type": "WordPiece", "unk_token": "a", "vocab": {"a": 0, "##b": 1, "c": 2}, "max_input_chars_per_word": 9,
            "continuing_subword_prefix": "##",
        },
    });
    let cases: [(Value, &[&[u8]]); 3] = [
        (byte_level, &[b"a", b" b", b"\xe4", b" \xf0", b"\n", b"<|end|>"]),
        (sentencepiece, &[b"a", b" b", b"\xe4", b"A", b" ", b"</s>"]),
        (word_pieces, &[b" a", b"b", b" c", b"[SEP]"]),
    ];
    for (file, expected) in cases {
        let tokenizer =
            HuggingFaceTokenizer::from_value("tokenizer.json", file.clone(), &TokenizerSettings::default()).unwrap();
        let found: Vec<Vec<u8>> = (0..expected.len() as Token)
            .map(|token| tokenizer.token_bytes(token))
            .collect();
        assert_eq!(found, expected, "{file}");
    }
    let end = ByteTokenizer::END_OF_DOCUMENT;
    assert_eq!(ByteTokenizer.token_bytes(0xE4), b"\xe4");
    assert_eq!(ByteTokenizer.token_bytes(end), b"<|endoftext|>");
}

#[test]
fn merges_may_be_missing_only_next_to_the_vocabulary() {
    let folder = vocabulary(TEXT);
    let tokenizer = gpt2(folder.path()).load().unwrap();
    let other = tempfile::tempdir().unwrap();
    fs::rename(folder.path().join("merges.txt"), other.path().join("pairs.txt")).unwrap();
    let error = message(&gpt2(folder.path()));
    assert!(
        error.contains("--merge-file") && error.contains("merges.txt next to"),
        "{error}"
    );
    let config = TokenizerConfig {
        merge_file: Some(other.path().join("pairs.txt")),
        ..gpt2(folder.path())
    };
    let (mut left, mut right) = (vec![], vec![]);
    tokenizer.encode(TEXT, &mut left);
    config.load().unwrap().encode(TEXT, &mut right);
    assert_eq!(left, right);
}

#[test]
fn missing_settings_are_named() {
    let flags = [
        (TokenizerKind::GPT2BPETokenizer, "--vocab-file"),
        (TokenizerKind::BertWordPieceCase, "--vocab-file"),
        (TokenizerKind::HuggingFaceTokenizer, "--tokenizer-model"),
        (TokenizerKind::SentencePieceTokenizer, "--tokenizer-model"),
        (TokenizerKind::NullTokenizer, "--vocab-size"),
    ];
    for (kind, flag) in flags {
        let error = message(&TokenizerConfig {
            kind,
            ..Default::default()
        });
        assert!(error.contains(kind.name()) && error.contains(flag), "{error}");
    }
    let config = TokenizerConfig {
        kind: TokenizerKind::NullTokenizer,
        num_tokens: Some(100),
        ..Default::default()
    };
    assert_eq!(config.load().unwrap().vocabulary_size(), 101);
    assert_eq!(
        TokenizerConfig::default().load().unwrap().vocabulary_size(),
        ByteTokenizer::VOCABULARY_SIZE
    );
    let missing = TokenizerConfig {
        vocab_file: Some("/nowhere/vocab.txt".into()),
        kind: TokenizerKind::BertWordPieceCase,
        ..Default::default()
    };
    assert!(message(&missing).contains("cannot read /nowhere/vocab.txt"));
}

#[test]
fn damaged_vocabularies_are_named() {
    let merges = |line: &str| {
        let folder = vocabulary(TEXT);
        let path = folder.path().join("merges.txt");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}{line}\n")).unwrap();
        (text.lines().count() + 1, message(&gpt2(folder.path())))
    };
    let (line, error) = merges("one");
    assert!(
        error.contains(&format!("merges.txt, line {line}")) && error.contains("two tokens"),
        "{error}"
    );
    let (_, error) = merges("a 漢");
    assert!(error.contains("\"漢\" of this merge is not in vocab.json"), "{error}");
    let folder = vocabulary(TEXT);
    replace(folder.path().join("vocab.json"), "<|endoftext|>", "<end>");
    assert!(message(&gpt2(folder.path())).contains("no token \"<|endoftext|>\""));
    fs::write(folder.path().join("vocab.json"), "[1]").unwrap();
    assert!(message(&gpt2(folder.path())).contains("vocab.json: not a map"));
    fs::write(folder.path().join("tokenizer.json"), "{}").unwrap();
    assert!(message(&hugging_face(folder.path())).contains("tokenizer.json"));
    let far = json!({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": u32::MAX}, "merges": []}});
    fs::write(folder.path().join("tokenizer.json"), far.to_string()).unwrap();
    assert!(message(&hugging_face(folder.path())).contains("has the number 4294967295, which must be below"));
    fs::write(folder.path().join("vocab.txt"), "[CLS]\na\n").unwrap();
    let config = TokenizerConfig {
        kind: TokenizerKind::BertWordPieceLowerCase,
        vocab_file: Some(folder.path().join("vocab.txt")),
        ..Default::default()
    };
    assert!(message(&config).contains("no line \"[UNK]\""));
}

#[test]
fn the_end_of_a_document_is_what_the_files_name() {
    let folder = vocabulary(TEXT);
    let end = || {
        hugging_face(folder.path())
            .load()
            .map(|tokenizer| tokenizer.end_of_document())
    };
    assert_eq!(end().unwrap(), Some(299));
    replace(
        folder.path().join("tokenizer_config.json"),
        "\"<|endoftext|>\"",
        "{\"content\": \"!\"}",
    );
    assert_eq!(end().unwrap(), Some(0));
    replace(folder.path().join("tokenizer_config.json"), "\"!\"", "\"<none>\"");
    assert!(end().unwrap_err().to_string().contains("\"<none>\" is not a token"));
    fs::remove_file(folder.path().join("tokenizer_config.json")).unwrap();
    fs::write(
        folder.path().join("special_tokens_map.json"),
        "{\"eos_token\": \"\\\"\"}",
    )
    .unwrap();
    assert_eq!(end().unwrap(), Some(1));
    fs::remove_file(folder.path().join("special_tokens_map.json")).unwrap();
    assert_eq!(end().unwrap(), Some(299));
}

#[test]
fn truncation_and_padding_are_left_out() {
    let folder = vocabulary(TEXT);
    let mut whole = vec![];
    hugging_face(folder.path()).load().unwrap().encode(TEXT, &mut whole);
    let path = folder.path().join("tokenizer.json");
    replace(
        path.clone(),
        "\"truncation\": null",
        r#""truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0}"#,
    );
    // What the fast encoder does not read.
    replace(path, "\"normalizer\": null", "\"normalizer\": {\"type\": \"NFC\"}");
    let mut tokens = vec![];
    hugging_face(folder.path()).load().unwrap().encode(TEXT, &mut tokens);
    assert_eq!(tokens, whole);
}

#[test]
fn a_saved_tokenizer_is_what_it_was() {
    let folder = vocabulary(TEXT);
    for config in [
        gpt2(folder.path()),
        hugging_face(folder.path()),
        TokenizerConfig::default(),
    ] {
        let files = config.files().unwrap();
        let saved = tempfile::tempdir().unwrap();
        files.save(&saved.path().join("tokenizer")).unwrap();
        let loaded = TokenizerFiles::load(&saved.path().join("tokenizer")).unwrap();
        assert_eq!(loaded, files);
        loaded.check_same("the checkpoint", &files, "--vocab-file").unwrap();
        let names: Vec<_> = fs::read_dir(saved.path().join("tokenizer")).unwrap().collect();
        assert_eq!(names.len(), files.files().count() + 1);
        assert_eq!(
            loaded.tokenizer().unwrap().vocabulary_size(),
            config.load().unwrap().vocabulary_size()
        );
    }
}

#[test]
fn another_vocabulary_is_refused_and_both_are_named() {
    let (left, right) = (vocabulary(TEXT), vocabulary(&TEXT.to_uppercase()));
    let (left, right) = (gpt2(left.path()).files().unwrap(), gpt2(right.path()).files().unwrap());
    let error = left
        .check_same("checkpoints/", &right, "--vocab-file")
        .unwrap_err()
        .to_string();
    for part in [
        "checkpoints/ is GPT2BPETokenizer with merges.txt",
        "--vocab-file is",
        &left.sha256()[..12],
        &right.sha256()[..12],
    ] {
        assert!(error.contains(part), "{error}");
    }
    let null = |num_tokens| {
        let kind = TokenizerKind::NullTokenizer;
        TokenizerConfig {
            kind,
            num_tokens: Some(num_tokens),
            ..Default::default()
        }
        .files()
        .unwrap()
    };
    assert!(null(1).check_same("a", &null(2), "b").is_err());
}

#[test]
fn a_damaged_saved_tokenizer_is_refused() {
    let folder = vocabulary(TEXT);
    let saved = tempfile::tempdir().unwrap();
    let files = gpt2(folder.path()).files().unwrap();
    let load = || TokenizerFiles::load(saved.path()).unwrap_err().to_string();
    assert!(load().contains(TokenizerFiles::MANIFEST));
    files.save(saved.path()).unwrap();
    replace(saved.path().join("merges.txt"), "#version: 0.2", "#version: 0.3");
    let error = load();
    assert!(
        error.contains("merges.txt has SHA-256") && error.contains(TokenizerFiles::MANIFEST),
        "{error}"
    );
    files.save(saved.path()).unwrap();
    replace(saved.path().join(TokenizerFiles::MANIFEST), "vocab.json", "../secret");
    assert!(load().contains("is no file of a tokenizer"));
    files.save(saved.path()).unwrap();
    replace(
        saved.path().join(TokenizerFiles::MANIFEST),
        "GPT2BPETokenizer",
        "ByteTokenizer",
    );
    assert!(load().contains("the tokenizer has SHA-256"));
    fs::remove_file(saved.path().join("vocab.json")).unwrap();
    assert!(load().contains("vocab.json"));
}

#[test]
fn a_model_needs_an_embedding_for_every_token() {
    ByteTokenizer.check_vocabulary(257).unwrap();
    let error = ByteTokenizer.check_vocabulary(256).unwrap_err().to_string();
    assert_eq!(
        error,
        "the tokenizer has 257 tokens, but the model's vocabulary has 256; a model for it needs at least 257"
    );
}

/// A vocabulary of letters and words in brackets, which are no added tokens.
const LETTERS: &str = r#"{"a": 0, "b": 1, "<bos>": 2, "<eos>": 3, "<pad>": 4, "[UNK]": 5, "A": 6, "<x>": 7}"#;

/// The tokenizer of [`LETTERS`] and of files next to it, given as `{"config.json": {…}, …}`.
fn with_files(files: &str, normalizer: &str) -> Result<Arc<dyn Tokenizer>, TokenizerError> {
    let json = format!(
        r#"{{"version": "1.0", "added_tokens": [], "normalizer": {normalizer}, "pre_tokenizer": {{"type": "Split",
            "pattern": {{"Regex": "."}}, "behavior": "Isolated", "invert": false}}, "post_processor": {{
            "type": "TemplateProcessing", "single": [{{"SpecialToken": {{"id": "<bos>", "type_id": 0}}}},
            {{"Sequence": {{"id": "A", "type_id": 0}}}}], "pair": [], "special_tokens": {{"<bos>": {{"id": "<bos>",
            "ids": [2], "tokens": ["<bos>"]}}}}}}, "model": {{"type": "WordLevel", "vocab": {LETTERS},
            "unk_token": "[UNK]"}}}}"#
    );
    let files: serde_json::Map<String, serde_json::Value> = serde_json::from_str(files).unwrap();
    let mut contents = vec![("tokenizer.json".to_owned(), json.into_bytes())];
    contents.extend(
        files
            .into_iter()
            .map(|(name, value)| (name, value.to_string().into_bytes())),
    );
    TokenizerFiles::from_parts(TokenizerKind::HuggingFaceTokenizer, None, contents).tokenizer()
}

#[test]
fn files_next_to_a_vocabulary_decide_tokens_and_ends() {
    let named = r#""bos_token": "<bos>", "eos_token": {"content": "<eos>"}"#;
    let config = |more: &str| format!(r#"{{"tokenizer_config.json": {{{named}, {more}}}}}"#);
    let cases = [
        // What has a role is special: a token where a text has it, and no text.
        (
            config(r#""add_bos_token": null"#),
            "a<eos>",
            vec![2, 0, 3],
            "a",
            vec![3],
        ),
        (config(r#""add_bos_token": false"#), "a", vec![0], "a", vec![3]),
        (config(r#""add_eos_token": true"#), "a", vec![2, 0, 3], "a", vec![3]),
        // As a template writes it.
        (config(r#""add_bos_token": true"#), "<bos>a", vec![2, 0], "a", vec![3]),
        (
            config(r#""additional_special_tokens": ["<x>"]"#),
            "<x>b",
            vec![2, 7, 1],
            "b",
            vec![3],
        ),
        (
            config(r#""added_tokens_decoder": {"8": {"content": "<y>", "special": true}, "9": {"content": "<z>"}}"#),
            "a<y><z>",
            vec![2, 0, 8, 9],
            "a <z>",
            vec![3],
        ),
        (
            r#"{"added_tokens.json": {"<z>": 9, "<y>": 8}, "special_tokens_map.json": {"eos_token": "<y>"}}"#
                .to_owned(),
            "<y><z>",
            vec![2, 8, 9],
            "<bos> <z>",
            vec![8],
        ),
        (
            r#"{"generation_config.json": {"eos_token_id": [4, 7]}, "config.json": {"eos_token_id": 0}}"#.to_owned(),
            "a",
            vec![2, 0],
            "<bos> a",
            vec![4, 7],
        ),
        (
            r#"{"generation_config.json": {"eos_token_id": null}, "config.json": {"eos_token_id": 0}}"#.to_owned(),
            "a",
            vec![2, 0],
            "<bos> a",
            vec![0],
        ),
    ];
    for (files, text, expected, decoded, ends) in cases {
        let tokenizer = with_files(&files, "null").unwrap();
        let mut tokens = vec![];
        tokenizer.encode_prompt(text, &mut tokens);
        assert_eq!((&tokens, tokenizer.ends_of_text()), (&expected, ends), "{files}");
        assert_eq!(tokenizer.decode(&tokens), decoded, "{files}");
    }
    let bert = r#"{"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
        "lowercase": true}"#;
    for (config, expected) in [
        ("{}", 0),
        (r#"{"do_lower_case": false}"#, 6),
        (r#"{"do_lower_case": true}"#, 0),
    ] {
        let mut tokens = vec![];
        let files = format!(r#"{{"tokenizer_config.json": {config}}}"#);
        with_files(&files, bert).unwrap().encode("A", &mut tokens);
        assert_eq!(tokens, [expected], "{config}");
    }
}

#[test]
fn files_next_to_a_vocabulary_that_do_not_fit_it_are_named() {
    for (files, words) in [
        (
            r#"{"added_tokens.json": {"<y>": 11}}"#,
            "added_tokens.json: the token \"<y>\" has the number 11 there and 8 in the vocabulary",
        ),
        (
            r#"{"added_tokens.json": {"<y>": -1}}"#,
            "added_tokens.json: <y> is -1: expected a token's number",
        ),
        (r#"{"added_tokens.json": []}"#, "added_tokens.json: expected an object"),
        (
            r#"{"tokenizer_config.json": {"eos_token": "<none>"}}"#,
            "tokenizer_config.json: its eos_token \"<none>\" is not a token",
        ),
        (
            r#"{"tokenizer_config.json": {"split_special_tokens": true}}"#,
            "split_special_tokens is true: expected false",
        ),
        (
            r#"{"tokenizer_config.json": {"add_bos_token": 1}}"#,
            "tokenizer_config.json: add_bos_token is 1: expected true or false",
        ),
        (
            r#"{"generation_config.json": {"eos_token_id": ["x"]}}"#,
            "generation_config.json: eos_token_id is [\"x\"]: expected a token or a list of tokens",
        ),
    ] {
        let error = with_files(files, "null").err().unwrap().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_folder_without_a_tokenizer_json_is_read_as_it_says() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &str| fs::write(folder.path().join(name), content).unwrap();
    write("vocab.json", r#"{"a": 0, "b": 1, "</s>": 2, "ab": 3}"#);
    write("merges.txt", "a b\n");
    write(
        "tokenizer_config.json",
        r#"{"bos_token": "</s>", "eos_token": "</s>", "add_bos_token": true}"#,
    );
    write("added_tokens.json", r#"{"<m>": 4}"#);
    write(
        "config.json",
        r#"{"a": "\" NaN", "vocab_size": NaN, "b": [-Infinity], "eos_token_id": 4, "pad_token_id": null}"#,
    );
    write("unknown.txt", "");
    let contents = TokenizerFiles::contents(folder.path()).unwrap();
    let kept = contents.iter().find(|(name, _)| name == "config.json").unwrap();
    assert_eq!(kept.1, br#"{"eos_token_id":4,"pad_token_id":null}"#);
    assert_eq!(contents.len(), 5);
    let files = TokenizerFiles::from_parts(TokenizerKind::GPT2BPETokenizer, None, contents);
    let tokenizer = files.tokenizer().unwrap();
    let mut tokens = vec![];
    tokenizer.encode_prompt("ab<m>b", &mut tokens);
    assert_eq!((tokens, tokenizer.end_of_document()), (vec![2, 3, 4, 1], Some(2)));
    assert_eq!((tokenizer.ends_of_text(), tokenizer.vocabulary_size()), (vec![4], 5));
    // What says how texts end does not make another vocabulary of it.
    let mut other = files.clone();
    other.fill_ends_from(vec![("generation_config.json".to_owned(), b"{}".to_vec())]);
    assert_eq!(other.sha256(), files.sha256());
}
