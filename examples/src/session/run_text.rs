//! [`RunText`]: the samples of a run and what is known of them.

use std::ops::Range;
use std::sync::Arc;

use anyhow::{Context as _, bail};
use burn_megatron::context::ParallelContext;
use burn_megatron::data::{BatchSource, SplitWeights, TokenDocuments, split_documents};
use models::Objective;
use sha2::{Digest as _, Sha256};

use crate::arguments::DataArguments;
use crate::run_tokenizer::RunTokenizer;

/// What a run reads.
pub(super) struct RunText {
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

/// Samples that a run asks for.
#[derive(Clone, Copy)]
pub(super) struct TextRequest<'a> {
    pub(super) arguments: &'a DataArguments,
    pub(super) objective: Objective,
    pub(super) sizes: SampleSizes,
    pub(super) tokenizer: &'a RunTokenizer,
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
    /// Returns the text of `count` documents in memory, of which some are set aside for validation: `batches` makes
    /// this number of samples of some of them, and `num_tokens` counts their tokens. `validation` names those that are
    /// set aside, in errors.
    ///
    /// # Errors
    /// When there is too little text.
    pub(super) fn of_documents(
        (count, hash): (usize, u64),
        sizes: SampleSizes,
        validation: &'static str,
        num_tokens: impl FnOnce(Range<usize>) -> usize,
        batches: impl Fn(Range<usize>, u64, SampleSizes) -> anyhow::Result<Arc<dyn BatchSource>> + 'static,
    ) -> anyhow::Result<Self> {
        let split = split_documents(count, &SplitWeights::default())?;
        Ok(Self {
            train: batches(split.train.clone(), sizes.num_train, sizes)?,
            hash,
            num_train_tokens: num_tokens(split.train),
            num_documents: (count, split.validation.len()),
            note: None,
            validation: Validation::Documents(Box::new(move |sizes| {
                batches(split.validation.clone(), sizes.num_validation, sizes).context(validation)
            })),
        })
    }

    /// The hash, as checkpoints have it.
    pub(super) fn hash_text(&self) -> String {
        format!("{:016x}", self.hash)
    }

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

pub(super) fn num_tokens(documents: &dyn TokenDocuments, range: Range<usize>) -> usize {
    range.map(|index| documents.document_length(index)).sum()
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
