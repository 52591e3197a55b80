//! [`HuggingFaceFormat`]: how a family is stored in Hugging Face's files.

use std::ops::Range;

use burn_megatron::training::MODEL as MODEL_ARRAYS;
use serde_json::Value;

use super::linear_part::LinearPart;
use super::{Fields, HuggingFaceError, KeyTable};
use crate::model_config::ModelConfig;

/// A model that Hugging Face's files can hold; implemented by its configuration.
pub trait HuggingFaceFormat: ModelConfig + Sized {
    /// The values of `model_type` in `config.json`.
    const MODEL_TYPES: &'static [&'static str];
    /// The name of the token embedding's weight.
    const EMBEDDING: &'static str;
    /// The name of the weight of a head that is not tied.
    const HEAD: &'static str;
    /// Ends that names of tensors have in older files, and what these are now.
    const OLDER_ENDS: &'static [(&'static str, &'static str)] = &[];
    /// Second names of tensors: see [`SecondName`].
    const SECOND_NAMES: &'static [SecondName] = &[];
    /// The settings of `config.json` that transformers knows of these types, in addition to those of all models.
    const KEYS: &'static [KeyTable];

    /// Takes the settings of a `config.json` of one of these types.
    ///
    /// # Errors
    /// One asks for what the family does not have: names the setting, its value, and what it may be.
    fn read_fields(model_type: &str, fields: &mut Fields) -> Result<Self, HuggingFaceError>;

    /// Returns `config.json` of a model whose tensors are stored as `dtype`, in PyTorch's words.
    fn written_fields(&self, dtype: &str) -> Value;

    /// Returns the model's parameters, in Hugging Face's order.
    fn parameters(&self) -> impl Iterator<Item = Parameter>;

    /// Returns the [key](StoredTensor::key) of a tensor of a file: the parameter's name, if it is a whole one, and its
    /// own name without prefix, if it is a part of one. `None` if it is none, as the masks that older versions of
    /// transformers stored.
    fn imported_name(tensor: &str) -> Option<&str>;

    /// Returns the head of a model whose embeddings are not tied.
    fn head(&self) -> Parameter {
        Parameter::same(Self::HEAD, [self.vocab_size(), self.d_model()])
    }

    /// Gives the head weights of its own.
    fn untie(&mut self);

    /// Takes what the settings do not say from the tensors that are there; `has` takes their keys.
    fn see_tensors(&mut self, _has: &dyn Fn(&str) -> bool) {}
}

/// A second name that a tensor may have in files, for models that have the same numbers twice.
#[derive(Clone, Copy, Debug)]
pub struct SecondName {
    /// The second name, without prefix.
    pub name: &'static str,
    /// The key of the tensor.
    pub key: &'static str,
    /// True if the model computes with this one where both are there, and false if they must be the same.
    pub is_preferred: bool,
}

/// A parameter of a model, here and in Hugging Face's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// The name in the model.
    pub name: String,
    /// The logical shape in a checkpoint. If matrices are stored side by side, the dimension before the last counts
    /// them, even if it is one: `[d_model, 3, d_model]`, `[d_model, 1, d_hidden]`.
    pub logical_shape: Vec<usize>,
    /// The tensors that it is in files. Those of one key are the same, and written under each name.
    pub tensors: Vec<StoredTensor>,
    /// True if it is the weight of a linear layer.
    pub is_linear_weight: bool,
}

/// A tensor of a file, which is a parameter or a part of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredTensor {
    pub file_name: String,
    /// The key that [`HuggingFaceFormat::imported_name`] returns for it.
    pub key: String,
    /// The shape in files.
    pub shape: Vec<usize>,
    /// Which elements of the parameter it has; `None` if it has all in the same order.
    pub(super) part: Option<LinearPart>,
}

impl StoredTensor {
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }
}

impl Parameter {
    /// Returns a parameter that has the same name and shape in files.
    pub fn same(name: impl Into<String>, shape: impl Into<Vec<usize>>) -> Self {
        let (name, logical_shape) = (name.into(), shape.into());
        let tensor = StoredTensor {
            file_name: name.clone(),
            key: name.clone(),
            shape: logical_shape.clone(),
            part: None,
        };
        Self {
            name,
            logical_shape,
            tensors: vec![tensor],
            is_linear_weight: false,
        }
    }

    /// Returns the weight and the bias of a layer norm of tokens of `d_model`, which files have as they are.
    pub fn layer_norm(name: &str, d_model: usize) -> [Self; 2] {
        ["weight", "bias"].map(|of| Self::same(format!("{name}.{of}"), [d_model]))
    }

    /// Returns the weight and the bias of a linear layer that files have whole: the weight, `[d_input, ...]` here, as
    /// PyTorch stores it, `[d_output, d_input]`, the bias `[d_output]`.
    pub fn linear(name: &str, logical_shape: &[usize]) -> [Self; 2] {
        let bias = Self::same(format!("{name}.bias"), &logical_shape[1..]);
        let bias = if logical_shape.len() > 2 { bias.fused() } else { bias };
        [Self::whole_weight(format!("{name}.weight"), logical_shape), bias]
    }

    /// Returns the weight of such a layer.
    pub fn whole_weight(name: impl Into<String>, logical_shape: &[usize]) -> Self {
        let (name, d_output) = (name.into(), logical_shape[1..].iter().product());
        let whole = [(name.clone(), 0, 0..d_output)];
        Self::linear_weight(name, logical_shape, &[d_output], whole)
    }

    /// Returns the weight and the bias of a linear layer that files have as they are here: the weight `[d_input, ...]`.
    pub fn input_first(name: &str, logical_shape: &[usize]) -> [Self; 2] {
        let part = |of: &str, shape: &[usize]| {
            let parameter = Self::same(format!("{name}.{of}"), shape);
            if logical_shape.len() > 2 {
                parameter.fused()
            } else {
                parameter
            }
        };
        let weight = Self {
            is_linear_weight: true,
            ..part("weight", logical_shape)
        };
        [weight, part("bias", &logical_shape[1..])]
    }

    /// Returns this parameter as one whose fused matrices are the columns of one matrix in files.
    pub fn fused(mut self) -> Self {
        if let ([tensor], [rows @ .., fused, width]) = (self.tensors.as_mut_slice(), self.logical_shape.as_slice()) {
            tensor.shape = rows.iter().copied().chain([fused * width]).collect();
        }
        self
    }

    /// Returns the weight of a linear layer, `logical_shape` of `[d_input, ...]` here, of which files have parts as
    /// PyTorch stores them, `[features, d_input]`. The columns, in their order here, count through `features`; of each
    /// part are given its name, and the range that it has of one of these dimensions.
    pub fn linear_weight(
        name: impl Into<String>,
        logical_shape: impl Into<Vec<usize>>,
        features: &[usize],
        parts: impl IntoIterator<Item = (String, usize, Range<usize>)>,
    ) -> Self {
        let logical_shape = logical_shape.into();
        let d_input = logical_shape[0];
        Self {
            is_linear_weight: true,
            ..Self::of_parts(name.into(), logical_shape, (Some(d_input), features), parts)
        }
    }

    /// Returns a weight of matrices side by side, `[d_input, N, width]` here, which files have by names of their own.
    pub fn weights_side_by_side<const N: usize>(
        name: impl Into<String>,
        files: [String; N],
        [d_input, width]: [usize; 2],
    ) -> Self {
        let files = files.into_iter().enumerate();
        let parts = files.map(|(number, file)| (file, 0, number..number + 1));
        Self::linear_weight(name, [d_input, N, width], &[N, width], parts)
    }

    /// Returns the bias of such a layer, `[features]` in files.
    pub fn linear_bias(
        name: impl Into<String>,
        logical_shape: impl Into<Vec<usize>>,
        features: &[usize],
        parts: impl IntoIterator<Item = (String, usize, Range<usize>)>,
    ) -> Self {
        Self::of_parts(name.into(), logical_shape.into(), (None, features), parts)
    }

    fn of_parts(
        name: String,
        logical_shape: Vec<usize>,
        (d_input, features): (Option<usize>, &[usize]),
        parts: impl IntoIterator<Item = (String, usize, Range<usize>)>,
    ) -> Self {
        let tensors = parts.into_iter().map(|(file_name, dimension, range)| {
            let part = LinearPart::new(d_input, features, dimension, range);
            StoredTensor {
                key: file_name.clone(),
                file_name,
                shape: part.file_shape(),
                part: Some(part),
            }
        });
        Self {
            tensors: tensors.collect(),
            name,
            logical_shape,
            is_linear_weight: false,
        }
    }

    /// Returns this parameter, which files have whole, as one that is written under a second name, too.
    pub fn written_twice(mut self, file_name: impl Into<String>) -> Self {
        let second = StoredTensor {
            file_name: file_name.into(),
            ..self.tensors[0].clone()
        };
        self.tensors.push(second);
        self
    }

    /// Returns this parameter under another name here; in files it has the one that it had.
    pub fn renamed(self, name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            ..self
        }
    }

    /// The name of its array in a checkpoint.
    pub fn array_name(&self) -> String {
        format!("{MODEL_ARRAYS}{}", self.name)
    }

    /// Returns this parameter with a prefix before its tensors' names in files, which their keys do not have.
    pub fn with_file_prefix(mut self, prefix: &str) -> Self {
        for tensor in &mut self.tensors {
            tensor.file_name = format!("{prefix}{}", tensor.file_name);
        }
        self
    }

    pub fn num_elements(&self) -> usize {
        self.logical_shape.iter().product()
    }
}
