//! Text of tokens that arrive one by one.

use super::{Token, Tokenizer};

/// Most tokens that wait for the rest of a character: one of four bytes, a token each, lacks the last.
const MAX_WAITING: usize = 4;

/// Decodes tokens as they arrive, and never gives a part of a UTF-8 character.
///
/// The parts together are the text that [`Tokenizer::decode`] gives for all tokens. Only after bytes that are not UTF-8
/// may vocabularies with byte tokens (`<0xFF>`) have more characters U+FFFD in one than in the other.
pub struct StreamingDecoder<'a> {
    tokenizer: &'a dyn Tokenizer,
    /// Tokens whose text was given last, which decide how the next ones begin, and those that wait.
    tokens: Vec<Token>,
    /// How many of `tokens` were given.
    given: usize,
}

impl<'a> StreamingDecoder<'a> {
    /// Returns a decoder at the start of a text.
    pub fn new(tokenizer: &'a dyn Tokenizer) -> Self {
        Self {
            tokenizer,
            tokens: vec![],
            given: 0,
        }
    }

    /// Takes the next token, and returns the text that is complete with it.
    pub fn feed(&mut self, token: Token) -> Option<String> {
        // A token that is dropped must not come between the bytes of a character.
        if self.tokenizer.special_tokens().binary_search(&token).is_ok() {
            return None;
        }
        self.tokens.push(token);
        let waiting = self.tokens.len() - self.given;
        let text = self.tokenizer.decode(&self.tokens);
        if !text.ends_with('\u{FFFD}') {
            return self.give(&text, waiting);
        }
        // The last character may be one whose other bytes are in the next tokens. Its first byte is in one of the last
        // three.
        if waiting < MAX_WAITING {
            return None;
        }
        let text = self.tokenizer.decode(&self.tokens[..self.given + 1]);
        self.give(&text, 1)
    }

    /// Returns the text of the tokens that still wait, and starts again.
    pub fn finish(&mut self) -> Option<String> {
        let text = self.tokenizer.decode(&self.tokens);
        let rest = self.give(&text, self.tokens.len() - self.given);
        self.tokens.clear();
        self.given = 0;
        rest
    }

    /// Returns what `text` adds, which is that of the tokens given before and of the next `count`.
    fn give(&mut self, text: &str, count: usize) -> Option<String> {
        let before = self.tokenizer.decode(&self.tokens[..self.given]);
        // The text of the earlier tokens stays what it was, save in vocabularies whose decoders look ahead.
        let same = text
            .bytes()
            .zip(before.bytes())
            .take_while(|(left, right)| left == right)
            .count();
        let start = (0..=same)
            .rev()
            .find(|&start| text.is_char_boundary(start))
            .unwrap_or_default();
        let new = text[start..].to_owned();
        if new.is_empty() {
            return None;
        }
        self.tokens.drain(..self.given);
        self.given = count;
        Some(new)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tokenizer::ByteTokenizer;

    fn stream(tokens: &[Token]) -> Vec<String> {
        let mut decoder = StreamingDecoder::new(&ByteTokenizer);
        let mut parts: Vec<String> = tokens.iter().filter_map(|&token| decoder.feed(token)).collect();
        parts.extend(decoder.finish());
        parts
    }

    fn tokens(text: &str) -> Vec<Token> {
        text.bytes().map(Token::from).collect()
    }

    #[test]
    fn a_character_arrives_whole() {
        assert_eq!(stream(&tokens("aé漢😀")), ["a", "é", "漢", "😀"]);
        // The end of a document between the bytes of a character.
        assert_eq!(stream(&[0xC3, ByteTokenizer::END_OF_DOCUMENT, 0xA9]), ["é"]);
    }

    #[test]
    fn bytes_that_are_no_text_do_not_wait_for_ever() {
        let mut decoder = StreamingDecoder::new(&ByteTokenizer);
        let given: usize = (0..100)
            .filter_map(|_| decoder.feed(0xFF))
            .map(|part| part.chars().count())
            .sum();
        assert_eq!(given, 97);
        assert_eq!(decoder.finish().as_deref(), Some("\u{FFFD}\u{FFFD}\u{FFFD}"));
        assert_eq!(decoder.finish(), None);
        // After bytes that are no text, a character is still whole.
        assert_eq!(stream(&[0xFF, 0xF0, 0x9F, 0x98, 0x80]).concat(), "\u{FFFD}😀");
        assert!(stream(&[0xFF, 0xF0, 0x9F, 0x98, 0x80]).contains(&"😀".to_owned()));
    }

    proptest! {
        #[test]
        fn parts_are_the_text(
            bytes in prop::collection::vec(prop_oneof![0..=256_u32, Just(0xE6), Just(0xBC), Just(0xA2)], 0..40),
        ) {
            prop_assert_eq!(stream(&bytes).concat(), ByteTokenizer.decode(&bytes));
        }

        #[test]
        fn characters_of_a_text_are_never_cut(text in any::<String>()) {
            let parts = stream(&tokens(&text));
            prop_assert_eq!(parts.concat(), text.clone());
            if !text.contains('\u{FFFD}') {
                let whole = parts.iter().all(|part| !part.contains('\u{FFFD}'));
                prop_assert!(whole);
            }
        }
    }
}
