//! Command-line flags of the training programs, with Megatron-LM's names, grouped by topic in `--help`.

mod architecture;
mod checkpointing;
mod data;
mod deepspeed;
mod device;
mod evaluation;
mod generation;
mod logging;
mod model;
mod monitoring;
mod offload;
mod parallel;
mod precision;
mod serving;
mod stages;
mod training;
mod validation;

use std::path::PathBuf;

use burn_megatron::checkpoint::{Checkpoint, ReadConfig};
use burn_megatron::training::TrainingConfig;
use burn_megatron::training::preflight::Statement;
use burn_megatron_data::programs::TokenizerArguments;
use clap::Args;

pub use crate::device::Dtype;
use crate::run_tokenizer::RunTokenizer;
pub use architecture::ArchitectureArguments;
pub use checkpointing::CheckpointArguments;
pub use data::{DataArguments, TextSource, parse_size};
pub use deepspeed::DeepSpeedArguments;
pub use device::DeviceArguments;
pub use evaluation::{EvaluationArguments, TaskArguments, TaskKind};
pub use generation::{BatchArguments, GenerationArguments, GeneratorArguments, SampleArguments, USUAL_FOLDER};
pub use logging::LoggingArguments;
pub use model::ModelArguments;
pub use monitoring::{MonitoringArguments, SamplePrompt, TimingLogOption};
pub use offload::{OffloadArguments, OffloadPlace};
pub use parallel::{CommunicationArguments, LauncherArguments, LayerOverlap, ParallelArguments, THOUSANDS_OF_RANKS};
pub use precision::PrecisionArguments;
pub use serving::{ApiKey, LimitArguments, ListeningArguments, ServerArguments};
pub use stages::{RecomputeArguments, RecomputeGranularity, RecomputeMethod, StageArguments};
pub use training::adapters::AdapterArguments;
pub use training::learning_rate::{DecayStyle, LearningRateArguments, WsdDecayStyle};
pub use training::optimization::{MuonScaleMode, OptimizationArguments, OptimizerKind, WeightDecayStyle};

/// Everything a training program takes.
#[derive(Args, Clone, Debug)]
pub struct TrainingArguments {
    #[command(flatten)]
    pub parallel: ParallelArguments,
    #[command(flatten)]
    pub model: ModelArguments,
    #[command(flatten)]
    pub data: DataArguments,
    #[command(flatten)]
    pub optimization: OptimizationArguments,
    #[command(flatten)]
    pub offload: OffloadArguments,
    #[command(flatten)]
    pub precision: PrecisionArguments,
    #[command(flatten)]
    pub device: DeviceArguments,
    #[command(flatten)]
    pub checkpoints: CheckpointArguments,
    #[command(flatten)]
    pub adapters: AdapterArguments,
    #[command(flatten)]
    pub logging: LoggingArguments,
    #[command(flatten)]
    pub monitoring: MonitoringArguments,
    #[command(flatten)]
    pub deepspeed: DeepSpeedArguments,
}

impl TrainingArguments {
    /// The tokens of the vocabulary that the flags name, or that the checkpoint to continue from has.
    pub fn vocabulary_size(&self) -> anyhow::Result<usize> {
        self.vocabulary_size_with(self.checkpoint().as_ref())
    }

    fn vocabulary_size_with(&self, checkpoint: Option<&Checkpoint>) -> anyhow::Result<usize> {
        let tokenizer = RunTokenizer::choose(&self.data.tokenizer, checkpoint, self.model.objective()?)?;
        Ok(tokenizer.vocabulary_size())
    }

    /// The checkpoint to continue from, if there is one. What is wrong with it is said when it is loaded: here every
    /// rank looks at it.
    fn checkpoint(&self) -> Option<Checkpoint> {
        let load = self.checkpoints.load.as_deref();
        let options = ReadConfig::new().with_shards_later(true);
        load.and_then(|folder| Checkpoint::find_with(folder, options).ok())
    }

    /// Returns what must be the same on every rank: all flags except those that say where a rank is, what it writes,
    /// and where the text is stored. The text itself is compared.
    pub fn statement(&self) -> Statement {
        let mut common = self.clone();
        common.parallel.launcher = LauncherArguments::default();
        // Texts and tokenizers are compared by their contents.
        common.data.data_path.clear();
        common.data.data_cache_path = None;
        common.data.tokenizer = TokenizerArguments::default();
        common.parallel.communication.flight_recorder = None;
        common.logging.log_jsonl = None;
        // Where the files are is rank 0's business; that there are some is everyone's.
        common.logging.timeline = self.logging.wants_timeline().then(PathBuf::new);
        common.logging.trace = None;
        // Each node may have its disks elsewhere.
        common.offload.nvme_path = self.offload.nvme_path.is_some().then(PathBuf::new);
        common.monitoring = self.monitoring.common();
        // Its keys are flags by now.
        common.deepspeed = DeepSpeedArguments::default();
        Statement {
            what: "configuration",
            value: format!("{common:#?}"),
        }
    }

    /// The trainer's configuration.
    ///
    /// # Errors
    /// When flags are given that do not belong together, or a length is too large.
    pub fn training_config(&self, seq_length: usize) -> anyhow::Result<TrainingConfig> {
        let flags = &self.optimization;
        let train_samples = flags.train_samples()?;
        Ok(TrainingConfig {
            seq_length,
            micro_batch_size: flags.micro_batch_size,
            global_batch_size: flags.global_batch_size,
            rampup_batch_size: flags.ramp_up()?,
            train_samples,
            learning_rate: flags.learning_rate.config(flags.counting(), train_samples)?,
            weight_decay: flags.weight_decay()?,
            clip_grad: flags.clip_grad,
            adam_beta1: flags.adam_beta1,
            adam_beta2: flags.adam_beta2,
            adam_eps: flags.adam_eps,
            sgd_momentum: flags.momentum()?,
            optimizer: Some(flags.optimizer_choice()?),
            param_groups: flags.groups(),
            seed: u64::from(flags.seed),
            replica_check_interval: self.logging.check_weight_hash_across_dp_replicas_interval,
        })
    }
}

#[cfg(test)]
pub(crate) mod tests;
