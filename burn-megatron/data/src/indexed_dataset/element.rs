//! `ElementType`: how a token is stored.

use strum::{Display, FromRepr, VariantArray};

use crate::tokenizer::Token;

/// Type of the elements of a `.bin` file, by its code in the `.idx` file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Display, FromRepr, VariantArray)]
#[strum(serialize_all = "lowercase")]
#[repr(u8)]
pub enum ElementType {
    /// 8 bits, unsigned.
    U8 = 1,
    /// 8 bits, signed.
    I8,
    /// 16 bits, signed.
    I16,
    /// 32 bits, signed. Megatron-LM's for vocabularies from 65500 tokens on.
    I32,
    /// 64 bits, signed.
    I64,
    /// Double precision.
    F64,
    /// Single precision.
    F32,
    /// 16 bits, unsigned. Megatron-LM's for vocabularies of fewer than 65500 tokens.
    U16,
}

impl ElementType {
    /// All types, by their codes from 1 on.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the type in which Megatron-LM stores the tokens of a vocabulary.
    pub fn for_vocabulary(vocabulary_size: usize) -> Self {
        if vocabulary_size < 65500 { Self::U16 } else { Self::I32 }
    }

    /// Returns the type of a code in an `.idx` file.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::from_repr(code)
    }

    /// Returns the code in an `.idx` file.
    pub fn code(self) -> u8 {
        self as u8
    }

    /// Returns the bytes of an element.
    pub fn size_bytes(self) -> usize {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::I16 | Self::U16 => 2,
            Self::I32 | Self::F32 => 4,
            Self::I64 | Self::F64 => 8,
        }
    }

    /// Returns the greatest token that every token up to it fits with.
    pub fn max_token(self) -> Token {
        match self {
            Self::U8 => u8::MAX.into(),
            Self::I8 => i8::MAX as Token,
            Self::I16 => i16::MAX as Token,
            Self::U16 => u16::MAX.into(),
            Self::I32 => i32::MAX as Token,
            // Whole numbers up to 2^24 are exact.
            Self::F32 => 1 << 24,
            Self::I64 | Self::F64 => Token::MAX,
        }
    }

    /// Appends the elements of tokens to bytes, or returns the first token that does not fit and appends nothing.
    pub fn encode(self, tokens: &[Token], bytes: &mut Vec<u8>) -> Result<(), Token> {
        let max = self.max_token();
        if let Some(&token) = tokens.iter().find(|&&token| token > max) {
            return Err(token);
        }
        let bytes_of = tokens.iter();
        match self {
            Self::U8 | Self::I8 => bytes.extend(bytes_of.map(|&token| token as u8)),
            Self::I16 | Self::U16 => bytes.extend(bytes_of.flat_map(|&token| (token as u16).to_le_bytes())),
            Self::I32 => bytes.extend(bytes_of.flat_map(|&token| token.to_le_bytes())),
            Self::I64 => bytes.extend(bytes_of.flat_map(|&token| u64::from(token).to_le_bytes())),
            Self::F32 => bytes.extend(bytes_of.flat_map(|&token| (token as f32).to_le_bytes())),
            Self::F64 => bytes.extend(bytes_of.flat_map(|&token| f64::from(token).to_le_bytes())),
        }
        Ok(())
    }

    /// Appends the tokens of elements. What is no token (negative, a fraction, beyond 32 bits) becomes [`Token::MAX`],
    /// which no vocabulary has.
    ///
    /// # Panics
    /// If the bytes are not whole elements.
    pub fn decode(self, bytes: &[u8], tokens: &mut Vec<Token>) {
        assert!(
            bytes.len().is_multiple_of(self.size_bytes()),
            "{} bytes are not whole elements of {self}",
            bytes.len()
        );
        match self {
            Self::U8 => tokens.extend(bytes.iter().map(|&byte| Token::from(byte))),
            Self::I8 => tokens.extend(bytes.iter().map(|&byte| from_whole(i64::from(byte as i8)))),
            Self::I16 => tokens.extend(elements(bytes).map(|element| from_whole(i16::from_le_bytes(element).into()))),
            Self::U16 => tokens.extend(elements(bytes).map(|element| Token::from(u16::from_le_bytes(element)))),
            Self::I32 => tokens.extend(elements(bytes).map(|element| from_whole(i32::from_le_bytes(element).into()))),
            Self::I64 => tokens.extend(elements(bytes).map(|element| from_whole(i64::from_le_bytes(element)))),
            Self::F32 => tokens.extend(elements(bytes).map(|element| from_real(f32::from_le_bytes(element).into()))),
            Self::F64 => tokens.extend(elements(bytes).map(|element| from_real(f64::from_le_bytes(element)))),
        }
    }
}

/// Cuts bytes into elements. The arrays of both files are at any address, so they are read byte by byte.
pub(super) fn elements<const SIZE: usize>(bytes: &[u8]) -> impl ExactSizeIterator<Item = [u8; SIZE]> {
    bytes.as_chunks().0.iter().copied()
}

fn from_whole(value: i64) -> Token {
    Token::try_from(value).unwrap_or(Token::MAX)
}

fn from_real(value: f64) -> Token {
    let token = value as Token;
    if f64::from(token) == value { token } else { Token::MAX }
}
