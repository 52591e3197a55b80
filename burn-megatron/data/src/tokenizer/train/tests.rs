//! Vocabularies of small corpora.

use std::path::Path;
use std::sync::Mutex;

use super::*;
use crate::tokenizer::{TokenizerConfig, TokenizerKind};

fn config(kind: VocabularyKind, vocab_size: usize) -> TrainConfig {
    TrainConfig {
        kind,
        vocab_size,
        lower_case: true,
        num_sentinels: 0,
    }
}

/// Two files of text in a folder, one that is no text, and a folder in it.
fn corpus(folder: &Path) {
    let text = "The cat sat on the mat. The naïve café: fn main() { let x = 42; }\nÜber den Wolken…\n".repeat(20);
    std::fs::write(folder.join("a.txt"), &text).unwrap();
    std::fs::create_dir(folder.join("inner")).unwrap();
    std::fs::write(
        folder.join("inner/b.rs"),
        "pub fn train(words: &[Word]) -> Vec<Token> {}\n".repeat(30),
    )
    .unwrap();
    std::fs::write(folder.join("c.bin"), b"\0\x01binary").unwrap();
}

fn trained(config: &TrainConfig) -> TrainedVocabulary {
    let folder = tempfile::tempdir().unwrap();
    corpus(folder.path());
    train(config, &[folder.path().to_owned()], &|_| {}).unwrap()
}

fn message(config: &TrainConfig, input: &Path) -> String {
    train(config, &[input.to_owned()], &|_| {}).unwrap_err().to_string()
}

#[test]
fn the_same_files_give_the_same_vocabulary() {
    for kind in [VocabularyKind::Bpe, VocabularyKind::WordPiece, VocabularyKind::Unigram] {
        let config = config(kind, 300);
        let first = trained(&config);
        for _ in 0..4 {
            assert!(trained(&config) == first, "{kind}");
        }
    }
}

#[test]
fn a_byte_level_vocabulary_has_gpt2s_form() {
    let folder = tempfile::tempdir().unwrap();
    let trained = trained(&config(VocabularyKind::Bpe, 300));
    trained.save(folder.path()).unwrap();
    let config = TokenizerConfig {
        kind: TokenizerKind::GPT2BPETokenizer,
        vocab_file: Some(folder.path().join("vocab.json")),
        ..Default::default()
    };
    let tokenizer = config.load().unwrap();
    assert_eq!((tokenizer.vocabulary_size(), trained.num_tokens()), (300, 300));
    assert_eq!(tokenizer.end_of_document(), Some(299));
    let text = "The cat's café, 漢字 <|endoftext|>\0";
    let mut tokens = vec![];
    tokenizer.encode(text, &mut tokens);
    assert!(tokens.len() < text.len() && tokens.contains(&299));
    assert_eq!(tokenizer.decode(&tokens), text.replace("<|endoftext|>", ""));
    // The tokenizer.json is the same one.
    let config = TokenizerConfig {
        kind: TokenizerKind::HuggingFaceTokenizer,
        model: Some(folder.path().to_owned()),
        ..Default::default()
    };
    let mut others = vec![];
    config.load().unwrap().encode(text, &mut others);
    assert_eq!(others, tokens);
}

#[test]
fn word_pieces_are_lines_after_the_special_tokens() {
    let trained = trained(&config(VocabularyKind::WordPiece, 200));
    let (_, lines) = trained.files().find(|(name, _)| *name == "vocab.txt").unwrap();
    let lines: Vec<&str> = std::str::from_utf8(lines).unwrap().lines().collect();
    assert_eq!(lines.len(), trained.num_tokens());
    assert_eq!(lines[..5], ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]);
    assert!(
        lines.contains(&"the") && lines.contains(&"##n") && !lines.contains(&"The"),
        "{lines:?}"
    );
    let cased = TrainConfig {
        lower_case: false,
        ..config(VocabularyKind::WordPiece, 200)
    };
    let cased = self::trained(&cased);
    let (_, lines) = cased.files().find(|(name, _)| *name == "vocab.txt").unwrap();
    assert!(std::str::from_utf8(lines).unwrap().lines().any(|line| line == "The"));
}

#[test]
fn sentinels_have_t5s_numbers() {
    let folder = tempfile::tempdir().unwrap();
    let config = TrainConfig {
        num_sentinels: 10,
        ..config(VocabularyKind::Unigram, 150)
    };
    trained(&config).save(folder.path()).unwrap();
    let config = TokenizerConfig {
        kind: TokenizerKind::HuggingFaceTokenizer,
        model: Some(folder.path().to_owned()),
        ..Default::default()
    };
    let tokenizer = config.load().unwrap();
    let size = tokenizer.vocabulary_size() as u32;
    let mut tokens = vec![];
    tokenizer.encode("<extra_id_0><extra_id_9>", &mut tokens);
    assert_eq!(tokens, [size - 1, size - 10]);
    let roles = tokenizer.token_roles();
    assert_eq!(
        roles.sentinels,
        (1..=10).map(|number| size - number).collect::<Vec<_>>()
    );
    assert_eq!((roles.pad, roles.eos, roles.mask), (Some(0), Some(1), None));
    assert_eq!(tokenizer.end_of_document(), Some(1));
    let mut tokens = vec![];
    tokenizer.encode("the cat sat", &mut tokens);
    let documents = tokens.clone();
    assert_eq!(tokenizer.decode(&tokens), "the cat sat");
    tokens.clear();
    tokenizer.encode_prompt("the cat sat", &mut tokens);
    assert_eq!(tokens, [documents.as_slice(), &[1]].concat());
}

#[test]
fn progress_reaches_the_end_of_the_files() {
    let folder = tempfile::tempdir().unwrap();
    corpus(folder.path());
    let seen = Mutex::new(vec![]);
    train(
        &config(VocabularyKind::Bpe, 300),
        &[folder.path().to_owned()],
        &|progress| {
            seen.lock().unwrap().push(progress);
        },
    )
    .unwrap();
    let seen = seen.into_inner().unwrap();
    assert!(matches!(seen.last(), Some(TrainProgress::Training { words: 10.. })));
    assert!(
        seen.iter()
            .any(|progress| matches!(progress, TrainProgress::Reading { bytes, total } if bytes == total))
    );
}

#[test]
fn what_cannot_be_trained_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let bpe = config(VocabularyKind::Bpe, 300);
    assert!(message(&bpe, folder.path()).contains("no text files in"));
    let empty = folder.path().join("empty.txt");
    std::fs::write(&empty, "").unwrap();
    assert_eq!(message(&bpe, &empty), "no words in 1 files of 0 bytes");
    assert!(message(&bpe, &folder.path().join("missing.txt")).contains("missing.txt"));
    corpus(folder.path());
    assert!(message(&config(VocabularyKind::Bpe, 256), folder.path()).contains("at least 257"));
    for kind in [VocabularyKind::WordPiece, VocabularyKind::Unigram] {
        let error = message(&config(kind, 10), folder.path());
        let least: usize = error
            .split("at least ")
            .nth(1)
            .unwrap()
            .split(':')
            .next()
            .unwrap()
            .parse()
            .unwrap();
        assert!(message(&config(kind, least - 1), folder.path()).contains(&format!("at least {least}:")));
        assert!(
            train(&config(kind, least), &[folder.path().to_owned()], &|_| {})
                .unwrap()
                .num_tokens()
                <= least
        );
    }
    let sentinels = TrainConfig {
        num_sentinels: 1,
        ..bpe
    };
    assert!(message(&sentinels, folder.path()).contains("unigram"));
}
