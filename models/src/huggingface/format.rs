//! [`HuggingFaceFormat`]: how a family is stored in Hugging Face's files.

use serde_json::Value;

use super::{Fields, HuggingFaceError};
use crate::model_config::ModelConfig;

/// A model that Hugging Face's files can hold; implemented by its configuration.
pub trait HuggingFaceFormat: ModelConfig + Sized {
    /// The `model_type` of `config.json`.
    const MODEL_TYPE: &'static str;

    /// Takes the settings of a `config.json` of this type.
    ///
    /// # Errors
    /// One asks for what the family does not have: names the setting, its value, and what it may be.
    fn read_fields(fields: &mut Fields) -> Result<Self, HuggingFaceError>;

    /// Returns `config.json` of a model whose tensors are stored as `dtype`, in PyTorch's words.
    fn written_fields(&self, dtype: &str) -> Value;

    /// Returns the model's parameters, in Hugging Face's order.
    fn parameters(&self) -> impl Iterator<Item = Parameter>;

    /// Returns the name of the parameter that a tensor of a file holds; `None` if it is none, as the masks that older
    /// versions of transformers stored.
    fn imported_name(tensor: &str) -> Option<&str>;

    /// Returns the head, if it is tied.
    fn tied_head(&self) -> Option<TiedHead>;

    /// Gives the head weights of its own.
    fn untie(&mut self);
}

/// A head that is the token embedding. Files may have it twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TiedHead {
    /// The head, as if it had weights of its own.
    pub head: Parameter,
    /// The name of the token embedding.
    pub embedding: &'static str,
}

/// A parameter of a model, here and in Hugging Face's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Its name in the model.
    pub name: String,
    /// Its name in files.
    pub file_name: String,
    /// Its logical shape in a checkpoint. If matrices are stored side by side, the dimension before the last counts
    /// them, even if it is one: `[d_model, 3, d_model]`, `[d_model, 1, d_hidden]`.
    pub logical_shape: Vec<usize>,
    is_fused: bool,
}

impl Parameter {
    /// Returns a parameter that has its logical shape in files too.
    pub fn new(name: impl Into<String>, file_name: impl Into<String>, logical_shape: impl Into<Vec<usize>>) -> Self {
        Self {
            name: name.into(),
            file_name: file_name.into(),
            logical_shape: logical_shape.into(),
            is_fused: false,
        }
    }

    /// Returns this parameter as one whose fused matrices are the columns of one matrix in files.
    pub fn fused(self) -> Self {
        Self { is_fused: true, ..self }
    }

    /// Its shape in files. The elements are in the same order.
    pub fn file_shape(&self) -> Vec<usize> {
        match (self.is_fused, self.logical_shape.as_slice()) {
            (true, [rows @ .., fused, width]) => rows.iter().copied().chain([fused * width]).collect(),
            _ => self.logical_shape.clone(),
        }
    }

    /// The number of elements.
    pub fn num_elements(&self) -> usize {
        self.logical_shape.iter().product()
    }
}
