//! [`NamedBytes`]: what goes with a model and is no parameter of it, such as its tokenizer's files.

/// Bytes with a name: a file of a folder, or an array of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedBytes {
    /// The name.
    pub name: String,
    /// The bytes.
    pub content: Vec<u8>,
}
