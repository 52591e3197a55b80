//! Samples of each rank: burn's data loaders, and from text files to micro-batches of tokens.
//!
//! For any burn `Dataset`, `shard_loader` (feature `dataset`) is burn's `DataLoader` by rank: each rank loads its share
//! of every global batch, which [`GlobalBatches`] determines.
//!
//! For language models (feature `trainer`), data flows through one type after another; 2 to 4 are of the crate
//! `burn-megatron-data`, which needs no burn:
//!
//! 1. [`Corpus`] reads text files in a fixed order,
//! 2. [`ByteTokenizer`] and [`InMemoryDocuments`] turn them into tokens,
//! 3. [`split_documents`] sets documents aside for validation,
//! 4. [`GptDataset`] cuts a part into samples and shuffles them; [`BlendedDataset`] mixes several, and [`RunData`]
//!    makes those of a run from `.bin` and `.idx` files,
//! 5. [`Sampler`] says which samples are this rank's,
//! 6. [`Loader`] gathers them on a thread of its own, ahead of training.
//!
//! Every rank runs all of it on the same files with the same seed, and nothing is exchanged:
//! [`Corpus::hash`] is what ranks compare to know that they agree.
//!
//! ```
//! # #[cfg(not(feature = "trainer"))]
//! # fn main() {}
//! # #[cfg(feature = "trainer")]
//! # fn main() -> Result<(), burn_megatron::data::DataError> {
//! use burn_megatron::data::*;
//! use std::sync::Arc;
//!
//! # let folder = tempfile::tempdir().expect("a temporary folder");
//! # for i in 0..20 {
//! #     let text = format!("text number {i}");
//! #     std::fs::write(folder.path().join(format!("{i}.txt")), text).expect("writable");
//! # }
//! let corpus = Corpus::load(&CorpusConfig::new(vec![folder.path().to_path_buf()]))?;
//! let documents = Arc::new(corpus.tokenize(&ByteTokenizer));
//! let split = split_documents(documents.len(), &SplitWeights::default())?;
//! let config = GptDatasetConfig::new(16, 40).with_seed(1234);
//! let train = GptDataset::new(&config, documents, split.train)?;
//!
//! let config = SamplerConfig::new(40, 2).with_data_parallel_size(2).with_data_parallel_rank(0);
//! let sampler = Sampler::new(config)?;
//! let batches = Arc::new(TokenBatches::new(Arc::new(train)));
//! for micro_batch in Loader::start(batches, sampler, LoaderConfig::new())? {
//!     let micro_batch = micro_batch?;
//!     assert_eq!(micro_batch.tokens.len(), 2 * 16);
//! }
//! # Ok(())
//! # }
//! ```

#[cfg(feature = "trainer")]
mod batch_source;
#[cfg(feature = "trainer")]
mod chat_batches;
#[cfg(feature = "trainer")]
mod corpus;
mod error;
mod global_batches;
#[cfg(feature = "trainer")]
mod loader;
#[cfg(feature = "trainer")]
mod masked_batches;
#[cfg(feature = "trainer")]
mod micro_batch;
#[cfg(feature = "trainer")]
mod sampler;
#[cfg(feature = "dataset")]
mod shard_loader;

#[cfg(feature = "trainer")]
pub use batch_source::{BatchSource, TokenBatches};
#[cfg(feature = "trainer")]
pub use burn_megatron_data::{
    bert_dataset::{BertDataset, BertDatasetConfig, BertSample},
    blended::{BlendSize, BlendedDataset, BlendedSampleSet},
    build::{BuildConfig, DataSource, RunData},
    chat_dataset::{
        ChatDataset, ChatDatasetConfig, ChatError, ChatSample, ChatTemplate, ConversationTotals, Conversations,
        LongConversations,
    },
    data_path::DataPath,
    gpt_dataset::{GptDataset, GptDatasetConfig},
    in_memory::{InMemoryDocuments, InMemorySentences},
    index_cache::IndexCache,
    indexed_dataset::{SentenceDocuments, TokenDocuments},
    marks::{DocumentMarking, DocumentMarks, DocumentRules},
    masked_dataset::{MaskedDatasetConfig, MaskingConfig, NgramLengths},
    mt19937::Mt19937,
    samples::{SampleError, SampleSet, Samples},
    split::{DocumentSplit, Split, SplitRatios, SplitWeights, split_documents},
    t5_dataset::{T5Dataset, T5DatasetConfig, T5Sample},
    tokenizer::{ByteTokenizer, MaskedByteTokenizer, Token, TokenRoles, Tokenizer},
};
#[cfg(feature = "trainer")]
pub use chat_batches::ChatBatches;
#[cfg(feature = "trainer")]
pub use corpus::{Corpus, CorpusConfig, DEFAULT_LIMIT_BYTES, Document, TEXT_EXTENSIONS, registry_sources};
pub use error::DataError;
#[cfg(feature = "learner")]
pub(crate) use global_batches::mean_weight;
pub use global_batches::{GlobalBatches, LastBatch};
#[cfg(feature = "trainer")]
pub use loader::{Loader, LoaderConfig};
#[cfg(feature = "trainer")]
pub use masked_batches::{BertBatches, T5Batches};
#[cfg(feature = "trainer")]
pub use micro_batch::{EncoderTokens, MicroBatch, SentencePairs};
#[cfg(feature = "trainer")]
pub use sampler::{Sampler, SamplerConfig};
#[cfg(all(feature = "dataset", feature = "slot"))]
pub use shard_loader::{PlaceSamples, SampleShare, placed_loader};
#[cfg(feature = "dataset")]
pub use shard_loader::{ShardLoaderBuilder, shard_loader};
