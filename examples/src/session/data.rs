//! The text of a run, and the loader of its samples.

use std::sync::Arc;

use burn_megatron::context::ParallelContext;
use burn_megatron::data::{Corpus, CorpusConfig, GptDataset, Loader, LoaderConfig, Sampler, SamplerConfig};
use burn_megatron::training::TrainingConfig;

use crate::arguments::DataArguments;

/// Fewer documents than this are cut into pieces, so that some can be set aside for validation.
pub(super) const MIN_DOCUMENTS: usize = 40;

pub(super) fn corpus_config(arguments: &DataArguments) -> anyhow::Result<CorpusConfig> {
    let mut config = if arguments.data_path.is_empty() {
        CorpusConfig::cargo_registry()?
    } else {
        CorpusConfig::new(arguments.data_path.clone())
    };
    config.limit_bytes = arguments.data_limit.or(config.limit_bytes);
    Ok(config)
}

pub(super) fn start_loader(
    dataset: GptDataset,
    training: &TrainingConfig,
    context: &ParallelContext,
    num_samples: u64,
    consumed_samples: u64,
) -> anyhow::Result<Loader> {
    let sampler = Sampler::new(SamplerConfig {
        num_samples,
        consumed_samples,
        micro_batch_size: training.micro_batch_size,
        data_parallel_size: context.grid().data_parallel_size(),
        data_parallel_rank: context.coordinates().data,
    })?;
    Ok(Loader::start(Arc::new(dataset), sampler, LoaderConfig::new())?)
}

/// Ranks that read different text would train on different samples without a sign of it.
pub(super) fn check_same_text(corpus: &Corpus, context: &ParallelContext) -> anyhow::Result<()> {
    let world = context.world_group();
    let mine = corpus.hash() as i64;
    let mut hashes = vec![0; world.size()];
    world.all_gather(&[mine], &mut hashes)?;
    let odd = hashes.iter().position(|hash| *hash != hashes[0]);
    if let Some(odd) = odd {
        anyhow::bail!(
            "rank {odd} reads other text than rank 0 (hash {:016x}, not {:016x}): \
             give every rank the same files with --data-path",
            hashes[odd],
            hashes[0]
        );
    }
    Ok(())
}
