//! [`DataSets`]: the data sets of tokens that a run reads, counted and identified as they are opened.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use burn_megatron::data::{BatchSource, BuildConfig, DataSource, RunData, Split, TokenDocuments as _, Tokenizer};
use burn_megatron_data::indexed_dataset::{IndexedDataset, bin_path, idx_path};

use super::run_text::{RunText, TextRequest, Validation, mixed_hash};
use crate::run_tokenizer::RunTokenizer;

/// Of each end of an index this many bytes are compared.
const COMPARED_BYTES: u64 = 1 << 20;

/// Data sets that are opened one after the other.
pub(super) struct DataSets<'a> {
    source: &'a DataSource,
    tokenizer: &'a dyn Tokenizer,
    /// What tells them from others.
    parts: Vec<Vec<u8>>,
    train_tokens: usize,
    train_documents: usize,
    validation_documents: usize,
}

impl<'a> DataSets<'a> {
    /// `kind` says which samples are made of them.
    pub(super) fn new(source: &'a DataSource, kind: String, run_tokenizer: &'a RunTokenizer) -> Self {
        Self {
            source,
            tokenizer: &**run_tokenizer.tokenizer(),
            parts: vec![kind.into_bytes(), run_tokenizer.sha256().into_bytes()],
            train_tokens: 0,
            train_documents: 0,
            validation_documents: 0,
        }
    }

    /// Opens one.
    ///
    /// # Errors
    /// When it cannot be read, or is of another tokenizer.
    pub(super) fn open(&mut self, prefix: &str) -> anyhow::Result<IndexedDataset> {
        let dataset = IndexedDataset::open(prefix)?;
        check_first_tokens(&dataset, self.tokenizer)?;
        self.parts.push(fingerprint(Path::new(prefix))?);
        Ok(dataset)
    }

    /// Counts the documents of one that was opened, and their tokens. Returns the tokens to train on; `None` if there
    /// are no documents to train on.
    pub(super) fn count(
        &mut self,
        prefix: &str,
        num_documents: usize,
        num_tokens: impl Fn(Range<usize>) -> usize,
    ) -> Option<usize> {
        let range = |split| share(self.source, prefix, split, num_documents).unwrap_or(0..0);
        let (train, validation) = (range(Split::Train), range(Split::Validation));
        let has_documents = !train.is_empty();
        self.train_documents += train.len();
        self.validation_documents += validation.len();
        let tokens = num_tokens(train);
        self.train_tokens += tokens;
        has_documents.then_some(tokens)
    }

    /// Returns what the run reads, of these micro-batches.
    ///
    /// # Errors
    /// When there are none to train on.
    pub(super) fn text(self, data: RunData<dyn BatchSource>) -> anyhow::Result<RunText> {
        let [train, validation, _] = data.splits;
        let parts: Vec<&[u8]> = self.parts.iter().map(Vec::as_slice).collect();
        Ok(RunText {
            train: train.context("the data sets have nothing to train on: see --split")?,
            validation: match validation {
                None => Validation::None,
                Some(all) => Validation::DataSets(all, data.validation_by_prefix),
            },
            hash: mixed_hash(&parts),
            num_train_tokens: self.train_tokens,
            num_documents: (
                self.train_documents + self.validation_documents,
                self.validation_documents,
            ),
            note: None,
        })
    }
}

/// How the samples of a run are made of data sets; `dataset` says of which length and kind.
pub(super) fn build_config<Dataset>(
    source: &DataSource,
    dataset: Dataset,
    request: TextRequest<'_>,
) -> BuildConfig<Dataset> {
    let TextRequest { arguments, sizes, .. } = request;
    BuildConfig {
        source: source.clone(),
        num_samples: [Some(sizes.num_train), Some(sizes.num_validation), Some(0)],
        dataset,
        drop_last_partial_validation: true,
        validation_by_prefix: arguments.multiple_validation_sets,
        cache_path: arguments.data_cache_path.clone(),
    }
}

/// The documents of a data set that are for a part of the run.
fn share(source: &DataSource, prefix: &str, split: Split, num_documents: usize) -> Option<Range<usize>> {
    match source {
        DataSource::Divided { split: ratios, .. } => ratios.range(split, num_documents),
        DataSource::Separate(paths) => {
            let path = paths[split as usize].as_ref();
            let is_of_part = path.is_some_and(|path| path.prefixes.iter().any(|of| of == prefix));
            is_of_part.then_some(0..num_documents)
        }
    }
}

/// Checks a million tokens of a data set against a vocabulary: whole ones are large. A later token beyond it is an
/// error of the step that reads it.
fn check_first_tokens(dataset: &IndexedDataset, tokenizer: &dyn Tokenizer) -> anyhow::Result<()> {
    let vocabulary_size = tokenizer.vocabulary_size();
    let (mut tokens, mut left) = (Vec::new(), 1 << 20);
    for document in 0..dataset.num_documents() {
        let length = dataset.document_length(document).min(left);
        tokens.clear();
        dataset.read(document, 0..length, &mut tokens);
        if let Some(token) = tokens.iter().find(|token| **token as usize >= vocabulary_size) {
            bail!(
                "{}: token {token} of document {document} is outside the vocabulary of {vocabulary_size} tokens: give \
                 the tokenizer that the data set was made with (--tokenizer-type, --vocab-file, --merge-file, \
                 --tokenizer-model)",
                dataset.prefix().display()
            );
        }
        left -= length;
        if left == 0 {
            break;
        }
    }
    Ok(())
}

/// Returns the sizes of a data set's files, and both ends of its index: what differs between any two corpora.
fn fingerprint(prefix: &Path) -> anyhow::Result<Vec<u8>> {
    let open = |path: PathBuf| File::open(&path).with_context(|| path.display().to_string());
    let (bin, mut index) = (open(bin_path(prefix))?, open(idx_path(prefix))?);
    let (bin_bytes, index_bytes) = (bin.metadata()?.len(), index.metadata()?.len());
    let mut found = [bin_bytes.to_le_bytes(), index_bytes.to_le_bytes()].concat();
    for start in [0, index_bytes.saturating_sub(COMPARED_BYTES)] {
        index.seek(SeekFrom::Start(start))?;
        (&mut index).take(COMPARED_BYTES).read_to_end(&mut found)?;
    }
    Ok(found)
}
