//! Text to tokens and back.
//!
//! [`TokenizerConfig`] says which tokenizer and where its files are, [`TokenizerFiles`] holds the contents of the
//! files, so that a checkpoint can carry them, and [`TokenizerFiles::tokenizer`] builds the [`Tokenizer`].

mod byte;
mod byte_level;
mod config;
mod error;
mod files;
mod gpt2;
mod hugging_face;
mod kind;
mod masked_byte;
mod null;
mod roles;
mod sentencepiece;
mod settings;
mod stream;
pub mod train;
mod wordpiece;

#[cfg(test)]
mod tests;

pub use byte::ByteTokenizer;
pub use config::TokenizerConfig;
pub use error::{TokenizerDifference, TokenizerError};
pub use files::TokenizerFiles;
pub use gpt2::GPT2BPETokenizer;
pub use hugging_face::HuggingFaceTokenizer;
pub use kind::TokenizerKind;
pub use masked_byte::MaskedByteTokenizer;
pub use null::NullTokenizer;
pub use roles::TokenRoles;
pub(crate) use roles::named_text;
pub use sentencepiece::SentencePieceTokenizer;
pub use stream::StreamingDecoder;
pub use wordpiece::BertWordPieceTokenizer;

/// A token's number: below [`Tokenizer::vocabulary_size`].
pub type Token = u32;

/// Part of a text that a token is, to a decoder that takes tokens one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenPiece {
    /// None: it is dropped.
    Nothing,
    /// A byte of a run that is decoded as a whole: if it is no UTF-8, none of its bytes is.
    Byte,
    /// A text, or bytes of one, whatever follows.
    Text,
}

/// Turns text into tokens, and tokens into text.
pub trait Tokenizer: Send + Sync {
    /// Returns the number of tokens, those without a text (end of a document, padding) included.
    fn vocabulary_size(&self) -> usize;

    /// Returns the token that ends a document, if the vocabulary has one.
    fn end_of_document(&self) -> Option<Token>;

    /// Returns the tokens at which a generated text ends: those that the files of a model name, else the end of a
    /// document.
    fn ends_of_text(&self) -> Vec<Token> {
        self.end_of_document().into_iter().collect()
    }

    /// Returns the tokens that [`Self::decode`] drops, in increasing order.
    fn special_tokens(&self) -> &[Token] {
        &[]
    }

    /// Returns the tokens that have a role in samples, as far as the vocabulary has them.
    fn token_roles(&self) -> TokenRoles {
        TokenRoles::default()
    }

    /// Returns whether a token is a part of the same word as `previous`, the token before it: for word pieces one that
    /// begins with `##`. Every token is a word where a vocabulary does not say.
    fn continues_word(&self, previous: Option<Token>, token: Token) -> bool {
        let _ = (previous, token);
        false
    }

    /// Appends the tokens of a document. No token is added to those of the text: neither a begin nor an end.
    ///
    /// A text that is no text of this tokenizer (words for [`NullTokenizer`]) loses what has no token;
    /// [`Self::try_encode`] refuses it.
    fn encode(&self, text: &str, tokens: &mut Vec<Token>);

    /// Appends the tokens of a document, as [`Self::encode`] does.
    ///
    /// # Errors
    /// If a part of the text has no token. `tokens` are then what they were.
    fn try_encode(&self, text: &str, tokens: &mut Vec<Token>) -> Result<(), TokenizerError> {
        self.encode(text, tokens);
        Ok(())
    }

    /// Appends the tokens of a prompt: those of the text, and what the tokenizer's post-processor adds (begin of a
    /// sequence), if the text does not begin with it already.
    fn encode_prompt(&self, text: &str, tokens: &mut Vec<Token>) {
        self.encode(text, tokens);
    }

    /// Returns the text of tokens without special tokens. Bytes that are not UTF-8 become U+FFFD.
    fn decode(&self, tokens: &[Token]) -> String;

    /// Returns the bytes that a token adds to a text before it, which may be a part of a character; those of its name
    /// if it is a special token.
    fn token_bytes(&self, token: Token) -> Vec<u8> {
        self.decode_with_special(&[token]).into_bytes()
    }

    /// Returns the text of tokens, of which special ones are their names.
    fn decode_with_special(&self, tokens: &[Token]) -> String {
        self.decode(tokens)
    }

    /// Returns which part of a text a token is.
    fn piece(&self, token: Token) -> TokenPiece {
        let is_special = self.special_tokens().binary_search(&token).is_ok();
        if is_special || token as usize >= self.vocabulary_size() {
            TokenPiece::Nothing
        } else {
            TokenPiece::Text
        }
    }

    /// Returns the text of a token after others: a space that it begins with stays. A special token's is its name.
    fn token_text(&self, token: Token) -> String {
        String::from_utf8_lossy(&self.token_bytes(token)).into_owned()
    }

    /// Checks that a model has an embedding for every token.
    ///
    /// # Errors
    /// If the model's vocabulary (tokens, with or without padding) is smaller than the tokenizer's.
    fn check_vocabulary(&self, model_vocabulary_size: usize) -> Result<(), TokenizerError> {
        let tokens = self.vocabulary_size();
        if tokens <= model_vocabulary_size {
            return Ok(());
        }
        Err(TokenizerError::VocabularyTooLarge {
            tokens,
            model_vocabulary_size,
        })
    }
}
