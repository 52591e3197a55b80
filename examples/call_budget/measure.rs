//! Starts the processes that play a rank on the emulator, and puts together what they report.

use std::path::Path;
use std::process::{Command, Stdio};
use std::str::FromStr;

use anyhow::{Context as _, ensure};
use burn_megatron::data::ByteTokenizer;
use burn_megatron::topology::RankGrid;
use cuda_emulator::recording;
use examples::arguments::TrainingArguments;
use models::ModelConfig;
use serde::{Deserialize, Serialize};

use crate::Arguments;
use crate::counts::{Parts, Size};
use crate::play::{MemoryReport, Report};

/// Layers of each chunk of the smallest problem, and of the next: more than one, so that those between others are
/// counted too.
const LAYERS: [usize; 2] = [2, 4];

/// The size of the vocabulary that the flags leave open: GPT-2's, with whose padding logits are computed.
const VOCABULARY: usize = 50257;

/// What a process plays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Layers of each stage.
    pub layers: usize,
    pub micro_batches: usize,
    /// Whether to look at CubeCL's memory all the time.
    pub watches_memory: bool,
}

impl FromStr for Problem {
    type Err = serde_json::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        serde_json::from_str(text)
    }
}

/// What all processes have reported.
pub struct Measured {
    /// The layout and the model.
    pub setting: Setting,
    /// What has been counted.
    pub calls: Option<Calls>,
    /// Of the whole stage, with its layers and micro-batches.
    pub whole: Option<(Problem, MemoryReport)>,
}

/// What layers and micro-batches cost.
pub struct Calls {
    /// A step's calls.
    pub parts: Parts,
    /// What each layer keeps of a micro-batch from its forward to its backward pass, in bytes.
    pub activations_per_layer: f64,
    /// What each layer takes between steps, in bytes.
    pub state_per_layer: f64,
}

/// The layout and the model's sizes.
#[derive(Clone, Debug)]
pub struct Setting {
    pub rank: usize,
    pub grid: RankGrid,
    pub is_sequence_parallel: bool,
    pub layers: usize,
    pub hidden: usize,
    pub heads: usize,
    pub sequence: usize,
    /// The size of the vocabulary, with padding.
    pub vocabulary: usize,
    pub has_embedding: bool,
    pub has_head: bool,
    pub micro_batch: usize,
    /// Chunks of each stage.
    pub chunks: usize,
    /// Micro-batches of a step, as the flags say it.
    pub micro_batches: usize,
}

impl Setting {
    /// Returns what the flags say.
    ///
    /// # Errors
    /// When the layout has no such rank, or the layers do not divide into chunks.
    fn new(arguments: &Arguments) -> anyhow::Result<Self> {
        let (rank, training) = (arguments.rank, &arguments.training);
        let world_size = training.parallel.world_size();
        ensure!(
            rank < world_size,
            "--rank must be below the number of ranks, {world_size}, got {rank}"
        );
        let grid = training.parallel.config().grid(world_size)?;
        let model = training.model.config(None, ByteTokenizer::VOCABULARY_SIZE)?;
        let sizes = &training.optimization;
        let stage = grid.coordinates(rank).pipeline;
        let samples = sizes.micro_batch_size * grid.data_parallel_size();
        Ok(Self {
            rank,
            is_sequence_parallel: training.parallel.sequence_parallel,
            layers: model.n_layers(),
            hidden: model.d_model(),
            heads: model.n_heads(),
            sequence: training.sample_length(&*model, None)?,
            vocabulary: padded_vocabulary(training, &grid),
            has_embedding: stage == 0,
            has_head: stage + 1 == grid.pipeline_parallel_size(),
            micro_batch: sizes.micro_batch_size,
            chunks: num_chunks(training, &*model)?,
            micro_batches: (sizes.global_batch_size / samples).max(1),
            grid,
        })
    }

    /// The smallest problem, and the same with more layers in each chunk, with more micro-batches, and with both.
    fn problems(&self) -> [Problem; 4] {
        // A multiple of the stages: what any schedule can do.
        let stages = self.grid.pipeline_parallel_size();
        let micro_batches = if stages == 1 { [2, 4] } else { [stages, 2 * stages] };
        let problem = |layers: usize, micro_batches: usize| Problem {
            layers: LAYERS[layers] * self.chunks,
            micro_batches,
            watches_memory: false,
        };
        let [few, more] = micro_batches;
        [problem(0, few), problem(1, few), problem(0, more), problem(1, more)]
    }

    /// The stage that the flags ask for. More micro-batches than this take no more memory.
    fn whole(&self) -> Problem {
        let stages = self.grid.pipeline_parallel_size();
        Problem {
            layers: self.layers / stages,
            micro_batches: self.micro_batches.min(2 * stages),
            watches_memory: true,
        }
    }
}

/// Returns the size of the vocabulary with padding: GPT-2's, unless the flags say otherwise.
pub fn padded_vocabulary(training: &TrainingArguments, grid: &RankGrid) -> usize {
    let padded = VOCABULARY.next_multiple_of(128 * grid.tensor_parallel_size());
    training.model.padded_vocab_size.unwrap_or(padded)
}

/// Returns how many chunks each stage has.
///
/// # Errors
/// When the layers do not divide into chunks.
pub fn num_chunks(training: &TrainingArguments, model: &dyn ModelConfig) -> anyhow::Result<usize> {
    Ok(training.parallel.layer_sizes(model.n_layers())?.num_chunks)
}

/// Records steps of several sizes.
///
/// # Errors
/// When the flags do not fit each other, or a process fails.
pub fn measure(arguments: &Arguments) -> anyhow::Result<Measured> {
    let setting = Setting::new(arguments)?;
    eprintln!(
        "rank {} of {} is played alone on an emulated GPU, which computes nothing",
        setting.rank,
        setting.grid.world_size()
    );
    let libraries = cuda_emulator::library_folder()?;
    let play = |problem| play(arguments, libraries.path(), problem);
    let calls = if arguments.only_memory {
        None
    } else {
        Some(count(setting.problems(), play)?)
    };
    let whole = if arguments.no_memory {
        None
    } else {
        Some((setting.whole(), play(setting.whole())?.memory))
    };
    Ok(Measured { setting, calls, whole })
}

/// Records the smallest problem and those with more layers and micro-batches, and returns what each of these costs.
fn count(problems: [Problem; 4], play: impl Fn(Problem) -> anyhow::Result<Report>) -> anyhow::Result<Calls> {
    let reports = problems.into_iter().map(play).collect::<Result<Vec<_>, _>>()?;
    let [first, layers, micro_batches, both] = &reports[..] else {
        unreachable!("each problem has a report")
    };
    let [least, more, later, _] = problems;
    let size = |layers: usize, micro_batches: usize| Size {
        layers: layers as f64,
        micro_batches: micro_batches as f64,
    };
    let added = size(more.layers - least.layers, later.micro_batches - least.micro_batches);
    let counts = [&first.counts, &layers.counts, &micro_batches.counts, &both.counts];
    let per_layer =
        |of: fn(&MemoryReport) -> u64, added: f64| (of(&layers.memory) as f64 - of(&first.memory) as f64) / added;
    Ok(Calls {
        parts: Parts::of(size(least.layers, least.micro_batches), added, counts),
        // Of one chunk.
        activations_per_layer: per_layer(|memory| memory.activations, (LAYERS[1] - LAYERS[0]) as f64),
        state_per_layer: per_layer(|memory| memory.used_between_steps, added.layers),
    })
}

/// Lets a process play a problem, and returns its report.
fn play(arguments: &Arguments, libraries: &Path, problem: Problem) -> anyhow::Result<Report> {
    let output = Command::new(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .arg("--play")
        .arg(serde_json::to_string(&problem)?)
        .envs(cuda_emulator::environment(libraries))
        .env(recording::VARIABLE, "1")
        .env("CUDA_EMULATOR_DEVICES", "1")
        .env("CUDA_EMULATOR_MEMORY_MB", (arguments.gpu_memory << 10).to_string())
        .env_remove("CUDA_VISIBLE_DEVICES")
        .stdin(Stdio::null())
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "the process with {} layers and {} micro-batches failed ({}):\n{said}",
        problem.layers,
        problem.micro_batches,
        output.status
    );
    let report = String::from_utf8_lossy(&output.stdout);
    let report = report.lines().next_back().context("a process reports nothing")?;
    Ok(serde_json::from_str(report)?)
}
