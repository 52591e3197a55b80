//! Global batches that grow in the course of training, and samples of packed documents, against the one-rank run:
//! losses and parameters after every step.
//!
//! The samples come from the loader, so that what each rank takes of a batch is put to the test as well.

use std::sync::Arc;

use anyhow::ensure;
use burn_megatron::context::ParallelContext;
use burn_megatron::data::{
    DocumentMarking, DocumentRules, GptDataset, GptDatasetConfig, InMemoryDocuments, Loader, LoaderConfig, Sampler,
    SamplerConfig, TokenBatches,
};
use burn_megatron::launch::World;
use burn_megatron::parity::{Judge, Tolerance};
use burn_megatron::random::RandomStream;
use burn_megatron::training::{
    AnnealingStyle, BatchSizeRampUp, LearningRateConfig, LearningRateDecay, StepResult, Trainer, TrainingConfig,
};
use libtest_mimic::Trial;
use models::ModelConfig;
use models::gpt::Gpt;

use super::comparison::{DP2, Layout, PP2, TP2SP, connect, dtype, layout, print_worst};
use super::layouts::{PARITY_BROKEN, parameter_differences};
use super::problem;
use tests::harness::{Case, Job};

const PP2V2: Layout = layout("pp2v2", 1, false, 1).stages(2, 2);

/// The last samples are no whole batch.
const TRAIN_SAMPLES: u64 = 66;
/// Two increments over 24 samples: one after 12.
const RAMP_UP: BatchSizeRampUp = BatchSizeRampUp {
    start: 8,
    increment: 4,
    samples: 24,
};
const GLOBAL_BATCH_SIZE: usize = 16;
/// What the ramp-up comes to.
const SIZES: [usize; 5] = [8, 8, 12, 16, 16];

const VARIANT: problem::Variant = problem::Variant::USUAL;

pub fn trials() -> Vec<Trial> {
    let job = |layout: Layout, packed: bool| {
        let case = layout
            .describe(Case::new("parity", "ramp_up"), "f64")
            .with("chunks", layout.chunks)
            .with("packed", packed);
        Job::new(case, layout.world_size())
    };
    let ramped = [DP2, PP2, PP2V2].into_iter();
    let ramped =
        ramped.map(|layout| job(layout, false).succeeds(format!("ramped_batches_in_{}_match_one_rank", layout.name)));
    let packed = [DP2, PP2, TP2SP].into_iter();
    let packed =
        packed.map(|layout| job(layout, true).succeeds(format!("packed_documents_in_{}_match_one_rank", layout.name)));
    ramped.chain(packed).collect()
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let single = ParallelContext::single(problem::SEED);
    let context = connect(case, world)?;
    let stages = problem::Stages {
        num_chunks: case.setting("chunks")?,
        ..problem::Stages::default()
    };
    let packed = case.setting("packed")?;
    let mut sharded = Run::new(&stages, packed, &context)?;
    let mut reference = Run::new(&problem::Stages::one_chunk(), packed, &single)?;
    let dtype = dtype(case)?;
    let mut judge = Judge::new(Tolerance::of(dtype), problem::model(VARIANT).num_parameters(), true);
    ensure!(config().num_steps()? == SIZES.len() as u64);
    let mut consumed = 0;
    for (step, size) in SIZES.into_iter().enumerate() {
        for run in [&sharded, &reference] {
            ensure!(
                (run.trainer.consumed_samples(), run.trainer.global_batch_size()) == (consumed, size),
                "step {} has {} samples after {}, expected {size} after {consumed}",
                step + 1,
                run.trainer.global_batch_size(),
                run.trainer.consumed_samples()
            );
        }
        let (part, whole) = (sharded.step()?, reference.step()?);
        ensure!(part.learning_rate == whole.learning_rate);
        judge.scalars(
            step as u64 + 1,
            [part.loss, whole.loss],
            [part.grad_norm, whole.grad_norm],
        );
        let parameters = parameter_differences(sharded.trainer.model(), &context, reference.trainer.model(), &single)?;
        for part in &parameters {
            judge.parameter(step as u64 + 1, part);
        }
        if let Some(first) = judge.failures().first() {
            anyhow::bail!("{PARITY_BROKEN} on rank {}: {first}", world.rank());
        }
        consumed += size as u64;
    }
    print_worst(&judge);
    Ok(())
}

/// A trainer, and what it reads.
struct Run {
    trainer: Trainer<Gpt>,
    loader: Loader,
}

impl Run {
    fn new(stages: &problem::Stages, packed: bool, context: &ParallelContext) -> anyhow::Result<Self> {
        let config = config();
        let sampler = Sampler::new(SamplerConfig {
            num_samples: TRAIN_SAMPLES,
            consumed_samples: 0,
            micro_batch_size: config.micro_batch_size,
            data_parallel_size: context.grid().data_parallel_size(),
            data_parallel_rank: context.coordinates().data,
        })?;
        let dataset = GptDataset::new(
            &GptDatasetConfig::new(config.seq_length, TRAIN_SAMPLES).with_seed(problem::SEED as u32),
            Arc::new(documents()),
            0..DOCUMENTS,
        )?;
        let batches = TokenBatches::new(Arc::new(dataset)).with_marking(packed.then_some(MARKING));
        Ok(Self {
            trainer: problem::trainer_of(VARIANT, &config, stages, context)?,
            loader: Loader::start(Arc::new(batches), sampler, LoaderConfig::new())?,
        })
    }

    fn step(&mut self) -> anyhow::Result<StepResult> {
        let micro_batches = self.loader.by_ref().take(self.trainer.num_micro_batches());
        let micro_batches = micro_batches.collect::<Result<Vec<_>, _>>()?;
        Ok(self.trainer.step(&micro_batches)?)
    }
}

/// The usual problem, with a learning rate that comes down at the end.
fn config() -> TrainingConfig {
    TrainingConfig {
        global_batch_size: GLOBAL_BATCH_SIZE,
        rampup_batch_size: Some(RAMP_UP),
        train_samples: TRAIN_SAMPLES,
        learning_rate: LearningRateConfig {
            decay: LearningRateDecay::WarmUpStableDecay {
                style: AnnealingStyle::MinusSquareRoot,
                samples: 30,
            },
            warm_up_samples: 8,
            init: 1e-4,
            decay_samples: TRAIN_SAMPLES,
            ..LearningRateConfig::constant(1e-3)
        },
        ..problem::training(VARIANT, 0)
    }
}

const DOCUMENTS: usize = 5;
/// About every tenth token, so that most samples have several.
const MARKING: DocumentMarking = DocumentMarking {
    end_of_document: 0,
    rules: DocumentRules {
        reset_position_ids: true,
        reset_attention_mask: true,
        eod_mask_loss: true,
    },
};

/// Random tokens that the model knows.
fn documents() -> InMemoryDocuments {
    let mut documents = InMemoryDocuments::new(problem::VOCAB_SIZE);
    for document in 0..DOCUMENTS {
        let mut numbers = [0.0; 150];
        RandomStream::new(problem::SEED, &format!("document {document}")).fill_uniform(0, 1.0, &mut numbers);
        let tokens = numbers.map(|u| ((u + 1.0) / 2.0 * (problem::VOCAB_SIZE - 1) as f64) as u32);
        let tokens = tokens.map(|token| if token.is_multiple_of(10) { 0 } else { token });
        documents.push(&tokens);
    }
    documents
}
