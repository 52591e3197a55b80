//! Command-line flags of the training programs, with Megatron-LM's names, grouped by topic in `--help`.
//!
//! Parsed by the programs, turned into the library's configurations here.

mod stages;

use std::ops::Range;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use burn::tensor::DType;
use burn_megatron::data::ByteTokenizer;
use burn_megatron::launch::{Environment, JoinOptions, Nodes};
use burn_megatron::pipeline_parallel::LayerSizes;
use burn_megatron::topology::{ParallelConfig, RankGrid};
use burn_megatron::training::memory::machine_bytes;
use burn_megatron::training::preflight::Statement;
use burn_megatron::training::{LearningRateDecay, TrainingConfig};
use clap::{Args, ValueEnum};
use models::gpt::{GptConfig, GptPreset, MemorySetting};

use crate::progress::bytes;
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
    pub logging: LoggingArguments,
}

/// How the ranks share the work.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Parallelism")]
pub struct ParallelArguments {
    /// Ranks that share each layer
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub tensor_model_parallel_size: usize,
    /// Shard the activations between tensor-parallel regions along the tokens
    #[arg(long)]
    pub sequence_parallel: bool,
    /// Stages that the layers are cut into, each on ranks of its own
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub pipeline_model_parallel_size: usize,
    /// Layers of each chunk, where a stage has several chunks [default: one chunk per stage]
    #[arg(long, value_name = "N", conflicts_with_all = ["num_virtual_stages_per_pipeline_rank", "pipeline_model_parallel_layout", "decoder_first_pipeline_num_layers", "decoder_last_pipeline_num_layers"])]
    pub num_layers_per_virtual_pipeline_stage: Option<usize>,
    /// Chunks per stage [default: 1]
    #[arg(long, value_name = "N")]
    pub num_virtual_stages_per_pipeline_rank: Option<usize>,
    /// Ranks in all [default: tensor-model-parallel size * pipeline-model-parallel size]; those beyond one model see
    /// different samples
    #[arg(long, value_name = "N")]
    pub world_size: Option<usize>,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub stages: StageArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub communication: CommunicationArguments,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub nodes: NodeArguments,
}

/// One launcher per node, for a job on several that no other launcher starts.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Several nodes (with BURN_MEGATRON_JOB_TOKEN the same secret on each)")]
pub struct NodeArguments {
    /// Nodes; this program is started once on each, and starts its share of the ranks
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub nnodes: usize,
    /// This node's number, from 0
    #[arg(long, value_name = "K", default_value_t = 0)]
    pub node_rank: usize,
    /// Name or address of node 0, by which every node reaches it
    #[arg(long, value_name = "HOST")]
    pub master_addr: Option<String>,
    /// Port on node 0 where the ranks meet
    #[arg(long, value_name = "PORT", default_value_t = 29500, value_parser = clap::value_parser!(u16).range(1..))]
    pub master_port: u16,
    /// Interface to listen on: a name, an address or a network such as 10.0.0.0/8 [default: loopback on one node, else
    /// the one that reaches node 0]
    #[arg(long, value_name = "INTERFACE", env = "BURN_MEGATRON_INTERFACE")]
    pub interface: Option<String>,
}

/// How the ranks talk to each other.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Parallelism")]
pub struct CommunicationArguments {
    /// The longest wait for another rank
    #[arg(long, value_name = "MINUTES", default_value_t = 10.0)]
    pub distributed_timeout_minutes: f64,
    /// The longest silence of a rank, or of the node that hosts the store; at most three quarters of the timeout count
    /// [default: 30]
    #[arg(long, value_name = "SECONDS", env = "BURN_MEGATRON_HEARTBEAT_LIMIT_SECS")]
    pub heartbeat_limit_secs: Option<f64>,
    /// Elements per gradient bucket [default: the larger of 40000000 and 1000000 per data-parallel rank]
    #[arg(long, value_name = "N")]
    pub ddp_bucket_size: Option<usize>,
    /// Write each rank's last collectives to this folder on failure and on SIGUSR1, for the example flight_recorder
    #[arg(long, value_name = "DIR")]
    pub flight_recorder: Option<PathBuf>,
}

/// The model's sizes. The defaults are those of a small model that two cores train in minutes.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Model")]
pub struct ModelArguments {
    /// A well-known size; the flags below override parts of it
    #[arg(long, value_name = "NAME", value_parser = clap::builder::PossibleValuesParser::new(GptPreset::ALL.map(|preset| preset.name)))]
    pub model_size: Option<String>,
    /// Transformer layers [default: 4]
    #[arg(long, value_name = "N")]
    pub num_layers: Option<usize>,
    /// Size of each token [default: 256]
    #[arg(long, value_name = "N")]
    pub hidden_size: Option<usize>,
    /// Attention heads [default: 4]
    #[arg(long, value_name = "N")]
    pub num_attention_heads: Option<usize>,
    /// Tokens per sample [default: 128, or the preset's]
    #[arg(long, value_name = "N")]
    pub seq_length: Option<usize>,
    /// Rows of the embedding with padding [default: the next multiple of 128 * tensor size]; changes no result
    #[arg(long, value_name = "N")]
    pub padded_vocab_size: Option<usize>,
    /// Standard deviation of the weights at the start
    #[arg(long, value_name = "X", default_value_t = 0.02)]
    pub init_method_std: f64,
    /// Give the output head weights of its own
    #[arg(long)]
    pub untie_embeddings_and_output_weights: bool,
    /// Probability with which an element of a hidden state falls
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub hidden_dropout: f64,
    /// Probability with which an attention weight falls
    #[arg(long, value_name = "P", default_value_t = 0.0)]
    pub attention_dropout: f64,
    /// Element type of parameters and arithmetic
    #[arg(long, value_enum, default_value_t = Dtype::F32)]
    pub dtype: Dtype,
    #[command(flatten)]
    #[allow(missing_docs)]
    pub recompute: RecomputeArguments,
}

/// Where the text comes from.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Data")]
pub struct DataArguments {
    /// Files or folders of UTF-8 text [default: the Rust sources that cargo downloaded to build this program]
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub data_path: Vec<PathBuf>,
    /// Read at most this much text, a spread of it all: bytes, or with a unit as in 16MiB [default: 16MiB of the
    /// default sources, all of --data-path]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    pub data_limit: Option<u64>,
}

/// How the model is trained.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Optimization")]
pub struct OptimizationArguments {
    /// Samples that a rank takes through the model at once
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub micro_batch_size: usize,
    /// Samples per step over all ranks
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub global_batch_size: usize,
    /// Optimizer steps
    #[arg(long, value_name = "N", default_value_t = 400)]
    pub train_iters: u64,
    /// Highest learning rate
    #[arg(long, value_name = "RATE", default_value_t = 2e-3)]
    pub lr: f64,
    /// Lowest learning rate
    #[arg(long, value_name = "RATE", default_value_t = 2e-4)]
    pub min_lr: f64,
    /// How the learning rate comes down
    #[arg(long, value_enum, default_value_t = DecayStyle::Cosine)]
    pub lr_decay_style: DecayStyle,
    /// Step at which the decay ends [default: train-iters]
    #[arg(long, value_name = "N")]
    pub lr_decay_iters: Option<u64>,
    /// Steps over which the learning rate rises from zero [default: a twentieth of train-iters]
    #[arg(long, value_name = "N")]
    pub lr_warmup_iters: Option<u64>,
    /// Weight decay; biases and norms do not decay
    #[arg(long, value_name = "X", default_value_t = 0.1)]
    pub weight_decay: f64,
    /// Largest global norm of the gradient; 0 for no limit
    #[arg(long, value_name = "NORM", default_value_t = 1.0)]
    pub clip_grad: f64,
    /// Decay of Adam's mean of gradients
    #[arg(long, value_name = "X", default_value_t = 0.9)]
    pub adam_beta1: f64,
    /// Decay of Adam's mean of squared gradients
    #[arg(long, value_name = "X", default_value_t = 0.95)]
    pub adam_beta2: f64,
    /// Added to the root of Adam's second moment
    #[arg(long, value_name = "X", default_value_t = 1e-8)]
    pub adam_eps: f64,
    /// Seed of initialisation, dropout and sample order
    #[arg(long, value_name = "N", default_value_t = 1234)]
    pub seed: u32,
}

/// What is told of the run, and how often.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Logging and validation")]
pub struct LoggingArguments {
    /// Steps between lines of output
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub log_interval: u64,
    /// Steps between validations; 0 for none but the one at the end
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub eval_interval: u64,
    /// Global batches per validation; 0 for no validation
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub eval_iters: u64,
    /// Steps between comparisons of replicated parameters over the ranks; 0 for none
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub check_weight_hash_across_dp_replicas_interval: u64,
    /// Write one JSON object per step to this file
    #[arg(long, value_name = "PATH")]
    pub log_jsonl: Option<PathBuf>,
    /// Tell each rank's time in compute and in waiting with each line, and name the slowest
    #[arg(long)]
    pub log_stragglers: bool,
    /// Share of the median by which a rank must compute longer to be named a straggler
    #[arg(long, value_name = "X", default_value_t = 0.1)]
    pub straggler_share: f64,
    /// Draw what each rank did when, and the simulated schedule below it, as an SVG
    #[arg(long, value_name = "PATH")]
    pub timeline: Option<PathBuf>,
    /// Write what each rank did when in Chrome's trace format, for Perfetto
    #[arg(long, value_name = "PATH")]
    pub trace: Option<PathBuf>,
    /// First step of timeline and trace
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub profile_step_start: u64,
    /// Last step of timeline and trace [default: profile-step-start]
    #[arg(long, value_name = "N")]
    pub profile_step_end: Option<u64>,
    /// Stop all ranks, with exit code 0, after the step in which this time since the start ends
    #[arg(long, value_name = "MINUTES")]
    pub exit_duration_in_mins: Option<f64>,
}

/// An element type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Dtype {
    /// 32-bit floats.
    F32,
    /// 64-bit floats, the sharpest comparison.
    F64,
}

impl From<Dtype> for DType {
    fn from(dtype: Dtype) -> Self {
        match dtype {
            Dtype::F32 => DType::F32,
            Dtype::F64 => DType::F64,
        }
    }
}

/// How the learning rate comes down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DecayStyle {
    /// It does not.
    Constant,
    /// Along a line.
    Linear,
    /// Along half a cosine.
    Cosine,
}

impl LoggingArguments {
    /// How long a run may take, if a person said so.
    pub fn exit_duration(&self) -> Option<Duration> {
        self.exit_duration_in_mins
            .map(|minutes| Duration::from_secs_f64(minutes * 60.0))
    }

    /// The steps of timeline and trace.
    pub fn profile_steps(&self) -> std::ops::Range<u64> {
        let start = self.profile_step_start;
        start..self.profile_step_end.unwrap_or(start).saturating_add(1)
    }

    /// Whether a timeline is wanted.
    pub fn wants_timeline(&self) -> bool {
        self.timeline.is_some() || self.trace.is_some()
    }

    /// Checks the values that a type does not.
    ///
    /// # Errors
    /// When a time or a share is negative or not a number, or a time is no less than a year.
    pub fn validate(&self) -> anyhow::Result<()> {
        let share = self.straggler_share;
        anyhow::ensure!(
            share.is_finite() && share >= 0.0,
            "--straggler-share must be finite and not negative, got {share}"
        );
        let (start, end) = (self.profile_step_start, self.profile_steps().end);
        anyhow::ensure!(
            start > 0 && start < end,
            "--profile-step-start must be at least 1 and at most --profile-step-end, got {start} and {}",
            end.saturating_sub(1)
        );
        if let Some(minutes) = self.exit_duration_in_mins {
            anyhow::ensure!(
                minutes > 0.0 && minutes < 60.0 * 24.0 * 366.0,
                "--exit-duration-in-mins must lie above 0 and below a year, got {minutes}"
            );
        }
        Ok(())
    }
}

impl LoggingArguments {
    /// Checks timeline and trace against the length of the run.
    ///
    /// # Errors
    /// When a file is wanted of steps that do not come, or both files are the same.
    pub fn validate_profile(&self, train_iters: u64) -> anyhow::Result<()> {
        if !self.wants_timeline() {
            return Ok(());
        }
        let (first, last) = (self.profile_step_start, self.profile_steps().end - 1);
        anyhow::ensure!(
            last <= train_iters,
            "--timeline and --trace need --profile-step-start and --profile-step-end within the {train_iters} steps of \
             --train-iters, got {first} and {last}"
        );
        anyhow::ensure!(
            self.timeline != self.trace,
            "--timeline and --trace must be different files, got {:?} for both",
            self.timeline.as_deref().unwrap_or(std::path::Path::new(""))
        );
        Ok(())
    }
}

impl ParallelArguments {
    /// The sizes of the axes.
    pub fn config(&self) -> ParallelConfig {
        ParallelConfig {
            tensor_parallel_size: self.tensor_model_parallel_size,
            pipeline_parallel_size: self.pipeline_model_parallel_size,
            sequence_parallel: self.sequence_parallel,
        }
    }

    /// The number of ranks.
    pub fn world_size(&self) -> usize {
        let model = self
            .tensor_model_parallel_size
            .saturating_mul(self.pipeline_model_parallel_size);
        self.world_size.unwrap_or(model)
    }

    /// The stages, their chunks and the layers that they share.
    ///
    /// # Errors
    /// When the layers do not divide into chunks of the size that was asked for, with the nearest valid sizes.
    pub fn layer_sizes(&self, n_layers: usize) -> anyhow::Result<LayerSizes> {
        let num_stages = self.pipeline_model_parallel_size;
        let num_chunks = match self.num_layers_per_virtual_pipeline_stage {
            None => self.num_virtual_stages_per_pipeline_rank.unwrap_or(1),
            Some(each) => {
                let per_stage = n_layers / num_stages.max(1);
                let is_valid = |each: usize| {
                    let divisor = each.saturating_mul(num_stages);
                    divisor > 0 && n_layers.is_multiple_of(divisor)
                };
                let nearest: Vec<String> = (1..=per_stage)
                    .filter(|&n| is_valid(n))
                    .map(|n| n.to_string())
                    .collect();
                anyhow::ensure!(
                    is_valid(each),
                    "--num-layers-per-virtual-pipeline-stage must divide the layers of each stage, {n_layers} / \
                     {num_stages}, got {each}; valid values are {}",
                    if nearest.is_empty() {
                        "none".to_owned()
                    } else {
                        nearest.join(", ")
                    }
                );
                per_stage / each
            }
        };
        Ok(LayerSizes {
            n_layers,
            num_stages,
            num_chunks,
        })
    }
}

impl Default for NodeArguments {
    /// One node.
    fn default() -> Self {
        Self {
            nnodes: 1,
            node_rank: 0,
            master_addr: None,
            master_port: 29500,
            interface: None,
        }
    }
}

impl NodeArguments {
    /// This launcher's place among those of all nodes; `None` for one node.
    ///
    /// # Errors
    /// When there are several nodes and no address of node 0.
    pub fn nodes(&self) -> anyhow::Result<Option<Nodes>> {
        if self.nnodes == 1 && self.node_rank == 0 {
            return Ok(None);
        }
        let address = self.master_addr.clone().with_context(|| {
            format!(
                "--nnodes {} needs --master-addr: the name or address of node 0",
                self.nnodes
            )
        })?;
        Ok(Some(Nodes {
            count: self.nnodes,
            rank: self.node_rank,
            master_addr: address,
            master_port: self.master_port,
        }))
    }
}

impl CommunicationArguments {
    /// How this process joins its job.
    ///
    /// # Errors
    /// As [`timeout`](Self::timeout); when the heartbeats' limit is not from 0.5 to 86400 seconds.
    pub fn join_options(&self) -> anyhow::Result<JoinOptions> {
        let limit = self.heartbeat_limit_secs;
        anyhow::ensure!(
            limit.is_none_or(|limit| (0.5..=86400.0).contains(&limit)),
            "--heartbeat-limit-secs must lie between 0.5 and 86400, got {}",
            limit.unwrap_or_default()
        );
        Ok(JoinOptions {
            heartbeat_limit: limit.map(Duration::from_secs_f64),
            flight_recorder_folder: self.flight_recorder.clone(),
            ..JoinOptions::with_timeout(self.timeout()?)
        })
    }

    /// The longest wait for another rank.
    ///
    /// # Errors
    /// When it is not a positive number of minutes, below a year.
    pub fn timeout(&self) -> anyhow::Result<Duration> {
        let minutes = self.distributed_timeout_minutes;
        anyhow::ensure!(
            minutes > 0.0 && minutes < 60.0 * 24.0 * 366.0,
            "--distributed-timeout-minutes must lie above 0 and below a year, got {minutes}"
        );
        Ok(Duration::from_secs_f64(minutes * 60.0))
    }
}

impl ModelArguments {
    /// The model of these flags for a tokenizer's vocabulary.
    pub fn config(&self, vocab_size: usize) -> GptConfig {
        let base = match self.model_size.as_deref().and_then(GptPreset::named) {
            Some(preset) => preset.config(),
            None => GptConfig::new(4, 256, 4, 128, vocab_size),
        };
        GptConfig {
            n_layers: self.num_layers.unwrap_or(base.n_layers),
            d_model: self.hidden_size.unwrap_or(base.d_model),
            n_heads: self.num_attention_heads.unwrap_or(base.n_heads),
            max_seq_length: self.seq_length.unwrap_or(base.max_seq_length),
            vocab_size,
            padded_vocab_size: self.padded_vocab_size,
            tied_embeddings: !self.untie_embeddings_and_output_weights,
            hidden_dropout: self.hidden_dropout,
            attention_dropout: self.attention_dropout,
            init_deviation: self.init_method_std,
            recompute_attention: self.recompute.recomputes_attention(),
            layer_recompute: self.recompute.layers(),
            ..base
        }
    }

    /// Checks what the model's own validation does not.
    ///
    /// # Errors
    /// When a probability is outside `[0, 1)`, or a deviation is negative or not a number.
    pub fn validate(&self) -> anyhow::Result<()> {
        for (flag, value) in [
            ("--hidden-dropout", self.hidden_dropout),
            ("--attention-dropout", self.attention_dropout),
        ] {
            anyhow::ensure!((0.0..1.0).contains(&value), "{flag} must lie in [0, 1), got {value}");
        }
        let deviation = self.init_method_std;
        anyhow::ensure!(
            deviation.is_finite() && deviation >= 0.0,
            "--init-method-std must be finite and not negative, got {deviation}"
        );
        self.recompute.validate()
    }
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
        self.logging.validate_profile(self.optimization.train_iters)?;
        self.model.validate()?;
        let model = self.model.config(ByteTokenizer::VOCABULARY_SIZE);
        model.validate(&parallel)?;
        let training = self.training_config(model.max_seq_length);
        training.validate(&grid, parallel.sequence_parallel)?;
        let sizes = self.parallel.layer_sizes(model.n_layers)?;
        let num_micro_batches = training.num_micro_batches(grid.data_parallel_size())?;
        let (layers, schedule) = self.parallel.stages.plan(sizes, num_micro_batches)?;
        self.model.recompute.validate_layers(&layers)?;
        let stage_bytes = model.memory_bytes(&MemorySetting {
            parallel: &parallel,
            layers: &layers,
            schedule: &schedule,
            micro_batch_size: self.optimization.micro_batch_size,
            element_bytes: match self.model.dtype {
                Dtype::F32 => 4,
                Dtype::F64 => 8,
            },
        });
        let machine = machine_bytes().map_or(f64::INFINITY, |bytes| bytes as f64);
        check_memory(&stage_bytes, &grid, self.local_ranks(&grid)?, machine)
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

    /// What must be the same on every rank: all flags but those that say where a rank is, what it writes, and where the
    /// text lies, for the text itself is compared.
    pub fn statement(&self) -> Statement {
        let mut common = self.clone();
        common.parallel.nodes = NodeArguments::default();
        common.data.data_path.clear();
        common.parallel.communication.flight_recorder = None;
        common.logging.log_jsonl = None;
        // Where the files are is rank 0's business; that there are some is everyone's.
        common.logging.timeline = self.logging.wants_timeline().then(PathBuf::new);
        common.logging.trace = None;
        Statement {
            what: "configuration",
            value: format!("{common:#?}"),
        }
    }

    /// The trainer's configuration.
    pub fn training_config(&self, seq_length: usize) -> TrainingConfig {
        let flags = &self.optimization;
        TrainingConfig {
            seq_length,
            micro_batch_size: flags.micro_batch_size,
            global_batch_size: flags.global_batch_size,
            train_iters: flags.train_iters,
            lr: flags.lr,
            min_lr: flags.min_lr,
            lr_decay_style: match flags.lr_decay_style {
                DecayStyle::Constant => LearningRateDecay::Constant,
                DecayStyle::Linear => LearningRateDecay::Linear,
                DecayStyle::Cosine => LearningRateDecay::Cosine,
            },
            lr_decay_iters: flags.lr_decay_iters,
            lr_warmup_iters: flags.lr_warmup_iters.unwrap_or(flags.train_iters / 20),
            weight_decay: flags.weight_decay,
            clip_grad: flags.clip_grad,
            adam_beta1: flags.adam_beta1,
            adam_beta2: flags.adam_beta2,
            adam_eps: flags.adam_eps,
            seed: u64::from(flags.seed),
            replica_check_interval: self.logging.check_weight_hash_across_dp_replicas_interval,
        }
    }
}

/// Refuses ranks that cannot fit a machine together, before an allocation does it without a word.
fn check_memory(stage_bytes: &[f64], grid: &RankGrid, local: Range<usize>, machine: f64) -> anyhow::Result<()> {
    let needs: Vec<f64> = local.map(|rank| stage_bytes[grid.coordinates(rank).pipeline]).collect();
    let all: f64 = needs.iter().sum();
    let largest = needs.iter().copied().fold(0.0, f64::max);
    anyhow::ensure!(
        all <= machine,
        "{} would need about {} for parameters, optimizer and activations, up to {} each, and this machine has {}; use a \
         smaller model, a shorter sequence, a smaller micro-batch, --recompute-granularity full or more machines",
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

/// Parses a number of bytes, with or without a unit.
fn parse_size(text: &str) -> Result<u64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor: u64 = match text[digits.len()..].to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" | "k" => 1 << 10,
        "mib" | "m" => 1 << 20,
        "gib" | "g" => 1 << 30,
        "kb" => 1000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        unit => {
            return Err(format!("unknown unit {unit:?}: use none, KiB, MiB, GiB, KB, MB or GB"));
        }
    };
    let number: u64 = digits
        .trim()
        .parse()
        .map_err(|_| format!("{digits:?} is not a whole number"))?;
    match number.checked_mul(factor) {
        Some(0) => Err("the limit must be at least one byte".to_owned()),
        Some(bytes) => Ok(bytes),
        None => Err(format!("{text} is more than 2^64 bytes")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("1000"), Ok(1000));
        assert_eq!(parse_size("16MiB"), Ok(16 << 20));
        assert_eq!(parse_size("2gb"), Ok(2_000_000_000));
        assert!(parse_size("0").is_err());
        assert!(parse_size("12 parsecs").is_err());
        assert!(parse_size("99999999999GiB").is_err());
    }

    #[test]
    fn the_stages_of_the_ranks_here_must_fit_together() {
        let parallel = ParallelConfig {
            tensor_parallel_size: 2,
            pipeline_parallel_size: 2,
            ..ParallelConfig::default()
        };
        let grid = parallel.grid(8).unwrap();
        let mib = |count: f64| count * 1024.0 * 1024.0;
        let check = |local, machine| check_memory(&[mib(5.0), mib(3.0)], &grid, local, mib(machine));
        // Four ranks of each stage: less than eight of the largest.
        assert!(check(0..8, 32.0).is_ok());
        let error = check(0..8, 31.9).unwrap_err().to_string();
        assert!(error.starts_with("8 ranks would need about 32.0 MiB for"), "{error}");
        assert!(error.contains("up to 5.0 MiB each"), "{error}");
        // The second machine has the second stage.
        assert!(check(4..8, 12.0).is_ok() && check(0..4, 12.0).is_err());
    }

    #[test]
    fn profiled_steps_lie_within_the_run() {
        #[derive(clap::Parser)]
        struct Parsed {
            #[command(flatten)]
            arguments: TrainingArguments,
        }
        let validate = |flags: &str| {
            let words = "program --train-iters 4 ".to_owned() + flags;
            let parsed = <Parsed as clap::Parser>::try_parse_from(words.split_whitespace()).unwrap();
            parsed.arguments.validate().map_err(|error| error.to_string())
        };
        assert_eq!(validate("--timeline t.svg --profile-step-end 4"), Ok(()));
        let error = validate("--timeline t.svg --profile-step-end 5").unwrap_err();
        assert!(
            error.contains("within the 4 steps of --train-iters, got 3 and 5"),
            "{error}"
        );
        assert!(validate("--trace t.json --profile-step-start 5").is_err());
        // Nobody wants them.
        assert_eq!(validate("--profile-step-start 5"), Ok(()));
        let error = validate("--timeline t --trace t").unwrap_err();
        assert!(error.contains("different files, got \"t\""), "{error}");
        let most = format!("--trace t --profile-step-end {}", u64::MAX);
        assert!(validate(&most).unwrap_err().contains("within the 4 steps"));
    }
}
