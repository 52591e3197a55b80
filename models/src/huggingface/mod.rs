//! Models in Hugging Face's files: [`export`] writes a checkpoint as such files, [`HuggingFaceModel`] makes a
//! checkpoint from them.
//!
//! A model is a folder with `config.json` and either `model.safetensors` or several such files and
//! `model.safetensors.index.json`. What differs between families is their [`HuggingFaceFormat`].

mod adapters;
#[cfg(test)]
pub(crate) mod checks;
mod config;
mod error;
mod export;
mod export_type;
mod fields;
mod files;
mod format;
mod import;
mod keys;
mod linear_part;
mod named_bytes;
mod place;
mod shards;
#[cfg(test)]
mod tests;

pub use adapters::{AdapterConfig, AdapterFiles, AdapterSite, export_adapters, linear_layers};
pub(crate) use config::read_model_type;
pub use error::HuggingFaceError;
pub use export::{ExportConfig, export, export_with};
pub use export_type::ExportType;
pub use fields::Fields;
pub use format::{HuggingFaceFormat, Parameter, SecondName, StoredTensor};
pub use import::HuggingFaceModel;
#[cfg(test)]
pub(crate) use import::key_of;
pub use keys::{ERF_GELUS, Key, KeyTable, Probe, TANH_GELUS, keys_of};
pub use named_bytes::NamedBytes;

/// The file of a model's sizes.
const CONFIG_NAME: &str = "config.json";
/// The file of all tensors.
const MODEL_NAME: &str = "model.safetensors";
/// The file that says which of several files a tensor is in.
const INDEX_NAME: &str = "model.safetensors.index.json";
