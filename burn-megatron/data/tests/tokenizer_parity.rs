//! Tokens are those of Hugging Face's `tokenizers` and of `sentencepiece`, in both directions: tokenizer_parity.py made
//! the expected ones.

#![allow(clippy::unwrap_used)] // Its helpers are tests too.

use std::path::{Path, PathBuf};
use std::time::Instant;

use burn_megatron_data::tokenizer::{Token, TokenizerConfig, TokenizerKind};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

#[derive(Deserialize)]
struct Expected {
    ids: Vec<Vec<Token>>,
    decoded: Vec<String>,
    prompt: Vec<Token>,
    joined: Option<Joined>,
}

/// All documents as one, several times.
#[derive(Deserialize)]
struct Joined {
    times: usize,
    tokens: usize,
    /// Of the tokens as u32.
    sha256: String,
}

fn documents(folder: &Path) -> Vec<String> {
    let bytes = std::fs::read(folder.join("corpus.bin")).unwrap();
    let mut rest = bytes.as_slice();
    let mut documents = vec![];
    while let Some((length, after)) = rest.split_first_chunk() {
        let (document, after) = after.split_at(u32::from_le_bytes(*length) as usize);
        documents.push(String::from_utf8_lossy(document).into_owned());
        rest = after;
    }
    documents
}

fn config(folder: &Path, name: &str) -> TokenizerConfig {
    let folder = folder.join(name);
    let with_vocabulary = |kind, file: &str| TokenizerConfig {
        kind,
        vocab_file: Some(folder.join(file)),
        ..Default::default()
    };
    let with_model = |kind| TokenizerConfig {
        kind,
        model: Some(folder.clone()),
        ..Default::default()
    };
    match name {
        "gpt2" => with_vocabulary(TokenizerKind::GPT2BPETokenizer, "vocab.json"),
        "word_piece_lower_case" => with_vocabulary(TokenizerKind::BertWordPieceLowerCase, "vocab.txt"),
        "word_piece_case" => with_vocabulary(TokenizerKind::BertWordPieceCase, "vocab.txt"),
        "llama3" | "unigram" => with_model(TokenizerKind::HuggingFaceTokenizer),
        _ => with_model(TokenizerKind::SentencePieceTokenizer),
    }
}

const NAMES: [&str; 7] = [
    "gpt2",
    "llama3",
    "word_piece_lower_case",
    "word_piece_case",
    "unigram",
    "sentence_piece_unigram",
    "sentence_piece_bpe",
];

fn shown(document: &str) -> String {
    document.chars().take(200).collect()
}

fn compare(folder: &Path, name: &str) {
    let documents = documents(folder);
    let json = std::fs::read(folder.join(name).join("expected.json")).unwrap();
    let expected: Expected = serde_json::from_slice(&json).unwrap();
    assert_eq!(documents.len(), expected.ids.len());
    let tokenizer = config(folder, name).load().unwrap();
    let start = Instant::now();
    let encode = |document: &String| {
        let mut tokens = vec![];
        tokenizer.try_encode(document, &mut tokens).unwrap();
        tokens
    };
    let ids: Vec<Vec<Token>> = documents.iter().map(encode).collect();
    let seconds = start.elapsed().as_secs_f64();
    let (mut tokens, mut different, mut decoded_different) = (0, 0, 0);
    for (place, document) in documents.iter().enumerate() {
        tokens += ids[place].len();
        if ids[place] != expected.ids[place] {
            different += 1;
            let first = ids[place]
                .iter()
                .zip(&expected.ids[place])
                .take_while(|(left, right)| left == right)
                .count();
            let near = |ids: &[Token]| tokenizer.decode(&ids[first.saturating_sub(2)..ids.len().min(first + 8)]);
            println!(
                "{name}: document {place} ({:?}) differs at token {first}: {:?} {:?}, not {:?} {:?}",
                shown(document),
                ids[place].get(first),
                near(&ids[place]),
                expected.ids[place].get(first),
                near(&expected.ids[place])
            );
        }
        let decoded = tokenizer.decode(&expected.ids[place]);
        if decoded != expected.decoded[place] {
            decoded_different += 1;
            println!(
                "{name}: document {place} decoded is {:?}, not {:?}",
                shown(&decoded),
                shown(&expected.decoded[place])
            );
        }
    }
    let bytes: usize = documents.iter().map(String::len).sum();
    println!(
        "{name}: {} documents, {bytes} bytes, {tokens} tokens; {different} + {decoded_different} differ; {:.1} MB/s",
        documents.len(),
        bytes as f64 / 1e6 / seconds
    );
    assert_eq!((different, decoded_different), (0, 0), "{name}");
    let mut prompt = vec![];
    tokenizer.encode_prompt("Once upon a time", &mut prompt);
    assert_eq!(prompt, expected.prompt, "{name}");
    if let Some(joined) = expected.joined {
        let tokens = encode(&documents.concat().repeat(joined.times));
        let bytes: Vec<u8> = tokens.iter().flat_map(|token| token.to_le_bytes()).collect();
        let digest: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!((tokens.len(), digest), (joined.tokens, joined.sha256), "{name}, as one");
    }
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizers")
}

#[test]
fn tokens_are_those_of_the_python_packages() {
    for name in NAMES {
        compare(&fixtures(), name);
    }
}

/// Millions of bytes, as tokenizer_parity.py says.
#[test]
#[ignore = "BURN_MEGATRON_TOKENIZER_PARITY is a folder that tokenizer_parity.py wrote"]
fn tokens_of_a_large_corpus_are_those_of_the_python_packages() {
    let folder = std::env::var_os("BURN_MEGATRON_TOKENIZER_PARITY").expect("a folder that tokenizer_parity.py wrote");
    for name in NAMES {
        compare(Path::new(&folder), name);
    }
}
