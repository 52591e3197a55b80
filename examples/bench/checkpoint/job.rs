//! The training job that is saved: data-parallel ranks with a sharded optimizer, on random tokens.

use anyhow::Context as _;
use burn::tensor::Device;
use burn_megatron::checkpoint::ArrayPart;
use burn_megatron::context::ParallelContextConfig;
use burn_megatron::data_parallel::{DataParallelConfig, ShardingStrategy};
use burn_megatron::launch::World;
use burn_megatron::topology::ParallelConfig;
use burn_megatron::training::{LearningRateConfig, Trainer, TrainerConfig, TrainingConfig, WeightDecayConfig};
use models::ModelConfig;
use models::gpt::{Gpt, GptConfig, GptPreset};

use crate::checkpoint::Arguments;
use crate::sizes::{micro_batch, random_samples};

/// More steps than anybody measures.
const MAX_STEPS: u64 = 1 << 20;

/// One rank of the job.
pub struct Job {
    trainer: Trainer<Gpt>,
    model: GptConfig,
    seq_length: usize,
    samples: usize,
    rank: usize,
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
        let device = Device::flex().autodiff();
        let chunk = model.init(&device, &context)?;
        Ok(Self {
            trainer: Trainer::new(vec![chunk], &config, options, &context, &device)?,
            model,
            seq_length: arguments.seq_length,
            samples,
            rank: context.rank(),
        })
    }

    pub fn num_parameters(&self) -> usize {
        self.model.num_parameters()
    }

    pub fn snapshot(&self) -> anyhow::Result<Vec<ArrayPart>> {
        Ok(self.trainer.snapshot()?)
    }

    /// Trains one step on random tokens.
    pub fn step(&mut self) -> anyhow::Result<()> {
        let first = self.trainer.consumed_samples() + (self.rank * self.samples) as u64;
        let tokens = random_samples(first, self.samples, self.seq_length, self.model.vocab_size);
        self.trainer.step(&[micro_batch(&tokens, self.seq_length, first)])?;
        Ok(())
    }
}
