//! Raw text to data sets: files of text, JSON lines or Parquet become `{prefix}_{key}_document.bin` and `.idx`.
//!
//! One thread reads documents and gathers them in batches, workers turn batches into tokens, and the calling thread
//! writes them in the order in which they were read. So the bytes written do not depend on the number of workers.
//!
//! **Memory.** At most [`IN_FLIGHT_BYTES`] of text are between reader and writer, as text or as tokens, which take 2 or
//! 4 bytes each; in addition each worker has the tokens of one document, 4 bytes each, and the reader a batch of half a
//! MiB. The index waits on the disk. So the figure is the same for any corpus: 28 MB for 1.5 GB of JSON lines by bytes,
//! with 2 workers. Only a document of more than [`IN_FLIGHT_BYTES`] takes more. It is encoded alone, in 1 byte for each
//! of its bytes and up to 8 for each of its tokens, and [`PreprocessConfig::max_document_bytes`] limits it.

mod budget;
mod config;
mod encode;
mod error;
mod json;
mod output;
mod pipeline;
mod sentences;
mod source;
#[cfg(test)]
mod tests;

pub use config::{InputFormat, PreprocessConfig, SplitOn};
pub use error::{BadDocument, PreprocessError};
pub use pipeline::{IN_FLIGHT_BYTES, Observer, PreprocessSummary, Progress, Unobserved, preprocess};
pub use sentences::{SentenceEnds, split_sentences};
