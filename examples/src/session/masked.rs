//! Samples of BERT and of T5, from files of text or from a data set of sentences.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use burn_megatron::data::{
    BatchSource, BertBatches, BuildConfig, Corpus, DataSource, RunData, Split, SplitWeights, T5Batches, split_documents,
};
use burn_megatron_data::bert_dataset::{BertDataset, BertDatasetConfig, BertSample};
use burn_megatron_data::in_memory::InMemorySentences;
use burn_megatron_data::indexed_dataset::{IndexedDataset, SentenceDocuments};
use burn_megatron_data::preprocess::{SentenceEnds, split_sentences};
use burn_megatron_data::samples::SampleSet;
use burn_megatron_data::t5_dataset::{T5Dataset, T5DatasetConfig, T5Sample};
use burn_megatron_data::tokenizer::Tokenizer;
use models::Objective;

use super::run_text::{
    RunText, SampleSizes, Validation, check_first_tokens, fingerprint, mixed_hash, num_tokens, share,
};
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
        // Pieces of a file have a number after its name.
        let name = document.path.rsplit_once('#').map_or(&*document.path, |(name, _)| name);
        if PROSE.iter().any(|ending| name.ends_with(ending)) {
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
    };
    let count = sentences.documents.num_whole_documents();
    let split = split_documents(count, &SplitWeights::default())?;
    let train = sentences.batches(sizes, sizes.num_train, split.train.clone())?;
    Ok(RunText {
        train,
        hash,
        num_train_tokens: num_tokens_of(&*sentences.documents, split.train),
        num_documents: (count, split.validation.len()),
        note: None,
        validation: Validation::Documents(Box::new(move |sizes| {
            let range = split.validation.clone();
            let batches = sentences.batches(sizes, sizes.num_validation, range);
            batches.context("the validation text")
        })),
    })
}

/// Makes the samples of a run from data sets of sentences, as `preprocess_data --split-sentences` writes them.
///
/// # Errors
/// As [`of_corpus`]; when a data set cannot be opened, or is of another tokenizer.
pub(super) fn of_data_sets(
    source: DataSource,
    arguments: &DataArguments,
    objective: Objective,
    sizes: SampleSizes,
    run_tokenizer: &RunTokenizer,
) -> anyhow::Result<RunText> {
    check_flags(arguments)?;
    let tokenizer = run_tokenizer.tokenizer();
    let kind = format!("{source:?} {objective:?}").into_bytes();
    let mut parts = vec![kind, run_tokenizer.sha256().into_bytes()];
    let (mut train_tokens, mut train_documents, mut validation_documents) = (0, 0, 0);
    let open = |prefix: &str| -> anyhow::Result<Arc<dyn SentenceDocuments>> {
        let dataset = IndexedDataset::open(prefix)?;
        check_first_tokens(&dataset, &**tokenizer)?;
        parts.push(fingerprint(Path::new(prefix))?);
        let documents: Arc<dyn SentenceDocuments> = Arc::new(dataset);
        let range = |split| share(&source, prefix, split, documents.num_whole_documents()).unwrap_or(0..0);
        train_documents += range(Split::Train).len();
        train_tokens += num_tokens_of(&*documents, range(Split::Train));
        validation_documents += range(Split::Validation).len();
        Ok(documents)
    };
    let [train, validation, by_prefix] = match objective {
        Objective::NextToken => unreachable!("samples of whole texts need no sentences"),
        Objective::MaskedTokens { tells_pairs } => {
            let config = build_config(&source, bert_config(tells_pairs, sizes), arguments, sizes);
            let data = RunData::<dyn SampleSet<Sample = BertSample>>::build_bert(&config, tokenizer, open)?;
            batches_of(data, |dataset| Arc::new(BertBatches::new(dataset, tells_pairs)))
        }
        Objective::Spans { decoder_seq_length } => {
            let config = build_config(&source, t5_config(decoder_seq_length, sizes), arguments, sizes);
            let data = RunData::<dyn SampleSet<Sample = T5Sample>>::build_t5(&config, tokenizer, open)?;
            batches_of(data, |dataset| Arc::new(T5Batches::new(dataset, decoder_seq_length)))
        }
    };
    let train = train
        .into_iter()
        .next()
        .context("the data sets have nothing to train on: see --split")?;
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    Ok(RunText {
        train: train.1,
        validation: match validation.into_iter().next() {
            None => Validation::None,
            Some((_, all)) => Validation::DataSets(all, by_prefix),
        },
        hash: mixed_hash(&parts),
        num_train_tokens: train_tokens,
        num_documents: (train_documents + validation_documents, validation_documents),
        note: None,
    })
}

/// Micro-batches, by the name of their data set where they are of one.
type NamedBatches = Vec<(String, Arc<dyn BatchSource>)>;

/// Those of training, of validation, and of the validation of each data set; each of the first two is one or none.
fn batches_of<Dataset: ?Sized>(
    data: RunData<Dataset>,
    batches: impl Fn(Arc<Dataset>) -> Arc<dyn BatchSource>,
) -> [NamedBatches; 3] {
    let [train, validation, _] = data.splits;
    let all = |dataset: Option<Arc<Dataset>>| dataset.map(|dataset| (String::new(), batches(dataset)));
    let by_prefix = data.validation_by_prefix.into_iter();
    [
        all(train).into_iter().collect(),
        all(validation).into_iter().collect(),
        by_prefix.map(|(name, dataset)| (name, batches(dataset))).collect(),
    ]
}

fn build_config<Dataset>(
    source: &DataSource,
    dataset: Dataset,
    arguments: &DataArguments,
    sizes: SampleSizes,
) -> BuildConfig<Dataset> {
    BuildConfig {
        source: source.clone(),
        num_samples: [Some(sizes.num_train), Some(sizes.num_validation), Some(0)],
        dataset,
        drop_last_partial_validation: true,
        validation_by_prefix: arguments.multiple_validation_sets,
        cache_path: arguments.data_cache_path.clone(),
    }
}

fn bert_config(tells_pairs: bool, sizes: SampleSizes) -> BertDatasetConfig {
    let mut config = BertDatasetConfig::new(sizes.seq_length, None);
    config.samples.seed = sizes.seed;
    config.two_segments = tells_pairs;
    config
}

fn t5_config(decoder_seq_length: usize, sizes: SampleSizes) -> T5DatasetConfig {
    let mut config = T5DatasetConfig::new(sizes.seq_length, decoder_seq_length, None);
    config.samples.seed = sizes.seed;
    config
}

fn num_tokens_of(documents: &dyn SentenceDocuments, range: Range<usize>) -> usize {
    let sentences = range.map(|document| documents.document_sentences(document));
    sentences.map(|range| num_tokens(documents.sentences(), range)).sum()
}

impl Sentences {
    /// This number of samples of some of the documents.
    fn batches(
        &self,
        sizes: SampleSizes,
        num_samples: u64,
        range: Range<usize>,
    ) -> anyhow::Result<Arc<dyn BatchSource>> {
        let (documents, tokenizer) = (self.documents.clone(), self.tokenizer.clone());
        match self.objective {
            Objective::NextToken => unreachable!("samples of whole texts need no sentences"),
            Objective::MaskedTokens { tells_pairs } => {
                let mut config = bert_config(tells_pairs, sizes);
                config.samples.num_samples = Some(num_samples);
                let dataset = BertDataset::new(&config, documents, range, tokenizer, None)?;
                Ok(Arc::new(BertBatches::new(Arc::new(dataset), tells_pairs)))
            }
            Objective::Spans { decoder_seq_length } => {
                let mut config = t5_config(decoder_seq_length, sizes);
                config.samples.num_samples = Some(num_samples);
                let dataset = T5Dataset::new(&config, documents, range, tokenizer, None)?;
                Ok(Arc::new(T5Batches::new(Arc::new(dataset), decoder_seq_length)))
            }
        }
    }
}

/// Refuses flags that are for samples of whole texts.
fn check_flags(arguments: &DataArguments) -> anyhow::Result<()> {
    for (flag, is_given) in [
        ("--reset-position-ids", arguments.reset_position_ids),
        ("--reset-attention-mask", arguments.reset_attention_mask),
        ("--eod-mask-loss", arguments.eod_mask_loss),
    ] {
        ensure!(
            !is_given,
            "{flag} is for models that predict the next token: leave it out"
        );
    }
    Ok(())
}
