//! The most probable pieces of a text.

use std::collections::HashMap;
use std::hash::BuildHasherDefault;

use super::model::PieceType;
use crate::tokenizer::Token;
use crate::tokenizer::byte_level::merge::PairHasher;

/// How much less likely than any piece a character without a piece is.
const UNKNOWN_PENALTY: f32 = 10.0;
/// The distance from 0 at which sums begin again at 0.
const RESET: f32 = 100_000.0;
const ROOT: u32 = 0;

/// A vocabulary of pieces with their log-probabilities, as a tree of bytes.
pub(super) struct Unigram {
    /// Node and byte to node.
    edges: HashMap<u64, u32, BuildHasherDefault<PairHasher>>,
    /// The piece that ends at each node.
    pieces: Vec<Option<(Token, Score)>>,
    lowest_score: f32,
}

#[derive(Debug, Clone, Copy)]
enum Score {
    Learned(f32),
    /// Of a piece that is taken wherever it is possible.
    Bonus,
}

/// The best way to the end of a part of the text.
#[derive(Debug, Clone, Copy, Default)]
struct Path {
    score: f32,
    /// Where its last piece starts, and which it is; `None` for a character without a piece.
    last: Option<(usize, Option<Token>)>,
}

impl Unigram {
    /// Returns the vocabulary of the pieces that text may contain.
    pub(super) fn new(pieces: &[(&str, f32, PieceType)]) -> Self {
        let learned = pieces.iter().filter(|piece| piece.2 == PieceType::Normal);
        let scores = learned.map(|piece| piece.1);
        let mut unigram = Self {
            edges: HashMap::default(),
            pieces: vec![None],
            lowest_score: scores.reduce(f32::min).unwrap_or_default(),
        };
        for (&(text, score, kind), token) in pieces.iter().zip(0..) {
            match kind {
                PieceType::Normal => unigram.insert(text, (token, Score::Learned(score))),
                PieceType::UserDefined => unigram.insert(text, (token, Score::Bonus)),
                _ => {}
            }
        }
        unigram
    }

    fn insert(&mut self, text: &str, piece: (Token, Score)) {
        let mut node = ROOT;
        for byte in text.bytes() {
            let next = self.pieces.len() as u32;
            node = *self.edges.entry(edge(node, byte)).or_insert(next);
            if node == next {
                self.pieces.push(None);
            }
        }
        if node != ROOT {
            self.pieces[node as usize] = Some(piece);
        }
    }

    /// Calls `push` with each piece of the best path, or with the text of a character that has none.
    ///
    /// Sums are rounded to f32 at every step, and begin again at 0 where they are large, as in SentencePiece 0.2.3:
    /// that decides between paths that are nearly equally likely, as in a long run of one letter.
    ///
    /// # Reference
    /// SentencePiece's `unigram::Model::EncodeOptimized`.
    pub(super) fn cut(&self, text: &str, mut push: impl FnMut(Result<Token, &str>)) {
        let mut paths = vec![Path::default(); text.len() + 1];
        // The last end of a path.
        let mut last = 0;
        for (start, character) in text.char_indices() {
            let so_far = paths[start].score;
            if so_far.abs() > RESET {
                paths[start..=last].iter_mut().for_each(|path| path.score -= so_far);
            }
            last = last.max(self.extend_paths(text, start, character.len_utf8(), &mut paths));
        }
        let mut parts = vec![];
        let mut end = text.len();
        while let Some((start, token)) = paths[end].last {
            parts.push(token.ok_or(&text[start..end]));
            end = start;
        }
        parts.into_iter().rev().for_each(&mut push);
    }

    /// Extends the best path to `start` by each piece that begins there. Returns the last end.
    fn extend_paths(&self, text: &str, start: usize, character_bytes: usize, paths: &mut [Path]) -> usize {
        let so_far = paths[start].score;
        let mut has_character = false;
        let mut last = start;
        let mut node = ROOT;
        for (place, byte) in text.bytes().enumerate().skip(start) {
            match self.edges.get(&edge(node, byte)) {
                Some(&next) => node = next,
                None => break,
            }
            let Some((token, score)) = self.pieces[node as usize] else {
                continue;
            };
            let length = place + 1 - start;
            has_character |= length == character_bytes;
            let score = match score {
                Score::Learned(score) => score,
                Score::Bonus => (0.1 * (length - 1) as f64) as f32,
            };
            last = place + 1;
            paths[last].improve(score + so_far, start, Some(token));
        }
        if !has_character {
            let score = self.lowest_score - UNKNOWN_PENALTY;
            last = last.max(start + character_bytes);
            paths[start + character_bytes].improve(score + so_far, start, None);
        }
        last
    }
}

impl Path {
    fn improve(&mut self, score: f32, start: usize, token: Option<Token>) {
        if self.last.is_none() || score > self.score {
            self.score = score;
            self.last = Some((start, token));
        }
    }
}

fn edge(node: u32, byte: u8) -> u64 {
    u64::from(node) << 8 | u64::from(byte)
}
