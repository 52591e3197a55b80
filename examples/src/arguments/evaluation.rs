//! Flags of evaluation.

use std::path::PathBuf;

use anyhow::{Context as _, ensure};
use burn_megatron::training::preflight::Statement;
use burn_megatron_data::programs::TokenizerArguments;
use clap::{Args, ValueEnum};

use super::generation::ensure_at_least_one;
use super::{DeviceArguments, LauncherArguments, ParallelArguments, PrecisionArguments};

/// Megatron-LM's default of `--overlapping-eval`.
const USUAL_OVERLAPPING: usize = 32;

/// Everything that evaluation takes.
#[derive(Args, Clone, Debug)]
pub struct EvaluationArguments {
    #[command(flatten)]
    pub parallel: ParallelArguments,
    #[command(flatten)]
    pub precision: PrecisionArguments,
    #[command(flatten)]
    pub device: DeviceArguments,
    #[command(flatten)]
    pub task: TaskArguments,
    #[command(flatten)]
    pub tokenizer: TokenizerArguments,
}

/// What a model is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TaskKind {
    /// Perplexity of a text, by Megatron-LM's and by lm-evaluation-harness's definitions
    #[value(alias = "WIKITEXT103")]
    Wikitext,
    /// The last word of passages: lines of {"text": …}
    #[value(alias = "LAMBADA")]
    Lambada,
    /// The most probable of several endings: lines of {"query" or "context": …, "choices": […], "gold": 0}
    MultipleChoice,
}

impl TaskKind {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wikitext => "wikitext",
            Self::Lambada => "lambada",
            Self::MultipleChoice => "multiple-choice",
        }
    }
}

/// What is evaluated.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Evaluation")]
pub struct TaskArguments {
    /// What the model is asked
    #[arg(id = "task", long, value_enum, value_name = "TASK")]
    pub kind: TaskKind,
    /// The task's text, or its lines of JSON
    #[arg(long, alias = "valid-data", value_name = "FILE")]
    pub data: PathBuf,
    /// A checkpoint of any layout, a folder of checkpoints, of which the latest is meant, or a folder with Hugging
    /// Face's config.json and model.safetensors [default: checkpoints]
    #[arg(long, value_name = "DIR")]
    pub load: Option<PathBuf>,
    /// The most tokens that the model sees at once; what is longer loses its beginning [default: the model's positions]
    #[arg(long, value_name = "N")]
    pub seq_length: Option<usize>,
    /// Of wikitext, by how many tokens Megatron-LM's windows advance, so that each token but those of the first window
    /// has at least --seq-length - N before it; --seq-length for windows that do not overlap [default: 32]
    #[arg(long, value_name = "N")]
    pub overlapping_eval: Option<usize>,
    /// Of lambada, ask for the whole last word by Megatron-LM's definition, too, not for its last token
    #[arg(long)]
    pub strict_lambada: bool,
    /// Of multiple-choice, what stands between the context and a choice
    #[arg(long, value_name = "TEXT", default_value = " ")]
    pub target_delimiter: String,
    /// Sequences of --seq-length tokens that are computed together, and the more of shorter ones
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub micro_batch_size: usize,
    /// Print one object of JSON instead of a table
    #[arg(long)]
    pub json: bool,
}

impl EvaluationArguments {
    /// Finds what is wrong with the flags before any rank is started.
    ///
    /// # Errors
    /// The first rule that is broken, with the values and the nearest valid ones.
    pub fn validate(&self) -> anyhow::Result<()> {
        self.parallel.config().grid(self.parallel.world_size())?;
        self.parallel.communication.timeout()?;
        self.precision.validate()?;
        self.device.validate(self.precision.dtype())?;
        self.task.validate()
    }

    /// Returns what must be the same on every rank: all flags except those that say where a rank is and where its files
    /// are; the data is compared by its contents.
    pub fn statement(&self) -> Statement {
        let mut common = self.clone();
        common.parallel.launcher = LauncherArguments::default();
        common.parallel.communication.flight_recorder = None;
        common.task.data = PathBuf::new();
        common.tokenizer = TokenizerArguments::default();
        Statement {
            what: "configuration",
            value: format!("{common:#?}"),
        }
    }
}

impl TaskArguments {
    /// The most tokens that a model with these `positions` is to see at once.
    ///
    /// # Errors
    /// When the model has fewer positions than the flag asks for.
    pub fn seq_length(&self, positions: usize) -> anyhow::Result<usize> {
        let length = self.seq_length.unwrap_or(positions);
        ensure!(
            length <= positions,
            "--seq-length {length}: the model has {positions} positions, give that or less"
        );
        Ok(length)
    }

    /// By how many tokens Megatron-LM's windows advance.
    ///
    /// # Errors
    /// When it is more than a window has: tokens would be skipped.
    pub fn overlapping_eval(&self, seq_length: usize) -> anyhow::Result<usize> {
        let advance = self.overlapping_eval.unwrap_or(USUAL_OVERLAPPING.min(seq_length));
        ensure!(
            advance <= seq_length,
            "--overlapping-eval {advance} would skip tokens: windows have {seq_length}, give that or less"
        );
        Ok(advance)
    }

    fn validate(&self) -> anyhow::Result<()> {
        ensure_at_least_one(&[
            ("--seq-length", self.seq_length.unwrap_or(1)),
            ("--overlapping-eval", self.overlapping_eval.unwrap_or(1)),
            ("--micro-batch-size", self.micro_batch_size),
        ])?;
        for (flag, is_given, kind) in [
            (
                "--overlapping-eval",
                self.overlapping_eval.is_some(),
                TaskKind::Wikitext,
            ),
            ("--strict-lambada", self.strict_lambada, TaskKind::Lambada),
            (
                "--target-delimiter",
                self.target_delimiter != " ",
                TaskKind::MultipleChoice,
            ),
        ] {
            ensure!(
                !is_given || self.kind == kind,
                "{flag} is for --task {}, and this is --task {}",
                kind.name(),
                self.kind.name()
            );
        }
        let is_file = std::fs::metadata(&self.data).with_context(|| format!("--data {}", self.data.display()))?;
        ensure!(is_file.is_file(), "--data {} is no file", self.data.display());
        Ok(())
    }
}
