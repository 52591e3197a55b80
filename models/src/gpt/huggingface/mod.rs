//! GPT-2 in Hugging Face's files: [`export`] writes a checkpoint as them, [`HuggingFaceModel`] makes a checkpoint of
//! them.
//!
//! A model is a folder with `config.json` and either `model.safetensors` or several such files and
//! `model.safetensors.index.json`. Names are those of this crate's [`Gpt`](super::Gpt), with `transformer.` before
//! those of all but the head; values lie in the same order, so that an element keeps its bits.

mod config;
mod error;
mod export;
mod export_type;
mod files;
mod import;
mod names;
mod place;
mod shards;
#[cfg(test)]
mod tests;

pub use error::HuggingFaceError;
pub use export::{ExportConfig, export};
pub use export_type::ExportType;
pub use import::HuggingFaceModel;

/// The file of a model's sizes.
const CONFIG_NAME: &str = "config.json";
/// The file of all tensors.
const MODEL_NAME: &str = "model.safetensors";
/// The file that says which of several files a tensor is in.
const INDEX_NAME: &str = "model.safetensors.index.json";
