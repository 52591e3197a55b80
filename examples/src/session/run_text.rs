//! [`RunText`]: the samples of a run and what is known of them, and what tells its data sets from others.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, bail};
use burn_megatron::context::ParallelContext;
use burn_megatron::data::{BatchSource, DataSource, Split, TokenDocuments, Tokenizer};
use burn_megatron_data::indexed_dataset::{IndexedDataset, bin_path, idx_path};
use sha2::{Digest as _, Sha256};

/// Of each end of an index this many bytes are compared.
const COMPARED_BYTES: u64 = 1 << 20;

/// What a run reads.
pub(super) struct RunText {
    /// What it trains on.
    pub(super) train: Arc<dyn BatchSource>,
    pub(super) validation: Validation,
    /// What tells this text from others.
    pub(super) hash: u64,
    /// Tokens to train on, one epoch.
    pub(super) num_train_tokens: usize,
    /// Documents, and how many of them validate.
    pub(super) num_documents: (usize, usize),
    /// What a person should know of where it comes from.
    pub(super) note: Option<String>,
}

/// Makes samples for validation, of the number and length that are asked for.
type MakeValidation = dyn Fn(SampleSizes) -> anyhow::Result<Arc<dyn BatchSource>>;

pub(super) enum Validation {
    /// Documents that are set aside.
    Documents(Box<MakeValidation>),
    /// All data sets together, and each by its name where that is asked for.
    DataSets(Arc<dyn BatchSource>, Vec<(String, Arc<dyn BatchSource>)>),
    /// The data sets have nothing set aside.
    None,
}

/// How many samples of what length.
#[derive(Clone, Copy)]
pub(super) struct SampleSizes {
    pub(super) seq_length: usize,
    pub(super) num_train: u64,
    pub(super) num_validation: u64,
    pub(super) seed: u32,
}

impl RunText {
    /// Whether something is set aside for validation.
    pub(super) fn has_validation(&self) -> bool {
        !matches!(self.validation, Validation::None)
    }

    /// Returns at least this number of samples for validation, the same every time.
    ///
    /// # Errors
    /// When there is too little text, or none.
    pub(super) fn validation(&self, sizes: SampleSizes) -> anyhow::Result<Arc<dyn BatchSource>> {
        match &self.validation {
            Validation::Documents(make) => make(sizes),
            Validation::DataSets(all, _) => Ok(all.clone()),
            Validation::None => bail!("nothing is set aside for validation"),
        }
    }

    /// The validation of each data set, by its name, where that is asked for.
    pub(super) fn validation_of_sets(&self) -> &[(String, Arc<dyn BatchSource>)] {
        match &self.validation {
            Validation::DataSets(_, sets) => sets,
            _ => &[],
        }
    }

    /// Checks that all ranks read the same: otherwise they would train on different samples without a sign of it.
    ///
    /// # Communication
    /// An all-gather of a number over the world.
    ///
    /// # Errors
    /// When a rank reads something else.
    pub(super) fn check_same(&self, context: &ParallelContext) -> anyhow::Result<()> {
        let world = context.world_group();
        let mut hashes = vec![0; world.size()];
        world.all_gather(&[self.hash as i64], &mut hashes)?;
        if let Some(odd) = hashes.iter().position(|hash| *hash != hashes[0]) {
            bail!(
                "rank {odd} reads other text than rank 0 (hash {:016x}, not {:016x}): \
                 give every rank the same files with --data-path, and the same tokenizer",
                hashes[odd],
                hashes[0]
            );
        }
        Ok(())
    }
}

/// The documents of a data set that are for a part of the run.
pub(super) fn share(source: &DataSource, prefix: &str, split: Split, num_documents: usize) -> Option<Range<usize>> {
    match source {
        DataSource::Divided { split: ratios, .. } => ratios.range(split, num_documents),
        DataSource::Separate(paths) => {
            let path = paths[split as usize].as_ref();
            let is_of_part = path.is_some_and(|path| path.prefixes.iter().any(|of| of == prefix));
            is_of_part.then_some(0..num_documents)
        }
    }
}

pub(super) fn num_tokens(documents: &dyn TokenDocuments, range: Range<usize>) -> usize {
    range.map(|index| documents.document_length(index)).sum()
}

/// Checks a million tokens of a data set against a vocabulary: whole ones are large. A later token beyond it is an
/// error of the step that reads it.
pub(super) fn check_first_tokens(dataset: &IndexedDataset, tokenizer: &dyn Tokenizer) -> anyhow::Result<()> {
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
pub(super) fn fingerprint(prefix: &Path) -> anyhow::Result<Vec<u8>> {
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

pub(super) fn mixed_hash(parts: &[&[u8]]) -> u64 {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    let digest = hash.finalize();
    u64::from_le_bytes(digest[..8].try_into().expect("a digest has 32 bytes"))
}
