//! Command-line flags of the training programs, with Megatron-LM's names, grouped by topic in `--help`.

mod architecture;
mod checkpointing;
mod data;
mod deepspeed;
mod device;
mod evaluation;
mod foreign;
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
use models::ModelConfig;
use models::registry::{AnyModel, FamilyProgram, run_with_family};

pub use crate::device::Dtype;
use crate::run_tokenizer::RunTokenizer;
use crate::saved_state::trained_length;
pub use architecture::ArchitectureArguments;
pub use checkpointing::CheckpointArguments;
pub use data::{ConversationFiles, DataArguments, TextSource, parse_size};
pub use deepspeed::DeepSpeedArguments;
pub use device::DeviceArguments;
pub use evaluation::{EvaluationArguments, TaskArguments, TaskKind};
pub use foreign::{is_first, parse, parse_from};
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
pub(crate) use validation::NEEDS_LESS;

/// The longest sample unless another is asked for: the texts that models of today take would fill a GPU's memory.
const MAX_DEFAULT_SAMPLE: usize = 4096;

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
    /// Runs a program with the family of the model that is trained.
    ///
    /// # Errors
    /// When the flags name no family, or the program fails.
    pub fn run<T>(&self, program: impl FamilyProgram<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
        run_with_family(self.model.family(self.checkpoint().as_ref())?.name, program)?
    }

    /// The model that is trained, whatever its family: that of the checkpoint, if there is one.
    ///
    /// # Errors
    /// When the flags name another model or tokenizer than the checkpoint has.
    pub fn any_model(&self, checkpoint: Option<&Checkpoint>) -> anyhow::Result<Box<dyn AnyModel>> {
        let objective = self.model.objective(checkpoint)?;
        let tokenizer = RunTokenizer::choose(&self.data.tokenizer, checkpoint, objective)?;
        self.model.config(checkpoint, tokenizer.vocabulary_size())
    }

    /// The tokens of a sample: what was asked for, or those of the run that is continued, or the most that the model
    /// takes, 4096 at most.
    ///
    /// # Errors
    /// When there are more of them than the model takes.
    pub fn sample_length(&self, model: &dyn ModelConfig, checkpoint: Option<&Checkpoint>) -> anyhow::Result<usize> {
        let continued = checkpoint.filter(|_| !self.checkpoints.finetune);
        let positions = model.max_seq_length();
        let length = self.model.seq_length.or_else(|| continued.and_then(trained_length));
        let length = length.unwrap_or(positions.min(MAX_DEFAULT_SAMPLE));
        anyhow::ensure!(
            length <= positions,
            "--seq-length must be at most {positions}, the positions of the model (--max-position-embeddings), got \
             {length}"
        );
        Ok(length)
    }

    /// The checkpoint to continue from, if there is one. What is wrong with it is said when it is loaded: here every
    /// rank looks at it.
    pub(crate) fn checkpoint(&self) -> Option<Checkpoint> {
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
        common.data.data_args_path = None;
        common.data.data_cache_path = None;
        common.data.tokenizer = TokenizerArguments::default();
        common.parallel.communication.flight_recorder = None;
        common.logging.log_jsonl = None;
        // Where the files are is rank 0's business; that there are some is everyone's.
        common.logging.timeline = self.logging.wants_timeline().then(PathBuf::new);
        common.logging.trace = None;
        // Each node may have its disks elsewhere.
        common.offload.nvme_path = self.offload.nvme_path.is_some().then(PathBuf::new);
        common.offload.param_nvme_path = self.offload.param_nvme_path.is_some().then(PathBuf::new);
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
