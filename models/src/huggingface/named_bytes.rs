//! [`NamedBytes`]: what goes with a model and is no parameter of it, such as its tokenizer's files.

use burn::tensor::{Bytes, DType};
use burn_megatron::checkpoint::WholeArray;

/// Bytes with a name: a file of a folder, or an array of a checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedBytes {
    pub name: String,
    pub content: Vec<u8>,
}

impl NamedBytes {
    /// Returns them as an array of a checkpoint, and its elements.
    pub fn as_array(&self) -> (WholeArray, Bytes) {
        let array = WholeArray {
            name: self.name.clone(),
            dtype: DType::U8,
            shape: vec![self.content.len()],
        };
        (array, Bytes::from_bytes_vec(self.content.clone()))
    }
}
