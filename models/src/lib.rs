//! Models built from burn-megatron's parallel layers.
//!
//! A family is a configuration, stages, and names in Hugging Face's files; one of [`decoder`] is a table, in one file.
//! [`gpt`] is the bundled GPT-2/3, [`llama`] is Llama, Mistral, Qwen2 and Qwen3, [`neox`] is GPT-NeoX and Pythia,
//! [`bloom`] is BLOOM, [`bert`] is BERT, [`t5`] is T5. Programs know families by [`ModelFamily`] and find them in the
//! [`registry`]; [`decoder`] is the one model of all but T5, [`layers`] has what transformers share. There is one model
//! for every layout: at tensor size 1 it is the serial one.

mod adapting;
pub mod architecture;
pub mod bert;
pub mod bloom;
pub mod decoder;
pub mod family;
pub mod generation;
pub mod gpt;
pub mod huggingface;
pub mod layers;
pub mod llama;
pub mod memory;
pub mod model_config;
pub mod neox;
pub mod registry;
pub mod scoring;
pub mod t5;
pub mod vocabulary;

pub use family::{InferenceStage, ModelFamily, ModelSettings};
pub use model_config::{ModelConfig, Objective};
