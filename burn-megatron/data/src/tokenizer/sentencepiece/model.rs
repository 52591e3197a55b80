//! The protocol buffer that a `tokenizer.model` is.

use prost::Message;

use crate::tokenizer::TokenizerError;

/// What a `tokenizer.model` holds, as far as reading text needs it.
#[derive(Message)]
pub(super) struct ModelProto {
    /// The vocabulary: a piece's number is its place.
    #[prost(message, repeated, tag = "1")]
    pub(super) pieces: Vec<Piece>,
    /// How it was trained.
    #[prost(message, optional, tag = "2")]
    pub(super) trainer_spec: Option<TrainerSpec>,
    /// How text is normalized.
    #[prost(message, optional, tag = "3")]
    pub(super) normalizer_spec: Option<NormalizerSpec>,
}

/// An entry of the vocabulary.
#[derive(Message)]
pub(super) struct Piece {
    /// Its text; a space is U+2581.
    #[prost(string, optional, tag = "1")]
    pub(super) piece: Option<String>,
    /// The logarithm of its probability, or minus its place among the merges.
    #[prost(float, optional, tag = "2")]
    pub(super) score: Option<f32>,
    /// What it is for.
    #[prost(enumeration = "PieceType", optional, tag = "3", default = "Normal")]
    pub(super) r#type: Option<i32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum PieceType {
    /// A part of a text.
    Normal = 1,
    /// What has no piece.
    Unknown = 2,
    /// A mark that no text contains, as the end of a document.
    Control = 3,
    /// A part of a text that is always a piece of its own.
    UserDefined = 4,
    /// Not to be used.
    Unused = 5,
    /// A byte, for characters that have no piece.
    Byte = 6,
}

/// How a model was trained.
#[derive(Message)]
pub(super) struct TrainerSpec {
    /// The kind of model.
    #[prost(enumeration = "ModelType", optional, tag = "3", default = "Unigram")]
    pub(super) model_type: Option<i32>,
    /// Whether a space belongs to the word before it.
    #[prost(bool, optional, tag = "24")]
    pub(super) treat_whitespace_as_suffix: Option<bool>,
    /// The piece that ends a text; -1 if there is none.
    #[prost(int32, optional, tag = "42", default = "2")]
    pub(super) eos_id: Option<i32>,
    /// What is written for an unknown piece.
    #[prost(string, optional, tag = "44", default = " \u{2047} ")]
    pub(super) unk_surface: Option<String>,
}

/// The kind of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, prost::Enumeration)]
#[repr(i32)]
pub(super) enum ModelType {
    /// The most probable pieces.
    Unigram = 1,
    /// Merges of pairs.
    Bpe = 2,
    /// Whole words.
    Word = 3,
    /// Characters.
    Char = 4,
}

/// How text is normalized.
#[derive(Clone, Message)]
pub(super) struct NormalizerSpec {
    /// Replacements of characters: a double-array trie and the replacements.
    #[prost(bytes = "vec", optional, tag = "2")]
    pub(super) precompiled_charsmap: Option<Vec<u8>>,
    /// Whether a space is put before the text.
    #[prost(bool, optional, tag = "3", default = "true")]
    pub(super) add_dummy_prefix: Option<bool>,
    /// Whether spaces at the start, at the end and after others are left out.
    #[prost(bool, optional, tag = "4", default = "true")]
    pub(super) remove_extra_whitespaces: Option<bool>,
    /// Whether a space is written as U+2581.
    #[prost(bool, optional, tag = "5", default = "true")]
    pub(super) escape_whitespaces: Option<bool>,
}

/// Reads a `tokenizer.model`.
pub(super) fn parse(bytes: &[u8]) -> Result<ModelProto, TokenizerError> {
    ModelProto::decode(bytes)
        .map_err(|error| TokenizerError::invalid("tokenizer.model", format!("not a SentencePiece model: {error}")))
}
