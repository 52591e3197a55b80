//! Bytes as tokens, and the tokens that BERT's and T5's samples need.

use super::{ByteTokenizer, Token, TokenRoles, Tokenizer};

/// Turns text into its UTF-8 bytes, as [`ByteTokenizer`] does, with tokens for masked samples after them: 257 to 260
/// are `[CLS]`, `[SEP]`, `[MASK]` and `[PAD]`, and 261 to 360 are the sentinels of T5.
///
/// A word is a run of bytes without white space and the white space byte before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MaskedByteTokenizer;

impl MaskedByteTokenizer {
    /// Begins a sample.
    pub const CLS: Token = 257;
    /// Ends a segment.
    pub const SEP: Token = 258;
    /// Replaces what is to be predicted.
    pub const MASK: Token = 259;
    /// Fills a sample up.
    pub const PAD: Token = 260;
    /// The first of the sentinels.
    pub const FIRST_SENTINEL: Token = 261;
    /// How many sentinels there are, as in T5's vocabulary.
    pub const NUM_SENTINELS: usize = 100;
    /// Number of tokens: 256 bytes, the end of a document, four of BERT's and the sentinels.
    pub const VOCABULARY_SIZE: usize = Self::FIRST_SENTINEL as usize + Self::NUM_SENTINELS;

    /// All tokens that are no bytes.
    const SPECIAL: [Token; Self::VOCABULARY_SIZE - 256] = {
        let mut special = [0; Self::VOCABULARY_SIZE - 256];
        let mut place = 0;
        while place < special.len() {
            special[place] = 256 + place as Token;
            place += 1;
        }
        special
    };
}

impl Tokenizer for MaskedByteTokenizer {
    fn vocabulary_size(&self) -> usize {
        Self::VOCABULARY_SIZE
    }

    fn end_of_document(&self) -> Option<Token> {
        Some(ByteTokenizer::END_OF_DOCUMENT)
    }

    fn special_tokens(&self) -> &[Token] {
        &Self::SPECIAL
    }

    fn token_roles(&self) -> TokenRoles {
        TokenRoles {
            cls: Some(Self::CLS),
            sep: Some(Self::SEP),
            mask: Some(Self::MASK),
            pad: Some(Self::PAD),
            bos: None,
            eos: Some(ByteTokenizer::END_OF_DOCUMENT),
            sentinels: (Self::FIRST_SENTINEL..Self::VOCABULARY_SIZE as Token).collect(),
        }
    }

    fn continues_word(&self, previous: Option<Token>, token: Token) -> bool {
        let is_byte = |token: Token| token < 256;
        let is_white_space = |token: Token| u8::try_from(token).is_ok_and(|byte| byte.is_ascii_whitespace());
        previous.is_some_and(is_byte) && is_byte(token) && !is_white_space(token)
    }

    fn encode(&self, text: &str, tokens: &mut Vec<Token>) {
        ByteTokenizer.encode(text, tokens);
    }

    fn decode(&self, tokens: &[Token]) -> String {
        ByteTokenizer.decode(tokens)
    }

    fn token_bytes(&self, token: Token) -> Vec<u8> {
        ByteTokenizer.token_bytes(token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_bytes_and_other_tokens_have_no_text() {
        let mut tokens = vec![MaskedByteTokenizer::CLS];
        MaskedByteTokenizer.encode("aé", &mut tokens);
        tokens.extend([MaskedByteTokenizer::SEP, MaskedByteTokenizer::PAD, 360]);
        assert_eq!(tokens, [257, 97, 0xC3, 0xA9, 258, 260, 360]);
        assert_eq!(MaskedByteTokenizer.decode(&tokens), "aé");
        assert_eq!(MaskedByteTokenizer.special_tokens().len(), 105);
        assert_eq!(MaskedByteTokenizer.token_roles().sentinels.len(), 100);
    }

    #[test]
    fn a_word_has_the_white_space_before_it() {
        let text = b"to be,  or";
        let starts = |place: &usize| {
            let previous = place.checked_sub(1).map(|previous| Token::from(text[previous]));
            !MaskedByteTokenizer.continues_word(previous, Token::from(text[*place]))
        };
        let starts: Vec<usize> = (0..text.len()).filter(starts).collect();
        assert_eq!(starts, [0, 2, 6, 7]);
        assert!(!MaskedByteTokenizer.continues_word(Some(MaskedByteTokenizer::SEP), 97));
    }
}
