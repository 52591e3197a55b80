//! `ElementType`: how a token is stored.

use std::fmt;

use crate::tokenizer::Token;

/// Type of the elements of a `.bin` file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ElementType {
    /// 8 bits, unsigned: code 1.
    U8,
    /// 8 bits, signed: code 2.
    I8,
    /// 16 bits, signed: code 3.
    I16,
    /// 32 bits, signed: code 4. Megatron-LM's for vocabularies from 65500 tokens on.
    I32,
    /// 64 bits, signed: code 5.
    I64,
    /// Double precision: code 6.
    F64,
    /// Single precision: code 7.
    F32,
    /// 16 bits, unsigned: code 8. Megatron-LM's for vocabularies of fewer than 65500 tokens.
    U16,
}

impl ElementType {
    /// All types, by their codes from 1 on.
    pub const ALL: [Self; 8] = [
        Self::U8,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::F64,
        Self::F32,
        Self::U16,
    ];

    /// Returns the type in which Megatron-LM stores the tokens of a vocabulary.
    pub fn for_vocabulary(vocabulary_size: usize) -> Self {
        if vocabulary_size < 65500 { Self::U16 } else { Self::I32 }
    }

    /// Returns the type of a code in an `.idx` file.
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|element_type| element_type.code() == code)
    }

    /// Returns the code in an `.idx` file.
    pub fn code(self) -> u8 {
        match self {
            Self::U8 => 1,
            Self::I8 => 2,
            Self::I16 => 3,
            Self::I32 => 4,
            Self::I64 => 5,
            Self::F64 => 6,
            Self::F32 => 7,
            Self::U16 => 8,
        }
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

impl fmt::Display for ElementType {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::I16 => "i16",
            Self::I32 => "i32",
            Self::I64 => "i64",
            Self::F64 => "f64",
            Self::F32 => "f32",
            Self::U16 => "u16",
        })
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
