//! Text of tokens that arrive one by one.

use std::ops::Deref;

use super::{Token, TokenPiece, Tokenizer};

/// Most characters U+FFFD at the end of a text that the next tokens may turn into another one: the bytes of a character
/// that lacks its last.
const MAX_BROKEN: usize = 3;

/// Decodes tokens as they arrive, and never gives a part of a UTF-8 character.
///
/// The parts together are the text that [`Tokenizer::decode`] gives for all tokens. A run of tokens that is decoded as
/// a whole ([`TokenPiece::Byte`]) is given when it has ended.
pub struct StreamingDecoder<T> {
    tokenizer: T,
    /// Tokens whose text is given, which decide how the next ones begin, and those that wait.
    tokens: Vec<Token>,
    /// Where the last tokens begin whose text was given as a whole.
    last: usize,
    /// The text of `tokens` that is given.
    given: String,
}

impl<T: Deref<Target: Tokenizer>> StreamingDecoder<T> {
    /// Returns a decoder at the start of a text.
    pub fn new(tokenizer: T) -> Self {
        Self {
            tokenizer,
            tokens: vec![],
            last: 0,
            given: String::new(),
        }
    }

    /// Takes the next token, and returns the text that is complete with it.
    pub fn feed(&mut self, token: Token) -> Option<String> {
        let piece = self.tokenizer.piece(token);
        // A token that is dropped must not come between the bytes of a character.
        if piece == TokenPiece::Nothing {
            return None;
        }
        self.tokens.push(token);
        if piece == TokenPiece::Byte {
            return None;
        }
        let text = self.tokenizer.decode(&self.tokens);
        let certain = certain(&text);
        let new = self.new_part(certain).to_owned();
        self.given = certain.to_owned();
        if certain.len() == text.len() {
            self.forget();
        }
        Some(new).filter(|new| !new.is_empty())
    }

    /// Returns the text that waits for the next tokens, as it is if the others end here. A character that is not whole
    /// is left out.
    pub fn waiting(&self) -> String {
        self.new_part(certain(&self.tokenizer.decode(&self.tokens))).to_owned()
    }

    /// Returns the text of the tokens that still wait, and starts again.
    pub fn finish(&mut self) -> Option<String> {
        let rest = self.new_part(&self.tokenizer.decode(&self.tokens)).to_owned();
        self.tokens.clear();
        self.last = 0;
        self.given.clear();
        Some(rest).filter(|rest| !rest.is_empty())
    }

    /// Returns what `text` has after that which is given.
    fn new_part<'a>(&self, text: &'a str) -> &'a str {
        // The text of the earlier tokens stays what it was, save in vocabularies whose decoders look ahead.
        let pairs = text.bytes().zip(self.given.bytes());
        let same = pairs.take_while(|(left, right)| left == right).count();
        &text[text.floor_char_boundary(same)..]
    }

    /// Forgets the tokens that nothing depends on: all before the last ones that have a text by themselves.
    fn forget(&mut self) {
        let text = self.tokenizer.decode(&self.tokens[self.last..]);
        if !text.is_empty() {
            self.tokens.drain(..self.last);
            self.last = self.tokens.len();
            self.given = text;
        }
    }
}

/// Returns a text without an end that may be part of a character.
fn certain(text: &str) -> &str {
    let mut certain = text;
    for _ in 0..MAX_BROKEN {
        certain = certain.strip_suffix('\u{FFFD}').unwrap_or(certain);
    }
    certain
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;
    use crate::tokenizer::sentencepiece::with_bytes;
    use crate::tokenizer::{BertWordPieceTokenizer, ByteTokenizer, HuggingFaceTokenizer};

    fn stream_of(tokenizer: &dyn Tokenizer, tokens: &[Token]) -> Vec<String> {
        let mut decoder = StreamingDecoder::new(tokenizer);
        let mut parts: Vec<String> = tokens.iter().filter_map(|&token| decoder.feed(token)).collect();
        parts.extend(decoder.finish());
        parts
    }

    fn stream(tokens: &[Token]) -> Vec<String> {
        stream_of(&ByteTokenizer, tokens)
    }

    fn tokens(text: &str) -> Vec<Token> {
        text.bytes().map(Token::from).collect()
    }

    /// A vocabulary of pairs, whose tokens have these texts.
    fn pairs(texts: &[String], decoder: &Value) -> HuggingFaceTokenizer {
        let vocabulary: serde_json::Map<_, _> = texts.iter().cloned().zip((0..).map(Value::from)).collect();
        let special = json!({"id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
            "normalized": false, "special": true});
        let json = json!({"version": "1.0", "added_tokens": [special], "decoder": decoder,
            "model": {"type": "BPE", "vocab": vocabulary, "merges": []}});
        HuggingFaceTokenizer::from_json(json.to_string().as_bytes(), &[]).unwrap()
    }

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|&text| text.to_owned()).collect()
    }

    /// A vocabulary like Llama 2's: a space before words, and all bytes.
    fn byte_fallback() -> HuggingFaceTokenizer {
        let mut all = texts(&["<s>", "▁s", "▁", "▁▁", "use", "▁with", "\u{FFFD}", "漢"]);
        all.extend((0..256).map(|byte| format!("<0x{byte:02X}>")));
        let decoder = json!({"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ]});
        pairs(&all, &decoder)
    }

    fn vocabularies() -> Vec<Box<dyn Tokenizer>> {
        let words = texts(&["<s>", "▁a", "▁", "b", "\u{FFFD}", "▁▁", "c▁"]);
        let metaspace = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true});
        // Bytes of characters of one to four bytes, and of none: Ġ is a space, æ¼¢ is 漢, ð Ł ĺ Ģ are 😀.
        let bytes = texts(&[
            "<s>", "a", "Ġ", "Ġb", "æ", "¼", "¢", "æ¼", "¼¢a", "ð", "Ł", "ĺ", "Ģ", "ÿ", "ï¿½", "漢",
        ]);
        let byte_level =
            json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true});
        let suffix = json!({"type": "BPEDecoder", "suffix": "</w>"});
        let pieces = b"[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nplay\n##ing\n.\n!\ndo\n'\ns\n\xef\xbf\xbd\n";
        vec![
            Box::new(byte_fallback()),
            Box::new(pairs(&words, &metaspace)),
            Box::new(pairs(&bytes, &byte_level)),
            Box::new(pairs(&texts(&["<s>", "a</w>", "b", "c</w>"]), &suffix)),
            Box::new(pairs(&texts(&["<s>", "a", "b"]), &Value::Null)),
            Box::new(BertWordPieceTokenizer::cased(pieces).unwrap()),
            Box::new(with_bytes()),
        ]
    }

    #[test]
    fn a_character_arrives_whole() {
        assert_eq!(stream(&tokens("aé漢😀")), ["a", "é", "漢", "😀"]);
        // The end of a document between the bytes of a character.
        assert_eq!(stream(&[0xC3, ByteTokenizer::END_OF_DOCUMENT, 0xA9]), ["é"]);
    }

    #[test]
    fn a_run_of_byte_tokens_is_text_as_a_whole_or_not_at_all() {
        let tokenizer = byte_fallback();
        let run = |text: &str| tokenizer.token(text).unwrap();
        let given = ["▁s", "<0x62>", "<0xBF>", "▁", "use", "<0x1E>", "▁with", "<0x62>"].map(run);
        let parts = stream_of(&tokenizer, &given);
        assert_eq!(parts, ["s", "\u{FFFD}\u{FFFD} ", "use", "\u{1E} with", "b"]);
        assert_eq!(parts.concat(), tokenizer.decode(&given));
        let mut decoder = StreamingDecoder::new(&tokenizer);
        assert_eq!(decoder.feed(run("<0x62>")), None);
        assert_eq!(decoder.waiting(), "b");
        // A special token and one that is none do not end the run.
        assert_eq!((decoder.feed(0), decoder.feed(9999)), (None, None));
        decoder.feed(run("<0xE6>"));
        assert_eq!(decoder.waiting(), "");
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
        assert!(stream(&[0xFF, 0xF0, 0x9F, 0x98, 0x80]).contains(&"\u{FFFD}😀".to_owned()));
    }

    proptest! {
        #[test]
        fn parts_are_the_text(tokens in prop::collection::vec(prop_oneof![
            3 => 0..16_u32,
            2 => 0..264_u32,
            1 => (8 + 0xE6)..(8 + 0xE8_u32),
            2 => (8 + 0x80)..(8 + 0xBF_u32),
            1 => Just(9999_u32),
        ], 0..40)) {
            static ALL: LazyLock<Vec<Box<dyn Tokenizer>>> = LazyLock::new(vocabularies);
            for tokenizer in ALL.iter() {
                prop_assert_eq!(stream_of(&**tokenizer, &tokens).concat(), tokenizer.decode(&tokens));
            }
        }

        #[test]
        fn parts_of_bytes_are_the_text(
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
