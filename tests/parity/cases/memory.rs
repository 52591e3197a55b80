//! What parameters, gradients and Adam's state take of a rank, counted at the allocator, against the formula.

use anyhow::ensure;
use burn::tensor::{DType, FloatDType};
use burn_flex::FlexDevice;
use burn_megatron::collectives::shared_memory_bytes;
use burn_megatron::context::ParallelContext;
use burn_megatron::data::MicroBatch;
use burn_megatron::data_parallel::DataParallelConfig;
use burn_megatron::launch::World;
use burn_megatron::optimizer::{LossScaleConfig, bytes_per_parameter};
use burn_megatron::parameters::list_parameters;
use burn_megatron::pipeline_parallel::{LayerLayout, LayerSizes};
use burn_megatron::training::memory::allocated_bytes;
use burn_megatron::training::{Trainer, TrainerConfig, TrainingConfig};
use libtest_mimic::Trial;
use models::gpt::{Gpt, GptConfig};

use super::B;
use super::comparison::{DP2, DP4, Layout, ONE, connect};
use super::problem::{self, Update, Variant};
use crate::harness::{Case, Job};

/// How far a rank may be from the formula: what it holds in addition to parameters and the like is small.
const TOLERANCE: f64 = 0.05;
const SEQ_LENGTH: usize = 8;
const VOCAB_SIZE: usize = 61;
const BATCH: usize = 4;
const N_LAYERS: usize = 2;
const STEPS: u64 = 3;

const COUNTED: [(Layout, &str, &str); 10] = [
    (ONE, "f32", "whole"),
    (ONE, "bf16", "whole"),
    (DP2, "f32", "whole"),
    (DP2, "f32", "sharded"),
    (DP2, "bf16", "whole"),
    (DP2, "bf16", "sharded"),
    (DP4, "f32", "whole"),
    (DP4, "f32", "sharded"),
    (DP4, "bf16", "sharded"),
    (DP4, "f16", "sharded"),
];

pub fn trials() -> Vec<Trial> {
    let trial = |(layout, precision, update): (Layout, &str, &str)| {
        let case = layout
            .describe(Case::new("memory"), "f32")
            .with("precision", precision)
            .with("update", update);
        let name = format!("memory_is_that_of_the_formula_{}_{precision}_{update}", layout.name);
        Job::new(case, layout.world_size()).succeeds(name)
    };
    COUNTED.into_iter().map(trial).collect()
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let context = connect(case, world)?;
    let update: Update = case.setting("update")?;
    let half = match case.setting::<String>("precision")?.as_str() {
        "bf16" => Some(FloatDType::BF16),
        "f16" => Some(FloatDType::F16),
        _ => None,
    };
    let config = TrainingConfig {
        seq_length: SEQ_LENGTH,
        micro_batch_size: 1,
        global_batch_size: BATCH,
        train_samples: STEPS * BATCH as u64,
        ..problem::training(Variant::USUAL, STEPS)
    };
    let layers = LayerLayout::even(LayerSizes {
        n_layers: N_LAYERS,
        num_stages: 1,
        num_chunks: 1,
    })?;
    let options = TrainerConfig {
        data_parallel: DataParallelConfig::new().with_shard_gradients(update == Update::Sharded),
        overlap_param_gather: true,
        loss_scale: (half == Some(FloatDType::F16)).then_some(LossScaleConfig::Constant { loss_scale: 65536.0 }),
        ..TrainerConfig::new()
    };
    warm_up(&config)?;
    let held = || allocated_bytes() + shared_memory_bytes();
    let before = held();
    // Sizes at which parameters outweigh all else that a rank holds.
    let model = GptConfig::new(N_LAYERS, 384, 4, SEQ_LENGTH, VOCAB_SIZE);
    let model = model.init_stage(&layers, &FlexDevice, &context)?;
    let model = match half {
        Some(half) => problem::in_type(model, half),
        None => model,
    };
    let mut trainer: Trainer<B, Gpt<B>> = Trainer::new(model, &config, options, &context, &FlexDevice)?;
    for step in 0..STEPS {
        trainer.step(&micro_batches(step, &context))?;
    }
    // Parameters of the last update are on their way.
    let entries = list_parameters::<B, _>(trainer.model());
    // What other ranks wait for is on its way on other threads.
    context.world_group().barrier()?;
    let bytes = held() - before;
    let num_parameters: usize = entries.iter().map(|entry| entry.shape.iter().product::<usize>()).sum();
    let dtype = half.map_or(DType::F32, DType::from);
    let num_shards = if update == Update::Sharded {
        context.grid().data_parallel_size()
    } else {
        1
    };
    let expected = bytes_per_parameter(dtype, config.num_state_tensors(), num_shards);
    let counted = bytes as f64 / num_parameters as f64;
    let facts = format!(
        "{counted:.2} bytes per parameter of {num_parameters} on rank {}, {expected} expected",
        context.rank()
    );
    println!("{facts}");
    ensure!((counted / expected - 1.0).abs() <= TOLERANCE, "{facts}");
    Ok(())
}

/// Trains another model for a step, and drops it. Threads keep the buffers in which matmuls pack their factors, whose
/// size depends on the processor: 2 MiB where its L2 cache has that many.
fn warm_up(config: &TrainingConfig) -> anyhow::Result<()> {
    let single = ParallelContext::single(problem::SEED);
    let model = GptConfig::new(1, 384, 4, SEQ_LENGTH, VOCAB_SIZE).init(&FlexDevice, &single)?;
    let mut trainer: Trainer<B, Gpt<B>> =
        Trainer::new(vec![model], config, TrainerConfig::new(), &single, &FlexDevice)?;
    trainer.step(&micro_batches(0, &single))?;
    Ok(())
}

fn micro_batches(step: u64, context: &ParallelContext) -> Vec<MicroBatch> {
    let per_rank = BATCH / context.grid().data_parallel_size();
    let first = step * BATCH as u64 + (context.coordinates().data * per_rank) as u64;
    let batch = |sample: u64| MicroBatch {
        micro_batch_size: 1,
        seq_length: SEQ_LENGTH,
        tokens: (0..SEQ_LENGTH as i32)
            .map(|place| (place * 7 + sample as i32) % VOCAB_SIZE as i32)
            .collect(),
        targets: (1..=SEQ_LENGTH as i32)
            .map(|place| (place * 7 + sample as i32) % VOCAB_SIZE as i32)
            .collect(),
        sample_ids: vec![sample],
        ..MicroBatch::default()
    };
    (first..first + per_rank as u64).map(batch).collect()
}
