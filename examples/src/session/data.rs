//! The text or tokens of a run, and the loader of its samples. `masked` makes the samples of BERT and T5,
//! `conversations` those of `--sft`.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, ensure};
use burn_megatron::context::ParallelContext;
use burn_megatron::data::{
    BatchSource, BuildConfig, Corpus, CorpusConfig, DataSource, GptDataset, GptDatasetConfig, Loader, LoaderConfig,
    RunData, Sampler, SamplerConfig, Samples, Split, SplitWeights, TokenBatches, TokenDocuments, split_documents,
};
use burn_megatron::training::TrainingConfig;
use burn_megatron_data::indexed_dataset::IndexedDataset;
use models::Objective;

use super::run_text::{
    RunText, SampleSizes, Validation, check_first_tokens, fingerprint, mixed_hash, num_tokens, share,
};
use super::{conversations, masked};
use crate::arguments::{DataArguments, TextSource};
use crate::run_tokenizer::RunTokenizer;

/// Fewer documents than this are cut into pieces, so that some can be set aside for validation.
const MIN_DOCUMENTS: usize = 40;

/// Reads the text that the flags name, or opens its data sets.
///
/// # Errors
/// When something cannot be read, or there is too little of it.
pub(super) fn read_text(
    arguments: &DataArguments,
    objective: Objective,
    sizes: SampleSizes,
    run_tokenizer: &RunTokenizer,
) -> anyhow::Result<RunText> {
    if arguments.sft {
        return conversations::of_files(arguments, objective, sizes, run_tokenizer);
    }
    let source = arguments.source()?;
    let note = arguments.note(&source);
    let text = match (objective, source) {
        (Objective::NextToken, TextSource::DataSets(source)) => of_data_sets(source, arguments, sizes, run_tokenizer),
        (_, TextSource::DataSets(source)) => masked::of_data_sets(source, arguments, objective, sizes, run_tokenizer),
        (_, TextSource::CargoRegistry) => of_files(
            CorpusConfig::cargo_registry()?,
            arguments,
            objective,
            sizes,
            run_tokenizer,
        ),
        (_, TextSource::Files(paths)) => of_files(CorpusConfig::new(paths), arguments, objective, sizes, run_tokenizer),
    };
    Ok(RunText { note, ..text? })
}

fn of_files(
    config: CorpusConfig,
    arguments: &DataArguments,
    objective: Objective,
    sizes: SampleSizes,
    run_tokenizer: &RunTokenizer,
) -> anyhow::Result<RunText> {
    let limit_bytes = arguments.data_limit.or(config.limit_bytes);
    let corpus = Corpus::load(&CorpusConfig { limit_bytes, ..config })?;
    // The bytes of a text are its tokens: its hash alone has stood for them since the first checkpoints.
    let hash = if run_tokenizer.is_bytes() {
        corpus.hash()
    } else {
        mixed_hash(&[&corpus.hash().to_le_bytes(), run_tokenizer.sha256().as_bytes()])
    };
    // One book must be split for validation, too.
    let corpus = corpus.with_documents(MIN_DOCUMENTS);
    if objective != Objective::NextToken {
        return masked::of_corpus(&corpus, hash, arguments, objective, sizes, run_tokenizer);
    }
    let marking = arguments.marking(&**run_tokenizer.tokenizer())?;
    let documents = Arc::new(corpus.tokenize(&**run_tokenizer.tokenizer()));
    let split = split_documents(documents.len(), &SplitWeights::default())?;
    let train = GptDataset::new(
        &GptDatasetConfig::new(sizes.seq_length, sizes.num_train).with_seed(sizes.seed),
        documents.clone(),
        split.train.clone(),
    )?;
    Ok(RunText {
        train: Arc::new(TokenBatches::new(Arc::new(train)).with_marking(marking)),
        hash,
        num_train_tokens: num_tokens(&*documents, split.train),
        num_documents: (documents.len(), split.validation.len()),
        note: None,
        validation: Validation::Documents(Box::new(move |sizes| {
            let config = GptDatasetConfig::new(sizes.seq_length, sizes.num_validation).with_seed(sizes.seed);
            let dataset = GptDataset::new(&config, documents.clone(), split.validation.clone());
            let dataset = Arc::new(dataset.context("the validation text")?);
            Ok(Arc::new(TokenBatches::new(dataset).with_marking(marking)))
        })),
    })
}

fn of_data_sets(
    source: DataSource,
    arguments: &DataArguments,
    sizes: SampleSizes,
    run_tokenizer: &RunTokenizer,
) -> anyhow::Result<RunText> {
    let config = BuildConfig {
        source: source.clone(),
        num_samples: [Some(sizes.num_train), Some(sizes.num_validation), Some(0)],
        dataset: GptDatasetConfig::new(sizes.seq_length, sizes.num_train).with_seed(sizes.seed),
        drop_last_partial_validation: true,
        validation_by_prefix: arguments.multiple_validation_sets,
        cache_path: arguments.data_cache_path.clone(),
    };
    let tokenizer = &**run_tokenizer.tokenizer();
    let mut parts = vec![format!("{source:?}").into_bytes(), run_tokenizer.sha256().into_bytes()];
    let (mut train_tokens, mut train_documents, mut validation_documents) = (0, 0, 0);
    let data = RunData::build(&config, |prefix| -> anyhow::Result<Arc<dyn TokenDocuments>> {
        let dataset = IndexedDataset::open(prefix)?;
        check_first_tokens(&dataset, tokenizer)?;
        parts.push(fingerprint(Path::new(prefix))?);
        let documents: Arc<dyn TokenDocuments> = Arc::new(dataset);
        let range = |split| share(&source, prefix, split, documents.num_documents());
        let train = range(Split::Train).unwrap_or(0..0);
        train_documents += train.len();
        train_tokens += num_tokens(&*documents, train);
        validation_documents += range(Split::Validation).map_or(0, |range| range.len());
        Ok(documents)
    })?;
    let marking = arguments.marking(tokenizer)?;
    let batches = |samples: Arc<dyn Samples>| -> Arc<dyn BatchSource> {
        Arc::new(TokenBatches::new(samples).with_marking(marking))
    };
    let [train, validation, _] = data.splits;
    let train = train.context("the data sets have nothing to train on: see --split")?;
    let parts: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    Ok(RunText {
        train: batches(train),
        validation: validation.map_or(Validation::None, |all| {
            let by_prefix = data.validation_by_prefix.into_iter();
            Validation::DataSets(batches(all), by_prefix.map(|(name, of)| (name, batches(of))).collect())
        }),
        hash: mixed_hash(&parts),
        num_train_tokens: train_tokens,
        num_documents: (train_documents + validation_documents, validation_documents),
        note: None,
    })
}

pub(super) fn start_loader(
    source: Arc<dyn BatchSource>,
    training: &TrainingConfig,
    context: &ParallelContext,
    num_samples: u64,
    consumed_samples: u64,
) -> anyhow::Result<Loader> {
    ensure!(
        source.num_samples() >= num_samples,
        "the data have {} samples, and {num_samples} are needed",
        source.num_samples()
    );
    let sampler = Sampler::new(SamplerConfig {
        num_samples,
        consumed_samples,
        micro_batch_size: training.micro_batch_size,
        data_parallel_size: context.grid().data_parallel_size(),
        data_parallel_rank: context.coordinates().data,
    })?;
    Ok(Loader::start(source, sampler, LoaderConfig::new())?)
}
