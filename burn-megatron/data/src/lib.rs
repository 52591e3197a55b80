//! From raw text to training samples, without burn.
//!
//! Data flows through one module after another: [`tokenizer`] turns text into tokens, [`indexed_dataset`] stores them,
//! [`preprocess`] does both for files of documents;
//! [`split`] sets documents aside for validation and test, [`gpt_dataset`] cuts them into samples and shuffles these,
//! [`blended`] mixes several data sets, and [`marks`] says where documents end in a sample. [`build`] does all of this
//! for the data of a run; [`index_cache`] keeps the order of samples in files.
//!
//! [`bert_dataset`] and [`t5_dataset`] make samples with masked tokens of documents of sentences; [`masked_dataset`] is
//! what they share. [`chat_dataset`] makes samples of conversations.
#![warn(missing_docs)]

pub mod bert_dataset;
pub mod blended;
mod bounded_lines;
pub mod build;
pub mod chat_dataset;
pub mod data_path;
pub mod gpt_dataset;
pub mod in_memory;
pub mod index_cache;
pub mod indexed_dataset;
pub mod json_lines;
pub mod marks;
pub mod masked_dataset;
pub mod mt19937;
pub mod names;
pub mod preprocess;
#[cfg(feature = "programs")]
pub mod programs;
pub mod samples;
pub mod split;
pub mod t5_dataset;
pub mod tokenizer;
mod weights;

/// Returns bytes as digits, two for each.
fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
