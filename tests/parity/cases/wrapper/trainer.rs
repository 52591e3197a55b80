//! The trainer with a model that uses a parameter for some samples only, so that ranks fill different buckets.

use anyhow::ensure;
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn_megatron::context::ParallelContext;
use burn_megatron::data::MicroBatch;
use burn_megatron::data_parallel::DataParallelConfig;
use burn_megatron::pipeline_parallel::{PipelineStage, StageOutput};
use burn_megatron::training::{
    LanguageModel, LearningRateConfig, TokenBatch, Trainer, TrainerConfig, TrainingConfig, WeightDecayConfig,
};

use super::nets::{named, same_values};
use super::{ALL, Check, F64, checks};
use crate::parity::cases::comparison::{Closeness, SEED, Scene};

pub const CHECKS: &[Check] = checks! {
    the_trainer_takes_a_parameter_that_some_ranks_do_not_use: ALL, F64;
};

const VOCABULARY: usize = 5;
const GLOBAL_BATCH: u64 = 4;

/// A table of losses; tokens of even samples also get an offset.
#[derive(Module, Debug)]
struct SometimesOffset {
    table: Param<Tensor<1>>,
    offset: Param<Tensor<1>>,
}

impl SometimesOffset {
    fn new(scene: &Scene) -> Self {
        let numbers = |name, len| Param::from_tensor(scene.tensor(scene.random(name, len), [len]));
        Self {
            table: numbers("table", VOCABULARY),
            offset: numbers("offset", 1),
        }
    }
}

impl PipelineStage<2> for SometimesOffset {
    type MicroBatch = TokenBatch;

    fn input_shape(&self, _: &TokenBatch) -> [usize; 2] {
        unreachable!("there is one stage")
    }

    fn forward(&self, _: Option<Tensor<2>>, batch: &TokenBatch) -> StageOutput<2> {
        let tokens = batch.tokens(&self.table.val().device());
        let losses = self.table.val().select(0, tokens.reshape([batch.num_tokens()]));
        let losses = match batch.step.tokens.places()[0].sample % 2 {
            0 => losses + self.offset.val(),
            _ => losses,
        };
        StageOutput::Losses(losses.clone() * losses)
    }
}

impl LanguageModel for SometimesOffset {
    fn vocab_size(&self) -> usize {
        VOCABULARY
    }
}

fn trainer(scene: &Scene, context: &ParallelContext) -> anyhow::Result<Trainer<SometimesOffset>> {
    let config = TrainingConfig {
        seq_length: 3,
        micro_batch_size: 1,
        global_batch_size: GLOBAL_BATCH as usize,
        rampup_batch_size: None,
        train_samples: 3 * GLOBAL_BATCH,
        learning_rate: LearningRateConfig::constant(1e-2),
        weight_decay: WeightDecayConfig::constant(0.0),
        clip_grad: 0.0,
        adam_beta1: 0.9,
        adam_beta2: 0.95,
        adam_eps: 1e-8,
        sgd_momentum: None,
        optimizer: None,
        param_groups: None,
        seed: SEED,
        replica_check_interval: 1,
    };
    // A bucket per parameter.
    let data_parallel = DataParallelConfig::new().with_bucket_size(Some(1));
    let options = TrainerConfig {
        data_parallel,
        ..TrainerConfig::new()
    };
    let net = SometimesOffset::new(scene);
    Ok(Trainer::new(vec![net], &config, options, context, &tests::device())?)
}

fn micro_batch(sample: u64) -> MicroBatch {
    let token = |shift: u64| ((sample * 3 + shift) % VOCABULARY as u64) as i32;
    MicroBatch {
        tokens: (0..3).map(token).collect(),
        targets: (1..4).map(token).collect(),
        sample_ids: vec![sample],
        micro_batch_size: 1,
        seq_length: 3,
        ..MicroBatch::default()
    }
}

fn the_trainer_takes_a_parameter_that_some_ranks_do_not_use(scene: &Scene) -> anyhow::Result<()> {
    let (data, size) = (
        scene.context.coordinates().data as u64,
        scene.context.grid().data_parallel_size(),
    );
    let mut wrapped = trainer(scene, &scene.context)?;
    let mut alone = trainer(scene, &ParallelContext::single(SEED))?;
    for step in 0..3 {
        let samples = step * GLOBAL_BATCH..(step + 1) * GLOBAL_BATCH;
        let mine: Vec<_> = samples
            .clone()
            .skip(data as usize)
            .step_by(size)
            .map(micro_batch)
            .collect();
        let all: Vec<_> = samples.map(micro_batch).collect();
        let (part, whole) = (wrapped.step(&mine)?, alone.step(&all)?);
        ensure!(
            (part.loss - whole.loss).abs() <= 1e-12 * whole.loss.abs(),
            "step {step}: loss {} against {}",
            part.loss,
            whole.loss
        );
    }
    let expected = named(&alone.model()[0], None).values;
    same_values(
        scene,
        Closeness::Training,
        &named(&wrapped.model()[0], None).values,
        &expected,
    )
}
