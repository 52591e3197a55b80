//! One process: plays a rank of the layout for a few steps, and reports what has been recorded.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use anyhow::Context as _;
use burn::tensor::{Device, Tensor};
use burn_megatron::collectives::GroupConfig;
use burn_megatron::context::{ParallelContext, ParallelContextConfig};
use burn_megatron::cuda::{Sharing, choose};
use burn_megatron::data::{ByteTokenizer, MicroBatch};
use burn_megatron::launch::World;
use burn_megatron::pipeline_parallel::PipelineStage as _;
use burn_megatron::training::TokenBatch;
use cuda_emulator::recording::Recorded;
use examples::arguments::TrainingArguments;
use examples::session::Session;
use models::ModelFamily;
use models::registry::FamilyProgram;
use serde::{Deserialize, Serialize};

use crate::counts::Counts;
use crate::measure::{Problem, num_chunks, padded_vocabulary};

/// Steps before those that are counted: kernels are compiled, memory is allocated.
const WARM_UP: u64 = 2;
/// Steps that are counted; the mean is reported.
const COUNTED: u64 = 4;
/// How long buffers of NCCL's calls are still held after these, at most: the thread that watches them looks every
/// millisecond.
const SETTLING: Duration = Duration::from_millis(50);
/// Bytes of the text to train on.
const TEXT: usize = 1 << 20;

/// Record of a process.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// The mean of a step.
    pub counts: Counts,
    /// Memory, in bytes.
    pub memory: MemoryReport,
}

/// Memory of the process's GPU, in bytes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct MemoryReport {
    /// The most that the driver has given to CubeCL's pools and to libraries.
    pub peak_reserved: u64,
    /// The most that was in use in CubeCL's pools, as far as looks between its tasks have seen it; zero without them.
    pub peak_used: u64,
    /// In use in CubeCL's pools between steps: parameters, gradients, the optimizer's state.
    pub used_between_steps: u64,
    /// Kept of a micro-batch from its forward to its backward pass.
    pub activations: u64,
    /// The most pinned host memory.
    pub peak_pinned: u64,
}

impl MemoryReport {
    /// Returns how much more is reserved than in use, at the peaks of both, as a share of the latter.
    pub fn share_unused(&self) -> f64 {
        self.peak_reserved as f64 / self.peak_used.max(1) as f64 - 1.0
    }
}

/// Plays `rank` of the layout.
///
/// # Errors
/// When the flags do not fit each other, or the driver of this process does not record.
pub fn play(arguments: &TrainingArguments, rank: usize, problem: &Problem) -> anyhow::Result<Report> {
    Recorded::now().context("this process is to run on the emulator")?;
    let folder = tempfile::tempdir()?;
    let text = folder.path().join("text.txt");
    std::fs::write(&text, "counted, not computed\n".repeat(TEXT / 22))?;
    let mut arguments = resized(arguments, problem)?;
    arguments.data.data_path = vec![text.to_string_lossy().into_owned()];
    let world = match arguments.parallel.world_size() {
        1 => World::single(),
        world_size => World::fake(rank, world_size),
    };
    let player = Player {
        arguments: &arguments,
        world: &world,
        watches_memory: problem.watches_memory,
    };
    arguments.run(player)
}

/// Returns the flags with the layers and the micro-batches of a problem.
fn resized(arguments: &TrainingArguments, problem: &Problem) -> anyhow::Result<TrainingArguments> {
    let mut arguments = arguments.clone();
    let model = arguments.model.config(None, ByteTokenizer::VOCABULARY_SIZE)?;
    let chunks = num_chunks(&arguments, &*model)?;
    let parallel = &mut arguments.parallel;
    parallel.num_virtual_stages_per_pipeline_rank = Some(chunks);
    parallel.num_layers_per_virtual_pipeline_stage = None;
    let grid = parallel.config().grid(parallel.world_size())?;
    arguments.model.num_layers = Some(problem.layers * grid.pipeline_parallel_size());
    // Zeros need no array in host memory.
    arguments.model.init_method_std = Some(0.0);
    arguments.model.padded_vocab_size = Some(padded_vocabulary(&arguments, &grid));
    let sizes = &mut arguments.optimization;
    sizes.global_batch_size = sizes.micro_batch_size * grid.data_parallel_size() * problem.micro_batches;
    sizes.rampup_batch_size = None;
    (sizes.train_iters, sizes.train_samples) = (Some(WARM_UP + COUNTED), None);
    Ok(arguments)
}

struct Player<'a> {
    arguments: &'a TrainingArguments,
    world: &'a World,
    watches_memory: bool,
}

impl FamilyProgram for Player<'_> {
    type Output = anyhow::Result<Report>;

    fn run<C: ModelFamily>(self) -> anyhow::Result<Report> {
        let dtype = self.arguments.precision.dtype();
        let device = self.arguments.device.start(dtype, self.world)?;
        let context = self.connect()?;
        let mut session = Session::<C>::new(self.arguments, &context, &device)?;
        for _ in 0..WARM_UP {
            session.step()?;
        }
        let sync = || device.sync().context("CubeCL's server has failed");
        sync()?;
        let first = Recorded::now()?;
        sync()?;
        let second = Recorded::now()?;
        let mut steps = || {
            (0..COUNTED).try_for_each(|_| session.step().map(drop))?;
            sync()
        };
        let peak_used = if self.watches_memory {
            with_peak(&device, steps)?
        } else {
            steps()?;
            0
        };
        let last = Recorded::now()?;
        // The look at the end waits for the GPU, which the first two show.
        let counts = Counts::between(&second, &last)
            .without(&Counts::between(&first, &second))
            .divided_by(COUNTED as f64);
        let used_between_steps = used(&device)?;
        let activations = activations(&session, self.arguments, &device)?;
        let peak = |place: &str| last.memory.get(place).map_or(0, |memory| memory.peak);
        let memory = MemoryReport {
            peak_reserved: peak("device"),
            peak_used,
            used_between_steps,
            activations,
            peak_pinned: peak("pinned"),
        };
        Ok(Report { counts, memory })
    }
}

impl Player<'_> {
    /// As [`examples::launching::connect`], without the comparison of the ranks' GPUs: all are this one.
    fn connect(&self) -> anyhow::Result<ParallelContext> {
        let arguments = self.arguments;
        let gpu = choose(self.world.local_rank(), Sharing::Refused)?;
        let context = ParallelContextConfig::new(arguments.parallel.config())
            .with_seed(u64::from(arguments.optimization.seed))
            .with_groups(GroupConfig::new().with_nccl_gpu(Some(gpu)))
            .init(self.world)?;
        arguments.parallel.communication.overlapping(context)
    }
}

/// Returns the bytes in use in CubeCL's pools.
fn used(device: &Device) -> anyhow::Result<u64> {
    let usage = device.memory_pool_usage();
    Ok(usage.context("CubeCL does not say what memory it uses")?.bytes_in_use)
}

/// Runs `act` and returns the most memory that was in use meanwhile. Another thread looks as often as CubeCL's server
/// lets it.
fn with_peak(device: &Device, act: impl FnOnce() -> anyhow::Result<()>) -> anyhow::Result<u64> {
    // Alive as long as `act` runs, even if it panics.
    let acting = Arc::new(());
    let watched = Arc::downgrade(&acting);
    thread::scope(|scope| {
        let watch = scope.spawn(move || -> anyhow::Result<u64> {
            let mut peak = 0;
            while watched.strong_count() > 0 {
                peak = peak.max(used(device)?);
            }
            Ok(peak)
        });
        let acted = act();
        drop(acting);
        let peak = watch
            .join()
            .map_err(|_| anyhow::anyhow!("the look at CubeCL's memory has panicked"))?;
        acted.and(peak)
    })
}

/// Returns the bytes that a micro-batch keeps from its forward to its backward pass, in this rank's first chunk.
fn activations<C: ModelFamily>(
    session: &Session<C>,
    arguments: &TrainingArguments,
    device: &Device,
) -> anyhow::Result<u64> {
    let model = arguments.model.config(None, ByteTokenizer::VOCABULARY_SIZE)?;
    let seq_length = arguments.sample_length(&*model, None)?;
    let batch = TokenBatch::new(&zeros(arguments.optimization.micro_batch_size, seq_length), 0, 0);
    let chunk = &session.model()[0];
    let input = (session.context().coordinates().pipeline > 0)
        .then(|| Tensor::<2>::zeros(chunk.input_shape(&batch), &device.clone().autodiff()).require_grad());
    let settled_use = || {
        device.sync().context("CubeCL's server has failed")?;
        thread::sleep(SETTLING);
        used(device)
    };
    let before = settled_use()?;
    let output = chunk.forward(input, &batch);
    let kept = settled_use()?.saturating_sub(before);
    drop(output);
    Ok(kept)
}

fn zeros(micro_batch_size: usize, seq_length: usize) -> MicroBatch {
    let tokens = vec![0; micro_batch_size * seq_length];
    MicroBatch {
        targets: tokens.clone(),
        tokens,
        sample_ids: (0..micro_batch_size as u64).collect(),
        micro_batch_size,
        seq_length,
        ..MicroBatch::default()
    }
}
