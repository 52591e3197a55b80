//! Bytes as tokens.

use super::{GPT2BPETokenizer, Token, Tokenizer};

/// Turns text into its UTF-8 bytes: token `t` under 256 is the byte `t`.
///
/// Needs no vocabulary file, and no text is out of vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByteTokenizer;

impl ByteTokenizer {
    /// Token that follows the last byte of every document.
    pub const END_OF_DOCUMENT: Token = 256;

    /// Number of tokens: 256 bytes and the end of a document.
    pub const VOCABULARY_SIZE: usize = 257;
}

impl Tokenizer for ByteTokenizer {
    fn vocabulary_size(&self) -> usize {
        Self::VOCABULARY_SIZE
    }

    fn end_of_document(&self) -> Option<Token> {
        Some(Self::END_OF_DOCUMENT)
    }

    fn special_tokens(&self) -> &[Token] {
        &[Self::END_OF_DOCUMENT]
    }

    fn encode(&self, text: &str, tokens: &mut Vec<Token>) {
        tokens.extend(text.bytes().map(Token::from));
    }

    fn decode(&self, tokens: &[Token]) -> String {
        let bytes: Vec<u8> = tokens.iter().filter_map(|&token| u8::try_from(token).ok()).collect();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn token_bytes(&self, token: Token) -> Vec<u8> {
        match u8::try_from(token) {
            Ok(byte) => vec![byte],
            Err(_) if token == Self::END_OF_DOCUMENT => GPT2BPETokenizer::END_OF_DOCUMENT.into(),
            Err(_) => vec![],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_undoes_encoding() {
        let mut tokens = vec![];
        let text = "fn main() { /* naïve — 漢字 */ }\n\0";
        ByteTokenizer.encode(text, &mut tokens);
        assert_eq!(tokens.len(), text.len());
        assert_eq!(ByteTokenizer.decode(&tokens), text);
    }

    #[test]
    fn decoding_drops_document_ends_and_replaces_broken_utf8() {
        let end = ByteTokenizer::END_OF_DOCUMENT;
        assert_eq!(ByteTokenizer.decode(&[97, end, 98, 0xC3]), "ab\u{FFFD}");
    }
}
