//! Samples of BERT and of T5, from files of text or from a data set of sentences.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use burn_megatron::data::{
    BatchSource, BertBatches, Corpus, DataSource, Split, SplitWeights, T5Batches, split_documents,
};
use burn_megatron_data::bert_dataset::{BertDataset, BertDatasetConfig};
use burn_megatron_data::in_memory::InMemorySentences;
use burn_megatron_data::index_cache::IndexCache;
use burn_megatron_data::indexed_dataset::{IndexedDataset, SentenceDocuments};
use burn_megatron_data::preprocess::{SentenceEnds, split_sentences};
use burn_megatron_data::t5_dataset::{T5Dataset, T5DatasetConfig};
use burn_megatron_data::tokenizer::Tokenizer;
use models::Objective;

use super::data::{RunText, SampleSizes, Validation, check_first_tokens, fingerprint, mixed_hash, num_tokens};
use crate::arguments::DataArguments;
use crate::run_tokenizer::RunTokenizer;

/// Endings of files whose lines are no sentences.
const PROSE: [&str; 2] = [".md", ".txt"];

/// Sentences that samples are made of.
#[derive(Clone)]
struct Sentences {
    documents: Arc<dyn SentenceDocuments>,
    tokenizer: Arc<dyn Tokenizer>,
    objective: Objective,
    seed: u32,
}

/// Makes the samples of a run from files: of prose by sentences, of others by lines.
///
/// # Errors
/// When flags are given that are for other samples, the tokenizer misses tokens of these, or there is too little text.
pub(super) fn of_corpus(
    corpus: &Corpus,
    hash: u64,
    arguments: &DataArguments,
    objective: Objective,
    sizes: SampleSizes,
    run_tokenizer: &RunTokenizer,
) -> anyhow::Result<RunText> {
    check_flags(arguments)?;
    let tokenizer = run_tokenizer.tokenizer().clone();
    let sentences = corpus.documents().iter().map(|document| {
        if PROSE.iter().any(|ending| document.path.ends_with(ending)) {
            let mut ranges = Vec::new();
            split_sentences(&document.text, SentenceEnds::Trimmed, &mut ranges);
            ranges.into_iter().map(|range| &document.text[range]).collect()
        } else {
            document.text.lines().collect::<Vec<_>>()
        }
    });
    let documents = InMemorySentences::tokenize_divided(sentences, &*tokenizer);
    let sentences = Sentences {
        documents: Arc::new(documents),
        tokenizer,
        objective,
        seed: sizes.seed,
    };
    let count = sentences.documents.num_whole_documents();
    let split = split_documents(count, &SplitWeights::default())?;
    let train = sentences.batches(sizes.seq_length, sizes.num_train, split.train.clone(), None)?;
    Ok(RunText {
        train,
        hash,
        num_train_tokens: sentences.num_tokens(split.train),
        num_documents: (count, split.validation.len()),
        note: None,
        validation: Validation::Documents(Box::new(move |sizes| {
            let range = split.validation.clone();
            let batches = sentences.batches(sizes.seq_length, sizes.num_validation, range, None);
            batches.context("the validation text")
        })),
    })
}

/// Makes the samples of a run from one data set of sentences, as `preprocess_data --split-sentences` writes it.
///
/// # Errors
/// As [`of_corpus`]; when there are several data sets.
pub(super) fn of_data_set(
    source: DataSource,
    arguments: &DataArguments,
    objective: Objective,
    sizes: SampleSizes,
    run_tokenizer: &RunTokenizer,
) -> anyhow::Result<RunText> {
    check_flags(arguments)?;
    let DataSource::Divided { path, split } = &source else {
        bail!("samples of BERT and T5 are made of one data set: give it with --data-path, not --train-data-path");
    };
    let [prefix] = path.prefixes.as_slice() else {
        bail!(
            "samples of BERT and T5 are made of one data set, and --data-path names {}: {}; join them with \
             merge_datasets",
            path.prefixes.len(),
            path.prefixes.join(", ")
        );
    };
    let tokenizer = run_tokenizer.tokenizer().clone();
    let dataset = IndexedDataset::open(prefix)?;
    check_first_tokens(&dataset, &*tokenizer)?;
    let fingerprint = fingerprint(Path::new(prefix))?;
    let kind = format!("{source:?} {objective:?}").into_bytes();
    let hash = mixed_hash(&[&kind, run_tokenizer.sha256().as_bytes(), &fingerprint]);
    let cache = match &arguments.data_cache_path {
        Some(folder) => IndexCache::new(folder),
        None => IndexCache::next_to(Path::new(prefix)),
    };
    let sentences = Sentences {
        documents: Arc::new(dataset),
        tokenizer,
        objective,
        seed: sizes.seed,
    };
    let count = sentences.documents.num_whole_documents();
    let range = |part| split.range(part, count);
    let train = range(Split::Train).context("the data set has nothing to train on: see --split")?;
    let validation = range(Split::Validation);
    let num_validation = validation.as_ref().map_or(0, Range::len);
    let batches = sentences.batches(sizes.seq_length, sizes.num_train, train.clone(), Some(&cache))?;
    Ok(RunText {
        train: batches,
        hash,
        num_train_tokens: sentences.num_tokens(train.clone()),
        num_documents: (train.len() + num_validation, num_validation),
        note: None,
        validation: match validation {
            None => Validation::None,
            Some(range) => Validation::Documents(Box::new(move |sizes| {
                let count = sizes.num_validation;
                let batches = sentences.batches(sizes.seq_length, count, range.clone(), Some(&cache));
                batches.context("the validation text")
            })),
        },
    })
}

impl Sentences {
    fn batches(
        &self,
        seq_length: usize,
        num_samples: u64,
        range: Range<usize>,
        cache: Option<&IndexCache>,
    ) -> anyhow::Result<Arc<dyn BatchSource>> {
        let (documents, tokenizer) = (self.documents.clone(), self.tokenizer.clone());
        match self.objective {
            Objective::NextToken => unreachable!("samples of whole texts need no sentences"),
            Objective::MaskedTokens { tells_pairs } => {
                let mut config = BertDatasetConfig::new(seq_length, Some(num_samples));
                config.samples.seed = self.seed;
                config.two_segments = tells_pairs;
                let dataset = BertDataset::new(&config, documents, range, tokenizer, cache)?;
                Ok(Arc::new(BertBatches::new(Arc::new(dataset), tells_pairs)))
            }
            Objective::Spans { decoder_seq_length } => {
                let mut config = T5DatasetConfig::new(seq_length, decoder_seq_length, Some(num_samples));
                config.samples.seed = self.seed;
                let dataset = T5Dataset::new(&config, documents, range, tokenizer, cache)?;
                Ok(Arc::new(T5Batches::new(Arc::new(dataset), decoder_seq_length)))
            }
        }
    }

    fn num_tokens(&self, documents: Range<usize>) -> usize {
        let sentences = documents.map(|document| self.documents.document_sentences(document));
        sentences
            .map(|range| num_tokens(self.documents.sentences(), range))
            .sum()
    }
}

/// Refuses flags that are for samples of whole texts.
fn check_flags(arguments: &DataArguments) -> anyhow::Result<()> {
    for (flag, is_given) in [
        ("--reset-position-ids", arguments.reset_position_ids),
        ("--reset-attention-mask", arguments.reset_attention_mask),
        ("--eod-mask-loss", arguments.eod_mask_loss),
        ("--multiple-validation-sets", arguments.multiple_validation_sets),
    ] {
        ensure!(
            !is_given,
            "{flag} is for models that predict the next token: leave it out"
        );
    }
    Ok(())
}
