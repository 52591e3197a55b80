//! `Conversations`: files of conversations as tokens, in memory.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::BufReader;
use std::ops::Range;
use std::path::Path;

use rayon::prelude::*;

use super::answers::{Encoded, encode};
use super::conversation::{Conversation, Problem};
use super::{ChatError, ChatTemplate};
use crate::bounded_lines::{Line, is_blank, read_line};
use crate::in_memory::InMemoryDocuments;
use crate::indexed_dataset::TokenDocuments;
use crate::tokenizer::{Token, Tokenizer};

/// Lines that are read before they are encoded, on all cores.
const BATCH_LINES: usize = 1024;
/// Bytes of lines after which no more are read before those are encoded.
const BATCH_BYTES: usize = 16 << 20;
/// Largest line that is read, in bytes.
const MAX_LINE_BYTES: usize = 256 << 20;

/// Keys that are remembered, of those that are not read.
const MAX_IGNORED_KEYS: usize = 64;

/// What becomes of a conversation that is longer than a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum LongConversations {
    /// Its end is left out, and it is counted.
    #[default]
    Cut,
    /// It is an error.
    Refused,
}

/// How many conversations were read, and what became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ConversationTotals {
    /// Conversations that were read.
    pub conversations: u64,
    /// Texts that samples are made of: more than one of a conversation where the template writes an earlier answer
    /// otherwise when others follow.
    pub texts: u64,
    /// Texts whose end is left out.
    pub cut: u64,
    /// Conversations without an answer, and texts without one in what is not cut: they are left out.
    pub without_answers: u64,
}

/// Conversations as tokens, and which of these are answers of the assistant.
///
/// In memory: 2 or 4 bytes for each token, and 8 for each answer.
#[derive(Debug, Clone)]
pub struct Conversations {
    tokens: InMemoryDocuments,
    /// Answers of all conversations, as places in their tokens.
    answers: Vec<[u32; 2]>,
    /// Where the answers of each conversation end.
    answer_ends: Vec<usize>,
    seq_length: usize,
    long: LongConversations,
    totals: ConversationTotals,
    ignored_keys: BTreeSet<String>,
    vocabulary_size: usize,
}

impl Conversations {
    /// Returns a store without conversations, for samples of `seq_length` tokens and a tokenizer of `vocabulary_size`.
    pub fn new(vocabulary_size: usize, seq_length: usize, long: LongConversations) -> Self {
        Self {
            tokens: InMemoryDocuments::new(vocabulary_size),
            answers: vec![],
            answer_ends: vec![],
            seq_length,
            long,
            totals: ConversationTotals::default(),
            ignored_keys: BTreeSet::new(),
            vocabulary_size,
        }
    }

    /// Appends the conversations of a file of JSON lines, on all cores: `{"messages": [{"role": …, "content": …}, …]}`
    /// or ShareGPT's `{"conversations": [{"from": …, "value": …}, …]}`. Blank lines are passed over. An answer with
    /// `"weight": 0`, `"train": false` or `"loss": false` is not learnt.
    ///
    /// # Errors
    /// The file cannot be read, a line is no conversation, the template refuses it, or it is longer than a sample and
    /// such ones are refused: the error names file, line and, if it is one of them, the message.
    ///
    /// # Panics
    /// If the tokenizer is of another vocabulary.
    pub fn read(&mut self, path: &Path, template: &ChatTemplate, tokenizer: &dyn Tokenizer) -> Result<(), ChatError> {
        assert_eq!(
            tokenizer.vocabulary_size(),
            self.vocabulary_size,
            "the store's vocabulary"
        );
        let failed = |source| ChatError::Io {
            path: path.to_owned(),
            source,
        };
        let mut reader = BufReader::new(File::open(path).map_err(failed)?);
        let (mut number, mut is_end) = (0, false);
        while !is_end {
            let mut lines = vec![];
            let mut bytes = 0;
            while lines.len() < BATCH_LINES && bytes < BATCH_BYTES {
                number += 1;
                let mut line = vec![];
                match read_line(&mut reader, MAX_LINE_BYTES, &mut line).map_err(failed)? {
                    Line::None => {
                        is_end = true;
                        break;
                    }
                    Line::TooLong => {
                        let problem = Problem::of_all(format!("it has more than {MAX_LINE_BYTES} bytes"));
                        return Err(ChatError::in_file(problem, path, number));
                    }
                    Line::Whole => bytes += line.len(),
                }
                if !is_blank(&line) {
                    lines.push((number, line));
                }
            }
            let encode = |(number, line): &(u64, Vec<u8>)| {
                let encoded = Conversation::parse(line).and_then(|parsed| {
                    let texts = encode(&parsed, template, tokenizer)?;
                    Ok((texts, parsed.ignored))
                });
                (*number, encoded)
            };
            let encoded: Vec<_> = lines.par_iter().map(encode).collect();
            for (number, encoded) in encoded {
                let (texts, ignored) = encoded.map_err(|problem| ChatError::in_file(problem, path, number))?;
                self.totals.conversations += 1;
                self.totals.without_answers += u64::from(texts.is_empty());
                for text in texts {
                    self.push(text, path, number)?;
                }
                let room = MAX_IGNORED_KEYS.saturating_sub(self.ignored_keys.len());
                self.ignored_keys.extend(ignored.into_iter().take(room));
            }
        }
        Ok(())
    }

    fn push(&mut self, mut encoded: Encoded, path: &Path, line: u64) -> Result<(), ChatError> {
        // Of the last token no next one is predicted.
        let longest = self.seq_length + 1;
        let is_long = encoded.tokens.len() > longest;
        if is_long && self.long == LongConversations::Refused {
            return Err(ChatError::TooLong {
                path: path.to_owned(),
                line,
                tokens: encoded.tokens.len(),
                seq_length: self.seq_length,
            });
        }
        encoded.tokens.truncate(longest);
        // Nothing predicts the first token.
        let answers = encoded
            .answers
            .iter()
            .map(|answer| answer.start.max(1)..answer.end.min(longest));
        let before = self.answers.len();
        self.answers.extend(
            answers
                .filter(|answer| !answer.is_empty())
                .map(|answer| [answer.start as u32, answer.end as u32]),
        );
        if self.answers.len() == before {
            self.totals.without_answers += 1;
            return Ok(());
        }
        self.tokens.push(&encoded.tokens);
        self.answer_ends.push(self.answers.len());
        self.totals.texts += 1;
        self.totals.cut += u64::from(is_long);
        Ok(())
    }

    /// Returns the number of texts of conversations.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Returns whether there is no conversation.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Returns what became of the conversations that were read.
    pub fn totals(&self) -> ConversationTotals {
        self.totals
    }

    /// Returns keys of conversations that were not read, in alphabetical order.
    pub fn ignored_keys(&self) -> impl Iterator<Item = &str> {
        self.ignored_keys.iter().map(String::as_str)
    }

    /// Returns the longest sample that these conversations were read for.
    pub(super) fn seq_length(&self) -> usize {
        self.seq_length
    }

    /// Returns how many tokens of a conversation predict another.
    ///
    /// # Panics
    /// If there is no such conversation.
    pub(super) fn num_inputs(&self, conversation: usize) -> usize {
        self.tokens.document_length(conversation) - 1
    }

    /// Returns the tokens of a conversation and its answers.
    ///
    /// # Panics
    /// If there is no such conversation.
    pub(super) fn conversation(&self, index: usize) -> (Vec<Token>, impl Iterator<Item = Range<usize>>) {
        let start = index.checked_sub(1).map_or(0, |previous| self.answer_ends[previous]);
        let answers = self.answers[start..self.answer_ends[index]].iter();
        (
            self.tokens.document(index),
            answers.map(|&[start, end]| start as usize..end as usize),
        )
    }
}
