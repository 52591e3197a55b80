//! Flags of programs that generate: the model and its cache, and what `generate_samples_gpt` generates.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};
use burn_megatron::training::preflight::Statement;
use burn_megatron_data::programs::TokenizerArguments;
use clap::Args;
use models::generation::SamplingConfig;

use super::{DeviceArguments, LauncherArguments, ParallelArguments, PrecisionArguments};

/// The folder in which a checkpoint is looked for without `--load`.
pub const USUAL_FOLDER: &str = "checkpoints";

/// The model that generates, where it computes, and how much it does at once.
#[derive(Args, Clone, Debug)]
pub struct GeneratorArguments {
    #[command(flatten)]
    pub parallel: ParallelArguments,
    #[command(flatten)]
    pub precision: PrecisionArguments,
    #[command(flatten)]
    pub device: DeviceArguments,
    #[command(flatten)]
    pub batch: BatchArguments,
    #[command(flatten)]
    pub tokenizer: TokenizerArguments,
}

/// What is loaded, and the sizes of batch and cache.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Generation")]
pub struct BatchArguments {
    /// A checkpoint of any layout, a folder of checkpoints, of which the latest is meant, or a folder with Hugging
    /// Face's config.json and model.safetensors [default: checkpoints]
    #[arg(long, value_name = "DIR")]
    pub load: Option<PathBuf>,
    /// Outputs that are generated together, at most
    #[arg(long, value_name = "N", default_value_t = 16)]
    pub max_batch_size: usize,
    /// Tokens whose keys and values are kept, all outputs together [default: what --max-batch-size outputs need, at the
    /// length that prompts and the model's positions let them have]
    #[arg(long, value_name = "N")]
    pub cache_tokens: Option<usize>,
}

/// Everything that generation takes.
#[derive(Args, Clone, Debug)]
pub struct GenerationArguments {
    #[command(flatten)]
    pub generator: GeneratorArguments,
    #[command(flatten)]
    pub samples: SampleArguments,
}

/// What is generated.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Generation")]
pub struct SampleArguments {
    /// The text to continue; without it and --prompt-file, lines of the standard input
    #[arg(long, value_name = "TEXT", conflicts_with = "prompt_file")]
    pub prompt: Option<String>,
    /// Texts to continue, one on each line of this file
    #[arg(long, value_name = "FILE")]
    pub prompt_file: Option<PathBuf>,
    /// The most tokens of each output [default: those that the model has positions left for]
    #[arg(long, value_name = "N")]
    pub out_seq_length: Option<usize>,
    /// Outputs for each prompt
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub num_samples: usize,
    /// Always take the most probable token
    #[arg(long)]
    pub greedy: bool,
    /// What scores are divided by; 0 is --greedy
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub temperature: f64,
    /// Draw from this many of the most probable tokens; 0 for all
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub top_k: usize,
    /// Draw from the most probable tokens that have this probability together; 0 or 1 for all
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    pub top_p: f64,
    /// Divide the scores of tokens that were there already by this, if positive, else multiply them by it
    #[arg(long, value_name = "X", default_value_t = 1.0)]
    pub repetition_penalty: f64,
    /// Seed of the draws: the same seed gives the same text in every layout
    #[arg(long, value_name = "N", default_value_t = 1234)]
    pub seed: u64,
    /// End an output before this text; may be given several times
    #[arg(long, value_name = "TEXT", action = clap::ArgAction::Append)]
    pub stop: Vec<String>,
    /// Print each token's log-probability, and those of the N most probable ones
    #[arg(long, value_name = "N", num_args = 0..=1, default_missing_value = "0")]
    pub log_probs: Option<usize>,
    /// Print a line of JSON for each output when it is complete, instead of text as it comes
    #[arg(long)]
    pub json: bool,
}

impl BatchArguments {
    /// The folder that `--load` names, or the usual one.
    pub fn folder(&self) -> &Path {
        self.load.as_deref().unwrap_or(Path::new(USUAL_FOLDER))
    }
}

impl GeneratorArguments {
    /// Finds what is wrong with the flags before any rank is started.
    ///
    /// # Errors
    /// The first rule that is broken, with the values and the nearest valid ones.
    pub fn validate(&self) -> anyhow::Result<()> {
        self.replicas()?;
        self.parallel.communication.timeout()?;
        self.precision.validate()?;
        self.device.validate(self.precision.dtype())?;
        ensure_at_least_one(&[
            ("--max-batch-size", self.batch.max_batch_size),
            ("--cache-tokens", self.batch.cache_tokens.unwrap_or(1)),
        ])
    }

    /// The data-parallel replicas of the model.
    ///
    /// # Errors
    /// When the ranks are no whole number of models.
    pub fn replicas(&self) -> anyhow::Result<usize> {
        let grid = self.parallel.config().grid(self.parallel.world_size())?;
        Ok(grid.data_parallel_size())
    }

    /// Checks that the ranks are those of one model.
    ///
    /// # Errors
    /// When there are replicas of it; `reason` says why there may be none.
    pub fn validate_one_model(&self, reason: &str) -> anyhow::Result<()> {
        let parallel = self.parallel.config();
        ensure!(
            self.replicas()? == 1,
            "{reason}: --world-size must be {} * {}, the ranks of one model, got {}",
            parallel.tensor_parallel_size,
            parallel.pipeline_parallel_size,
            self.parallel.world_size()
        );
        Ok(())
    }

    /// Returns what must be the same on every rank: all flags except those that say where a rank is.
    pub fn statement(&self) -> Statement {
        let mut common = self.clone();
        common.parallel.launcher = LauncherArguments::default();
        common.parallel.communication.flight_recorder = None;
        Statement {
            what: "configuration",
            value: format!("{common:#?}"),
        }
    }
}

impl GenerationArguments {
    /// As [`GeneratorArguments::validate`].
    ///
    /// # Errors
    /// The first rule that is broken, with the values and the nearest valid ones.
    pub fn validate(&self) -> anyhow::Result<()> {
        self.generator.validate()?;
        let replicas = self.generator.replicas()?;
        ensure!(
            replicas == 1 || self.samples.prompt.is_some() || self.samples.prompt_file.is_some(),
            "{replicas} data-parallel replicas share the prompts, which must be known at the start: give --prompt-file \
             or --prompt, or a --world-size of one model for lines of the standard input"
        );
        self.samples.validate()
    }

    /// Returns what must be the same on every rank: all flags except those that say where a rank is, and what it
    /// generates, which rank 0 knows.
    pub fn statement(&self) -> Statement {
        let mut samples = self.samples.clone();
        samples.prompt_file = None;
        let Statement { what, value } = self.generator.statement();
        Statement {
            what,
            value: format!("{value}\n{samples:#?}"),
        }
    }
}

/// Refuses a flag of zero.
pub(super) fn ensure_at_least_one(flags: &[(&str, usize)]) -> anyhow::Result<()> {
    for (flag, value) in flags {
        ensure!(*value > 0, "{flag} must be at least 1, got 0");
    }
    Ok(())
}

impl SampleArguments {
    pub fn sampling(&self) -> SamplingConfig {
        SamplingConfig {
            temperature: if self.greedy { 0.0 } else { self.temperature },
            top_k: self.top_k,
            top_p: if self.top_p == 0.0 { 1.0 } else { self.top_p },
            repetition_penalty: self.repetition_penalty,
            seed: self.seed,
            ..SamplingConfig::default()
        }
    }

    /// The prompts that the flags name; none where they come from the standard input.
    ///
    /// # Errors
    /// When the file cannot be read, or has no line.
    pub fn prompts(&self) -> anyhow::Result<Option<Vec<String>>> {
        if let Some(prompt) = &self.prompt {
            return Ok(Some(vec![prompt.clone()]));
        }
        let Some(path) = &self.prompt_file else {
            return Ok(None);
        };
        let text = std::fs::read_to_string(path).with_context(|| format!("--prompt-file {}", path.display()))?;
        let prompts: Vec<String> = text.lines().map(str::to_owned).collect();
        ensure!(!prompts.is_empty(), "--prompt-file {} has no line", path.display());
        Ok(Some(prompts))
    }

    fn validate(&self) -> anyhow::Result<()> {
        ensure_at_least_one(&[
            ("--out-seq-length", self.out_seq_length.unwrap_or(1)),
            ("--num-samples", self.num_samples),
        ])?;
        ensure!(
            !self.stop.iter().any(String::is_empty),
            "--stop must have a character at least"
        );
        Ok(self.sampling().validate()?)
    }
}
