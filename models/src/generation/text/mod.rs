//! [`TextStream`]: the text of a sample's tokens, in pieces that are certain: no piece ends within a character, or
//! within what may become a stop sequence.

use std::sync::Arc;

use burn_megatron_data::tokenizer::{StreamingDecoder, Tokenizer};

/// Tokens to text, piece by piece.
pub struct TextStream {
    decoder: StreamingDecoder<Arc<dyn Tokenizer>>,
    stop_tokens: Vec<Vec<u32>>,
    /// The last tokens, which may be the beginning of a stop sequence.
    held_tokens: Vec<u32>,
    stops: StopTexts,
}

impl TextStream {
    /// Returns the stream of a text that ends before any of these texts or tokens. Special tokens have no text: a stop
    /// text with the name of one ends the text where its tokens come.
    pub fn new(tokenizer: Arc<dyn Tokenizer>, stop: Vec<String>, mut stop_tokens: Vec<Vec<u32>>) -> Self {
        stop_tokens.extend(stop.iter().filter_map(|text| special_tokens_of(text, &*tokenizer)));
        Self {
            decoder: StreamingDecoder::new(tokenizer),
            stop_tokens,
            held_tokens: Vec::new(),
            stops: StopTexts {
                stops: stop,
                held: String::new(),
            },
        }
    }

    /// Takes a token. Returns the text that is certain now, and whether a stop sequence has come.
    pub fn push(&mut self, token: u32) -> (String, bool) {
        self.held_tokens.push(token);
        if let Some(stop) = self.stop_tokens.iter().find(|stop| self.held_tokens.ends_with(stop)) {
            let kept = self.held_tokens.len() - stop.len();
            self.held_tokens.truncate(kept);
            return (self.finish().0, true);
        }
        let held = self
            .stop_tokens
            .iter()
            .map(|stop| overlap(&self.held_tokens, stop))
            .max();
        let certain = self.held_tokens.len() - held.unwrap_or(0);
        let text = self.decode(certain);
        let (text, has_stopped) = self.stops.push(&text);
        if has_stopped || self.stops.stops.is_empty() {
            return (text, has_stopped);
        }
        // Bytes that wait for the end of their run end the text, too: it is what they are if it ends with them.
        match self.stops.found_with(&self.decoder.waiting()) {
            Some(rest) => (text + &rest, true),
            None => (text, false),
        }
    }

    /// Returns the text that was held back, and whether a stop sequence is in it: no token follows, so bytes that may
    /// have begun a character are replaced now.
    pub fn finish(&mut self) -> (String, bool) {
        let mut text = self.decode(self.held_tokens.len());
        text.extend(self.decoder.finish());
        let (mut certain, has_stopped) = self.stops.push(&text);
        if !has_stopped {
            certain += &std::mem::take(&mut self.stops.held);
        }
        (certain, has_stopped)
    }

    /// Returns what is certain with the first `count` tokens that were held.
    fn decode(&mut self, count: usize) -> String {
        let tokens = self.held_tokens.drain(..count);
        tokens.filter_map(|token| self.decoder.feed(token)).collect()
    }
}

/// Returns the tokens of a stop text that has special ones; `None` if it has none.
fn special_tokens_of(text: &str, tokenizer: &dyn Tokenizer) -> Option<Vec<u32>> {
    let special = tokenizer.special_tokens();
    if let Some(token) = special.iter().find(|token| tokenizer.token_text(**token) == text) {
        return Some(vec![*token]).filter(|_| !text.is_empty());
    }
    let mut tokens = Vec::new();
    tokenizer.encode(text, &mut tokens);
    let has_special = tokens.iter().any(|token| special.binary_search(token).is_ok());
    has_special.then_some(tokens)
}

/// Looks for stop sequences in a text that comes in pieces.
struct StopTexts {
    stops: Vec<String>,
    /// What may be the beginning of one.
    held: String,
}

impl StopTexts {
    /// Takes a piece. Returns what is before a stop sequence or surely in none, and whether one has come.
    fn push(&mut self, piece: &str) -> (String, bool) {
        if let Some(before) = self.found_with(piece) {
            return (before, true);
        }
        self.held += piece;
        let begun = self
            .stops
            .iter()
            .map(|stop| overlap(self.held.as_bytes(), stop.as_bytes()));
        let certain = self.held.len() - begun.max().unwrap_or(0);
        let rest = self.held.split_off(certain);
        (std::mem::replace(&mut self.held, rest), false)
    }

    /// Returns the text before the first stop sequence in what is held and `piece`, and holds nothing then; `None` if
    /// there is none.
    fn found_with(&mut self, piece: &str) -> Option<String> {
        let mut text = format!("{}{piece}", self.held);
        let found = self.stops.iter().filter_map(|stop| text.find(stop.as_str())).min();
        text.truncate(found?);
        self.held.clear();
        Some(text)
    }
}

/// The most elements at the end of `text` that are the beginning of `stop`, and not all of it.
fn overlap<T: PartialEq>(text: &[T], stop: &[T]) -> usize {
    let most = text.len().min(stop.len().saturating_sub(1));
    (1..=most)
        .rev()
        .find(|count| text.ends_with(&stop[..*count]))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;
