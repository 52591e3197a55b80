//! The words of text files and how often each occurs.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use rayon::prelude::*;
use serde_json::{Value, json};
use tokenizers::{
    NormalizedString, Normalizer, NormalizerWrapper, OffsetReferential, OffsetType, PreTokenizedString, PreTokenizer,
    PreTokenizerWrapper,
};
use walkdir::WalkDir;

use super::TrainProgress;
use crate::tokenizer::byte_level::{character_of_byte, gpt2_words};
use crate::tokenizer::files::io_error;
use crate::tokenizer::{TokenizerError, wordpiece};

/// How often each word occurs.
pub(super) type WordCounts = HashMap<String, u64>;

/// Bytes of a file that are cut into words at once, and after which a word may end that would be longer.
const CHUNK_BYTES: usize = 1 << 20;

/// Bytes at the start of a file in which a zero says that it is no text.
const PROBE_BYTES: usize = 8192;

/// Cuts text into the words in which tokens are.
pub(super) enum WordReader {
    /// GPT-2's words, in the characters of bytes.
    ByteLevel(Box<[char; 256]>),
    /// The words of a normalizer and a pre-tokenizer.
    Generic(Box<(NormalizerWrapper, PreTokenizerWrapper)>),
}

impl WordReader {
    pub(super) fn byte_level() -> Self {
        let mut characters = ['\0'; 256];
        for (byte, character) in (0..=u8::MAX).zip(&mut characters) {
            *character = character_of_byte(byte);
        }
        Self::ByteLevel(Box::new(characters))
    }

    pub(super) fn bert(lower_case: bool) -> Result<Self, TokenizerError> {
        Self::generic(wordpiece::normalizer(lower_case), wordpiece::pre_tokenizer())
    }

    pub(super) fn unigram() -> Result<Self, TokenizerError> {
        Self::generic(unigram_normalizer(), unigram_pre_tokenizer())
    }

    fn generic(normalizer: Value, pre_tokenizer: Value) -> Result<Self, TokenizerError> {
        let failed = |error: serde_json::Error| TokenizerError::Training(error.to_string());
        let normalizer = serde_json::from_value(normalizer).map_err(failed)?;
        let pre_tokenizer = serde_json::from_value(pre_tokenizer).map_err(failed)?;
        Ok(Self::Generic(Box::new((normalizer, pre_tokenizer))))
    }

    fn count(&self, text: &str, words: &mut WordCounts) -> Result<(), TokenizerError> {
        let mut add = |word: &str| match words.get_mut(word) {
            Some(count) => *count += 1,
            None => {
                words.insert(word.to_owned(), 1);
            }
        };
        match self {
            Self::ByteLevel(characters) => {
                let mut spelled = String::new();
                gpt2_words(text, |word| {
                    spelled.clear();
                    spelled.extend(word.bytes().map(|byte| characters[usize::from(byte)]));
                    add(&spelled);
                });
            }
            Self::Generic(parts) => {
                let failed = |error: tokenizers::Error| TokenizerError::Training(error.to_string());
                let mut normalized = NormalizedString::from(text);
                parts.0.normalize(&mut normalized).map_err(failed)?;
                let mut cut = PreTokenizedString::from(normalized);
                parts.1.pre_tokenize(&mut cut).map_err(failed)?;
                for (word, ..) in cut.get_splits(OffsetReferential::Normalized, OffsetType::Byte) {
                    add(word);
                }
            }
        }
        Ok(())
    }
}

/// Returns the normalizer of a unigram vocabulary: one form of each character, one space between words.
pub(super) fn unigram_normalizer() -> Value {
    json!({
        "type": "Sequence",
        "normalizers": [
            { "type": "Nmt" },
            { "type": "NFKC" },
            { "type": "Replace", "pattern": { "Regex": " {2,}" }, "content": " " },
        ],
    })
}

/// Returns the pre-tokenizer of a unigram vocabulary: a word begins with U+2581.
pub(super) fn unigram_pre_tokenizer() -> Value {
    json!({ "type": "Metaspace", "replacement": "\u{2581}", "prepend_scheme": "always", "split": true })
}

/// The files of a corpus.
pub(super) struct Corpus {
    files: Vec<PathBuf>,
    bytes: u64,
}

impl Corpus {
    /// Returns the files, those of folders in the order of their names. In a folder, a file with a zero byte at its
    /// start is no text and is left out.
    pub(super) fn new(inputs: &[PathBuf]) -> Result<Self, TokenizerError> {
        let mut corpus = Self {
            files: vec![],
            bytes: 0,
        };
        for input in inputs {
            let metadata = fs::metadata(input).map_err(|source| failed(input, source))?;
            if metadata.is_dir() {
                corpus.add_folder(input)?;
            } else {
                corpus.files.push(input.clone());
                corpus.bytes += metadata.len();
            }
        }
        if corpus.files.is_empty() {
            let names: Vec<String> = inputs.iter().map(|input| input.display().to_string()).collect();
            return Err(TokenizerError::Training(format!(
                "no text files in {}",
                names.join(", ")
            )));
        }
        Ok(corpus)
    }

    fn add_folder(&mut self, folder: &Path) -> Result<(), TokenizerError> {
        // Links are not followed: one may lead back to a folder above it.
        for entry in WalkDir::new(folder).sort_by_file_name() {
            let failed = |error: walkdir::Error| {
                let path = error.path().unwrap_or(folder).to_owned();
                let source = error.into_io_error();
                failed(&path, source.expect("only links that are followed make a loop"))
            };
            let entry = entry.map_err(failed)?;
            if entry.file_type().is_file() && is_text(entry.path())? {
                self.bytes += entry.metadata().map_err(failed)?.len();
                self.files.push(entry.into_path());
            }
        }
        Ok(())
    }

    /// Counts the words of all files.
    pub(super) fn count_words(
        &self,
        reader: &WordReader,
        progress: &(dyn Fn(TrainProgress) + Sync),
    ) -> Result<WordCounts, TokenizerError> {
        let done = AtomicU64::new(0);
        let read = |bytes: u64| {
            let bytes = done.fetch_add(bytes, Ordering::Relaxed) + bytes;
            progress(TrainProgress::Reading {
                bytes,
                total: self.bytes,
            });
        };
        let counts = self.files.par_iter().map(|file| count_file(file, reader, &read));
        let words = counts.try_reduce(WordCounts::new, |left, right| Ok(add(left, right)))?;
        if words.is_empty() {
            let reason = format!("no words in {} files of {} bytes", self.files.len(), self.bytes);
            return Err(TokenizerError::Training(reason));
        }
        Ok(words)
    }
}

fn failed(path: &Path, source: io::Error) -> TokenizerError {
    io_error("read", path, source)
}

fn is_text(path: &Path) -> Result<bool, TokenizerError> {
    let mut reader = BufReader::with_capacity(PROBE_BYTES, File::open(path).map_err(|source| failed(path, source))?);
    let start = reader.fill_buf().map_err(|source| failed(path, source))?;
    Ok(!start.contains(&0))
}

fn add(left: WordCounts, right: WordCounts) -> WordCounts {
    let (mut more, fewer) = if left.len() < right.len() {
        (right, left)
    } else {
        (left, right)
    };
    for (word, count) in fewer {
        *more.entry(word).or_default() += count;
    }
    more
}

/// Counts the words of a file, line by line, in chunks of some lines.
fn count_file(path: &Path, reader: &WordReader, read: &dyn Fn(u64)) -> Result<WordCounts, TokenizerError> {
    let mut words = WordCounts::new();
    let mut file = BufReader::with_capacity(1 << 16, File::open(path).map_err(|source| failed(path, source))?);
    let mut chunk = vec![];
    loop {
        let part = file.fill_buf().map_err(|source| failed(path, source))?;
        let length = part.len();
        chunk.extend_from_slice(part);
        file.consume(length);
        if length > 0 && chunk.len() < CHUNK_BYTES {
            continue;
        }
        // A chunk ends where a line or at least a word does, so that no character is cut; what follows waits.
        let end = match length {
            0 => chunk.len(),
            _ => [b'\n', b' ']
                .iter()
                .find_map(|end| chunk.iter().rposition(|byte| byte == end))
                .unwrap_or(chunk.len()),
        };
        reader.count(&String::from_utf8_lossy(&chunk[..end]), &mut words)?;
        read(end as u64);
        chunk.drain(..end);
        if length == 0 {
            return Ok(words);
        }
    }
}
