//! The training job that is saved: data-parallel ranks with a sharded optimizer, on made-up tokens.

use anyhow::Context as _;
use burn::backend::Autodiff;
use burn_flex::{Flex, FlexDevice};
use burn_megatron::checkpoint::ArrayPart;
use burn_megatron::context::ParallelContextConfig;
use burn_megatron::data::MicroBatch;
use burn_megatron::data_parallel::{DataParallelConfig, ShardingStrategy};
use burn_megatron::launch::World;
use burn_megatron::topology::ParallelConfig;
use burn_megatron::training::{LearningRateConfig, Trainer, TrainerConfig, TrainingConfig, WeightDecayConfig};
use models::ModelConfig;
use models::gpt::{Gpt, GptConfig, GptPreset};

use crate::checkpoint::Arguments;

/// More steps than anybody measures.
const MAX_STEPS: u64 = 1 << 20;

/// One rank of the job.
pub struct Job {
    trainer: Trainer<Autodiff<Flex>, Gpt<Autodiff<Flex>>>,
    model: GptConfig,
    config: TrainingConfig,
    rank: u64,
}

impl Job {
    pub fn new(arguments: &Arguments, world: &World) -> anyhow::Result<Self> {
        let context = ParallelContextConfig::new(ParallelConfig::new())
            .with_seed(1)
            .init(world)?;
        let preset = GptPreset::named(&arguments.model_size).context("the flag takes the names that there are")?;
        let mut model = preset.config();
        model.n_layers = arguments.num_layers.unwrap_or(model.n_layers);
        let samples = arguments.samples_per_rank;
        let global_batch_size = samples * world.world_size();
        let config = TrainingConfig::new(
            arguments.seq_length,
            samples,
            global_batch_size,
            MAX_STEPS * global_batch_size as u64,
            LearningRateConfig::constant(1e-4),
        )
        .with_weight_decay(WeightDecayConfig::constant(0.1))
        .with_adam_beta2(0.95)
        .with_seed(1);
        let options = TrainerConfig {
            data_parallel: DataParallelConfig::new().with_sharding(ShardingStrategy::Optim),
            ..TrainerConfig::new()
        };
        let chunk = model.init(&FlexDevice, &context)?;
        Ok(Self {
            trainer: Trainer::new(vec![chunk], &config, options, &context, &FlexDevice)?,
            model,
            config,
            rank: context.rank() as u64,
        })
    }

    pub fn num_parameters(&self) -> usize {
        self.model.num_parameters()
    }

    pub fn snapshot(&self) -> anyhow::Result<Vec<ArrayPart>> {
        Ok(self.trainer.snapshot()?)
    }

    /// Trains one step on tokens of no meaning.
    pub fn step(&mut self) -> anyhow::Result<()> {
        let samples = self.config.micro_batch_size;
        let count = samples * self.config.seq_length;
        let first = self.trainer.iteration() * 7919 + self.rank * 104_729;
        let token = |number: usize| ((first + number as u64 * 31) % self.model.vocab_size as u64) as i32;
        let micro_batch = MicroBatch {
            tokens: (0..count).map(token).collect(),
            targets: (1..=count).map(token).collect(),
            sample_ids: (0..samples as u64)
                .map(|sample| self.trainer.consumed_samples() + self.rank * samples as u64 + sample)
                .collect(),
            micro_batch_size: samples,
            seq_length: self.config.seq_length,
            ..MicroBatch::default()
        };
        self.trainer.step(&[micro_batch])?;
        Ok(())
    }
}
