//! Byte-level tokens.

/// Turns text into its UTF-8 bytes: token `t` under 256 is the byte `t`.
///
/// Needs no vocabulary file, and no text is out of vocabulary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByteTokenizer;

impl ByteTokenizer {
    /// Token that follows the last byte of every document.
    pub const END_OF_DOCUMENT: u16 = 256;

    /// Number of tokens: 256 bytes and the end of a document.
    pub const VOCABULARY_SIZE: usize = 257;

    /// Appends the tokens of `text`, without an end-of-document token, to `tokens`.
    pub fn encode(&self, text: &str, tokens: &mut Vec<u16>) {
        tokens.extend(text.bytes().map(u16::from));
    }

    /// Returns the text of `tokens`, without the end-of-document tokens.
    ///
    /// Tokens of a model need not be UTF-8: what is not becomes U+FFFD.
    ///
    /// # Panics
    /// If a token is outside the vocabulary.
    pub fn decode(&self, tokens: &[u16]) -> String {
        let bytes: Vec<u8> = tokens
            .iter()
            .filter(|&&token| token != Self::END_OF_DOCUMENT)
            .map(|&token| {
                assert!(
                    token < Self::END_OF_DOCUMENT,
                    "token {token} is outside the vocabulary of {} tokens",
                    Self::VOCABULARY_SIZE
                );
                token as u8
            })
            .collect();
        String::from_utf8_lossy(&bytes).into_owned()
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

    #[test]
    #[should_panic(expected = "token 257 is outside the vocabulary of 257 tokens")]
    fn decoding_refuses_tokens_outside_the_vocabulary() {
        ByteTokenizer.decode(&[257]);
    }
}
