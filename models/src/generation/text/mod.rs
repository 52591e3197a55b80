//! [`TextStream`]: the text of a sample's tokens, in pieces that are certain: no piece ends within a character, or
//! within what may become a stop sequence.

use std::sync::Arc;

use burn_megatron_data::tokenizer::Tokenizer;

/// Where a character is not whole, or broken.
const REPLACEMENT: char = '\u{FFFD}';
/// The most tokens of a character that is not whole: each has a byte at least, and a character has four.
const MOST_PENDING: usize = 3;

/// Tokens to text, piece by piece.
pub struct TextStream {
    tokenizer: Arc<dyn Tokenizer>,
    stop_tokens: Vec<Vec<u32>>,
    /// The last tokens, which may be the beginning of a stop sequence.
    held_tokens: Vec<u32>,
    /// Tokens whose text is looked at together: some that are out, for the sake of what follows them, and then those
    /// that are not.
    window: Vec<u32>,
    /// The tokens of the window whose text is out.
    settled: usize,
    /// The text of the window that is out.
    shown: String,
    stops: StopTexts,
}

impl TextStream {
    /// Returns the stream of a text that ends before any of these texts or tokens.
    pub fn new(tokenizer: Arc<dyn Tokenizer>, stop: Vec<String>, stop_tokens: Vec<Vec<u32>>) -> Self {
        Self {
            tokenizer,
            stop_tokens,
            held_tokens: Vec::new(),
            window: Vec::new(),
            settled: 0,
            shown: String::new(),
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
        let mut text = String::new();
        for token in self.held_tokens.drain(..certain).collect::<Vec<_>>() {
            text += &self.decode(token);
        }
        self.stops.push(&text)
    }

    /// Returns the text that was held back, and whether a stop sequence is in it: no token follows, so bytes that may
    /// have begun a character are replaced now.
    pub fn finish(&mut self) -> (String, bool) {
        let mut text = String::new();
        for token in std::mem::take(&mut self.held_tokens) {
            text += &self.decode(token);
        }
        let all = self.tokenizer.decode(&self.window);
        text += all.strip_prefix(self.shown.as_str()).unwrap_or_default();
        self.window.clear();
        self.shown.clear();
        self.settled = 0;
        let (mut certain, has_stopped) = self.stops.push(&text);
        if !has_stopped {
            certain += &std::mem::take(&mut self.stops.held);
        }
        (certain, has_stopped)
    }

    /// Returns the whole characters that are certain with one token more.
    fn decode(&mut self, token: u32) -> String {
        self.window.push(token);
        let all = self.tokenizer.decode(&self.window);
        let certain = self.certain(&all);
        let Some(new) = certain.strip_prefix(self.shown.as_str()) else {
            return String::new();
        };
        let new = new.to_owned();
        if certain.len() == all.len() {
            // What is out already stays for one more piece: the text of a token may depend on those before it.
            self.window.drain(..self.settled);
            self.settled = self.window.len();
            self.shown = self.tokenizer.decode(&self.window);
        } else {
            self.shown = certain.to_owned();
        }
        new
    }

    /// The text without an end that may be part of a character.
    fn certain<'a>(&self, all: &'a str) -> &'a str {
        if !all.ends_with(REPLACEMENT) {
            return all;
        }
        if self.window.len() - self.settled > MOST_PENDING {
            // These bytes are no character: only the last of them may begin one.
            return all.strip_suffix(REPLACEMENT).unwrap_or(all);
        }
        all.trim_end_matches(REPLACEMENT)
    }
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
        self.held += piece;
        let found = self.stops.iter().filter_map(|stop| self.held.find(stop.as_str())).min();
        if let Some(start) = found {
            self.held.truncate(start);
            return (std::mem::take(&mut self.held), true);
        }
        let begun = self
            .stops
            .iter()
            .map(|stop| overlap(self.held.as_bytes(), stop.as_bytes()));
        let certain = self.held.len() - begun.max().unwrap_or(0);
        let rest = self.held.split_off(certain);
        (std::mem::replace(&mut self.held, rest), false)
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
