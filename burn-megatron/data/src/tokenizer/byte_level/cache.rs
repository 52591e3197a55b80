//! The tokens of words that were seen lately.

use super::Token;

/// Longest word that is kept, in bytes.
const MAX_BYTES: usize = 23;
/// Most tokens of a word that is kept.
const MAX_TOKENS: usize = 7;
/// A power of two.
const NUM_PLACES: usize = 1 << 15;

/// A word and its tokens. No word has no bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Entry {
    length: u8,
    num_tokens: u8,
    word: [u8; MAX_BYTES],
    tokens: [Token; MAX_TOKENS],
}

/// One word for each of 32768 places, 1.8 MB: a word replaces the one that had its place.
#[derive(Debug)]
pub(super) struct WordCache(Vec<Entry>);

impl Default for WordCache {
    fn default() -> Self {
        Self(vec![Entry::default(); NUM_PLACES])
    }
}

/// Where a word is kept, if it may be.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place(Option<usize>);

impl WordCache {
    pub(super) fn place(&self, word: &[u8]) -> Place {
        if word.len() > MAX_BYTES {
            return Place(None);
        }
        let mut padded = [0; 24];
        padded[..word.len()].copy_from_slice(word);
        let mut hash = word.len() as u64;
        for part in padded.chunks_exact(8) {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(part);
            let product = u128::from(hash ^ u64::from_le_bytes(bytes)) * 0x9E37_79B9_7F4A_7C15;
            hash = (product >> 64) as u64 ^ product as u64;
        }
        Place(Some(hash as usize & (NUM_PLACES - 1)))
    }

    /// Appends the tokens of a word, and returns whether it was there.
    pub(super) fn append(&self, place: &Place, word: &[u8], tokens: &mut Vec<Token>) -> bool {
        let Some(place) = place.0 else { return false };
        let entry = &self.0[place];
        let found = usize::from(entry.length) == word.len() && &entry.word[..word.len()] == word;
        if found {
            tokens.extend_from_slice(&entry.tokens[..usize::from(entry.num_tokens)]);
        }
        found
    }

    /// Keeps the tokens of a word.
    pub(super) fn insert(&mut self, place: &Place, word: &[u8], tokens: &[Token]) {
        let Some(place) = place.0.filter(|_| tokens.len() <= MAX_TOKENS) else {
            return;
        };
        let entry = &mut self.0[place];
        entry.length = word.len() as u8;
        entry.num_tokens = tokens.len() as u8;
        entry.word[..word.len()].copy_from_slice(word);
        entry.tokens[..tokens.len()].copy_from_slice(tokens);
    }
}
