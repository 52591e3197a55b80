//! The text or tokens of a run, and the loader of its samples. `masked` makes the samples of BERT and T5,
//! `conversations` those of `--sft`.

use std::sync::Arc;

use anyhow::{Context as _, ensure};
use burn_megatron::context::ParallelContext;
use burn_megatron::data::{
    BatchSource, Corpus, CorpusConfig, DataSource, GptDataset, GptDatasetConfig, Loader, LoaderConfig, RunData,
    Sampler, SamplerConfig, TokenBatches, TokenDocuments,
};
use burn_megatron::training::TrainingConfig;
use models::Objective;

use super::data_sets::{DataSets, build_config};
use super::run_text::{RunText, TextRequest, mixed_hash, num_tokens};
use super::{conversations, masked};
use crate::arguments::TextSource;

/// Fewer documents than this are cut into pieces, so that some can be set aside for validation.
const MIN_DOCUMENTS: usize = 40;

/// Reads the text that the flags name, or opens its data sets.
///
/// # Errors
/// When something cannot be read, or there is too little of it.
pub(super) fn read_text(request: TextRequest<'_>) -> anyhow::Result<RunText> {
    let arguments = request.arguments;
    if arguments.sft {
        return conversations::of_files(request);
    }
    let source = arguments.source()?;
    let note = arguments.note(&source);
    let text = match (request.objective, source) {
        (Objective::NextToken, TextSource::DataSets(source)) => of_data_sets(source, request),
        (_, TextSource::DataSets(source)) => masked::of_data_sets(source, request),
        (_, TextSource::CargoRegistry) => of_files(CorpusConfig::cargo_registry()?, request),
        (_, TextSource::Files(paths)) => of_files(CorpusConfig::new(paths), request),
    };
    Ok(RunText { note, ..text? })
}

fn of_files(config: CorpusConfig, request: TextRequest<'_>) -> anyhow::Result<RunText> {
    let TextRequest {
        arguments,
        sizes,
        tokenizer: run_tokenizer,
        ..
    } = request;
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
    if request.objective != Objective::NextToken {
        return masked::of_corpus(&corpus, hash, request);
    }
    let marking = arguments.marking(&**run_tokenizer.tokenizer())?;
    let documents = Arc::new(corpus.tokenize(&**run_tokenizer.tokenizer()));
    let all = documents.clone();
    let text = RunText::of_documents(
        (documents.len(), hash),
        sizes,
        "the validation text",
        |range| num_tokens(&*documents, range),
        move |range, num_samples, sizes| {
            let config = GptDatasetConfig::new(sizes.seq_length, num_samples).with_seed(sizes.seed);
            let dataset = Arc::new(GptDataset::new(&config, all.clone(), range)?);
            Ok(Arc::new(TokenBatches::new(dataset).with_marking(marking)))
        },
    )?;
    at_least_a_sample(text.num_train_tokens, sizes.seq_length)?;
    Ok(text)
}

fn of_data_sets(source: DataSource, request: TextRequest<'_>) -> anyhow::Result<RunText> {
    let sizes = request.sizes;
    let dataset = GptDatasetConfig::new(sizes.seq_length, sizes.num_train).with_seed(sizes.seed);
    let config = build_config(&source, dataset, request);
    let mut sets = DataSets::new(&source, format!("{source:?}"), request.tokenizer);
    let data = RunData::build(&config, |prefix| -> anyhow::Result<Arc<dyn TokenDocuments>> {
        let documents = sets.open(prefix)?;
        let train = sets.count(prefix, documents.num_documents(), |range| num_tokens(&documents, range));
        if let Some(train) = train {
            at_least_a_sample(train, sizes.seq_length).with_context(|| format!("{prefix}, training"))?;
        }
        Ok(Arc::new(documents))
    })?;
    let marking = request.arguments.marking(&**request.tokenizer.tokenizer())?;
    sets.text(
        data.map(|samples| -> Arc<dyn BatchSource> { Arc::new(TokenBatches::new(samples).with_marking(marking)) }),
    )
}

/// Checks that documents fill a sample: otherwise each has the same few tokens again and again.
fn at_least_a_sample(num_tokens: usize, seq_length: usize) -> anyhow::Result<()> {
    // The last token is predicted only.
    ensure!(
        num_tokens > seq_length,
        "the documents have {num_tokens} tokens, and a sample of --seq-length {seq_length} takes {}: give more text, \
         or shorter samples",
        seq_length + 1
    );
    Ok(())
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
