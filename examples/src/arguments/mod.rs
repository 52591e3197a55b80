//! Command-line flags of the training programs, with Megatron-LM's names, grouped by topic in `--help`.

mod adapters;
mod architecture;
mod checkpointing;
mod data;
mod device;
mod evaluation;
mod generation;
mod learning_rate;
mod logging;
mod model;
mod monitoring;
mod optimization;
mod parallel;
mod precision;
mod serving;
mod stages;

use std::ops::Range;
use std::path::PathBuf;

use burn::tensor::DType;
use burn_megatron::checkpoint::Checkpoint;
use burn_megatron::launch::Environment;
use burn_megatron::optimizer::bytes_per_parameter;
use burn_megatron::pipeline_parallel::schedule::ScheduleConfig;
use burn_megatron::topology::RankGrid;
use burn_megatron::training::TrainingConfig;
use burn_megatron::training::memory::machine_bytes;
use burn_megatron::training::preflight::Statement;
use burn_megatron_data::programs::TokenizerArguments;
use clap::Args;
use models::memory::{MemorySetting, bytes_of_stages};

use crate::figures::bytes;
use crate::run_tokenizer::RunTokenizer;
pub use adapters::AdapterArguments;
pub use architecture::ArchitectureArguments;
pub use checkpointing::CheckpointArguments;
pub use data::{DataArguments, TextSource, parse_size};
pub use device::DeviceArguments;
pub use evaluation::{EvaluationArguments, TaskArguments, TaskKind};
pub use generation::{BatchArguments, GenerationArguments, GeneratorArguments, SampleArguments, USUAL_FOLDER};
pub use learning_rate::{DecayStyle, LearningRateArguments, WsdDecayStyle};
pub use logging::LoggingArguments;
pub use model::ModelArguments;
pub use monitoring::{MonitoringArguments, TimingLogOption};
pub use optimization::{OptimizationArguments, OptimizerKind, WeightDecayStyle};
pub use parallel::{CommunicationArguments, NodeArguments, ParallelArguments};
pub use precision::{Dtype, PrecisionArguments};
pub use serving::{ApiKey, LimitArguments, ListeningArguments, ServerArguments};
pub use stages::{RecomputeArguments, RecomputeGranularity, RecomputeMethod, StageArguments};

/// Everything a training program takes.
#[derive(Args, Clone, Debug)]
pub struct TrainingArguments {
    #[command(flatten)]
    #[allow(missing_docs)]
    pub parallel: ParallelArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub model: ModelArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub data: DataArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub optimization: OptimizationArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub precision: PrecisionArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub device: DeviceArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub checkpoints: CheckpointArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub adapters: AdapterArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub logging: LoggingArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub monitoring: MonitoringArguments,
}

impl TrainingArguments {
    /// Finds what is wrong with the flags before any rank is started.
    ///
    /// # Errors
    /// The first rule that is broken, with the values and the nearest valid ones.
    pub fn validate(&self) -> anyhow::Result<()> {
        let parallel = self.parallel.config();
        let grid = parallel.grid(self.parallel.world_size())?;
        self.parallel.communication.timeout()?;
        self.logging.validate()?;
        let batch_sizes = self.optimization.batch_sizes()?;
        self.logging
            .validate_profile(&batch_sizes, self.optimization.num_steps()?)?;
        self.monitoring.validate(
            grid.world_size(),
            self.optimization.num_steps()?,
            self.logging.profile_steps(),
        )?;
        self.model.validate()?;
        self.precision.validate()?;
        self.device.validate(self.precision.dtype())?;
        self.checkpoints.validate()?;
        self.adapters.validate()?;
        self.data.source()?;
        let vocabulary_size = self.vocabulary_size()?;
        let model = self.model.config(vocabulary_size)?;
        model.validate(&parallel)?;
        let training = self.training_config(self.model.sample_length(&*model))?;
        training.validate(&grid, parallel.sequence_parallel)?;
        let sizes = self.parallel.layer_sizes(model.n_layers())?;
        let num_micro_batches = training.num_micro_batches(grid.data_parallel_size())?;
        let (layers, schedule) = self.parallel.stages.plan(sizes, num_micro_batches)?;
        let every_step = ScheduleConfig {
            kind: self.parallel.stages.schedule(sizes.num_chunks)?,
            num_stages: sizes.num_stages,
            num_chunks: sizes.num_chunks,
            num_micro_batches,
        };
        training.validate_stages(&every_step, grid.data_parallel_size())?;
        self.model.recompute.validate_layers(&layers)?;
        // Activations are of a sample's tokens, however large the table of positions is.
        let of_samples = ModelArguments {
            max_position_embeddings: None,
            ..self.model.clone()
        };
        let stage_bytes = bytes_of_stages(
            &*of_samples.config(vocabulary_size)?,
            &MemorySetting {
                parallel: &parallel,
                layers: &layers,
                schedule: &schedule,
                micro_batch_size: self.optimization.micro_batch_size,
                element_bytes: DType::from(self.precision.dtype()).size(),
                parameter_bytes: self.bytes_per_parameter(&grid, training.num_state_tensors()),
            },
        );
        let machine = machine_bytes().map_or(f64::INFINITY, |bytes| bytes as f64);
        check_memory(&stage_bytes, &grid, self.local_ranks(&grid)?, machine)
    }

    /// The tokens of the vocabulary that the flags name, or that the checkpoint to continue from has.
    ///
    /// # Errors
    /// When a file of the tokenizer cannot be read.
    pub fn vocabulary_size(&self) -> anyhow::Result<usize> {
        // What is wrong with the checkpoint is said when it is loaded.
        let load = self.checkpoints.load.as_deref();
        let checkpoint = load.and_then(|folder| Checkpoint::find(folder).ok());
        let tokenizer = RunTokenizer::choose(&self.data.tokenizer, checkpoint.as_ref(), self.model.objective()?)?;
        Ok(tokenizer.vocabulary_size())
    }

    fn bytes_per_parameter(&self, grid: &RankGrid, num_state_tensors: usize) -> f64 {
        if self.adapters.lora_rank.is_some() {
            // Parameters that are not trained have no gradients and no optimizer state; adapters are few.
            return DType::from(self.precision.dtype()).size() as f64;
        }
        let num_shards = if self.parallel.communication.use_distributed_optimizer {
            grid.data_parallel_size()
        } else {
            1
        };
        bytes_per_parameter(self.precision.dtype().into(), num_state_tensors, num_shards)
    }

    /// The ranks on this machine, which a launcher numbers one after the other.
    fn local_ranks(&self, grid: &RankGrid) -> anyhow::Result<Range<usize>> {
        let nodes = &self.parallel.nodes;
        let (first, count) = match Environment::detect()? {
            Some(environment) => (
                environment.rank.saturating_sub(environment.local_rank),
                environment.local_world_size,
            ),
            None => {
                let each = grid.world_size() / nodes.nnodes.max(1);
                (nodes.node_rank.saturating_mul(each), each)
            }
        };
        let last = first.saturating_add(count).min(grid.world_size());
        Ok(first.min(last)..last)
    }

    /// Returns what must be the same on every rank: all flags except those that say where a rank is, what it writes,
    /// and where the text is stored. The text itself is compared.
    pub fn statement(&self) -> Statement {
        let mut common = self.clone();
        common.parallel.nodes = NodeArguments::default();
        // Texts and tokenizers are compared by their contents.
        common.data.data_path.clear();
        common.data.data_cache_path = None;
        common.data.tokenizer = TokenizerArguments::default();
        common.parallel.communication.flight_recorder = None;
        common.logging.log_jsonl = None;
        // Where the files are is rank 0's business; that there are some is everyone's.
        common.logging.timeline = self.logging.wants_timeline().then(PathBuf::new);
        common.logging.trace = None;
        common.monitoring = self.monitoring.common();
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
            seed: u64::from(flags.seed),
            replica_check_interval: self.logging.check_weight_hash_across_dp_replicas_interval,
        })
    }
}

/// Refuses ranks that cannot fit a machine together, before an allocation does it without a word.
fn check_memory(stage_bytes: &[f64], grid: &RankGrid, local: Range<usize>, machine: f64) -> anyhow::Result<()> {
    let needs: Vec<f64> = local.map(|rank| stage_bytes[grid.coordinates(rank).pipeline]).collect();
    let all: f64 = needs.iter().sum();
    let largest = needs.iter().copied().fold(0.0, f64::max);
    anyhow::ensure!(
        all <= machine,
        "{} would need about {} for parameters, optimizer and activations, up to {} each, and this machine has {}; use \
         a smaller model, a shorter sequence, a smaller micro-batch, --recompute-granularity full or more machines",
        match needs.len() {
            1 => "1 rank".to_owned(),
            count => format!("{count} ranks"),
        },
        bytes(all as u64),
        bytes(largest as u64),
        bytes(machine as u64)
    );
    Ok(())
}

#[cfg(test)]
mod tests;
