//! What a rank does: the memory and communication of each model by itself, then steps of all of them in turn.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Context as _;
use burn_megatron::context::ParallelContext;
use burn_megatron::launch::World;
use burn_megatron::sharded::{Mesh, TrafficKind};
use burn_megatron::topology::ParallelConfig;
use burn_megatron::training::memory::{allocated_bytes, peak_bytes, restart_peak};
use examples::figures::bytes;
use serde::{Deserialize, Serialize};

use super::subject::{self, Place, Subject};
use super::{Arguments, Layout};

/// Steps of every model before those that are measured.
const WARM_UP_ROUNDS: usize = 2;

/// What a rank measured of a model.
#[derive(Debug, Default, Deserialize, Serialize)]
pub struct Figures {
    pub step_seconds: Vec<f64>,
    /// What all threads of this rank computed in each of these steps.
    pub processor_seconds: Vec<f64>,
    pub parameter_bytes: usize,
    /// The most that was allocated at once in a step, for this model alone.
    pub peak_memory_bytes: usize,
    /// What this rank sent in a step.
    pub sent_bytes: u64,
    pub collectives: Vec<Collectives>,
    pub loss: f64,
}

/// The collectives of a step that a placed model's operations made, of one kind.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub struct Collectives {
    kind: String,
    count: usize,
    /// Of the whole tensors; for all-to-alls of this rank's parts.
    bytes: usize,
}

impl fmt::Display for Collectives {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of {}", self.count, self.kind, bytes(self.bytes as u64))
    }
}

/// Measures as a rank of a layout, and writes the figures of each of its models.
pub fn run(world: &World, layout: Layout, arguments: &Arguments, folder: &Path) -> anyhow::Result<()> {
    let config = ParallelConfig::new().with_tensor_parallel_size(layout.tensor_parallel_size());
    let context = config.with_sequence_parallel(layout == Layout::Tp2sp).init(world)?;
    let mesh = Mesh::of(&context)?;
    let place = Place {
        layout,
        context: &context,
        mesh: &mesh,
        problem: &arguments.problem,
        num_steps: WARM_UP_ROUNDS + arguments.rounds,
    };
    let kinds = layout.kinds(arguments);
    let mut figures = Vec::new();
    for &kind in &kinds {
        figures.push(alone(&|| subject::make(kind, &place), &context, &mesh)?);
    }
    let mut subjects = Vec::new();
    for kind in kinds {
        subjects.push(subject::make(kind, &place)?);
    }
    for round in 0..place.num_steps {
        for turn in 0..subjects.len() {
            // No model always comes after the same one.
            let index = (round + turn) % subjects.len();
            context.world_group().barrier()?;
            let (start, processor) = (Instant::now(), processor_seconds()?);
            figures[index].loss = subjects[index].step(round)?;
            let (seconds, processor) = (start.elapsed().as_secs_f64(), processor_seconds()? - processor);
            if round >= WARM_UP_ROUNDS {
                figures[index].step_seconds.push(seconds);
                figures[index].processor_seconds.push(processor);
            }
        }
    }
    let text = serde_json::to_string(&figures)?;
    let path = path(folder, world.rank());
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))
}

/// The figures of a rank.
pub fn read(folder: &Path, rank: usize) -> anyhow::Result<Vec<Figures>> {
    let path = path(folder, rank);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(serde_json::from_str(&text)?)
}

fn path(folder: &Path, rank: usize) -> PathBuf {
    folder.join(format!("rank-{rank}.json"))
}

/// The memory and the communication of a step, with one model only.
fn alone(
    make: &dyn Fn() -> anyhow::Result<Box<dyn Subject>>,
    context: &ParallelContext,
    mesh: &Mesh,
) -> anyhow::Result<Figures> {
    let before = allocated_bytes();
    let mut subject = make()?;
    // The optimizer makes its moments in the first.
    subject.step(0)?;
    context.world_group().barrier()?;
    restart_peak();
    let sent = context.bytes_communicated();
    mesh.start_counting();
    subject.step(1)?;
    let records = mesh.stop_counting();
    let sent_bytes = context.bytes_communicated() - sent;
    let peak_memory_bytes = peak_bytes().saturating_sub(before);
    let kinds = [
        (TrafficKind::AllReduce, "all-reduce"),
        (TrafficKind::AllGather, "all-gather"),
        (TrafficKind::ReduceScatter, "reduce-scatter"),
        (TrafficKind::AllToAll, "all-to-all"),
    ];
    let collectives = kinds.into_iter().map(|(kind, name)| {
        // An axis of one rank has no communication.
        let of_kind = records
            .iter()
            .filter(|record| record.kind == kind && mesh.group(record.axis).size() > 1);
        Collectives {
            kind: name.to_owned(),
            count: of_kind.clone().count(),
            bytes: of_kind.map(|record| record.bytes).sum(),
        }
    });
    Ok(Figures {
        parameter_bytes: subject.parameter_bytes(),
        peak_memory_bytes,
        sent_bytes,
        collectives: collectives.filter(|collectives| collectives.count > 0).collect(),
        ..Figures::default()
    })
}

/// What this process's threads have computed until now; those that have ended are not counted.
fn processor_seconds() -> anyhow::Result<f64> {
    let mut nanoseconds = 0;
    for thread in std::fs::read_dir("/proc/self/task").context("processor time is counted on Linux only")? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        nanoseconds += text.split(' ').next().map_or(Ok(0), str::parse::<u64>)?;
    }
    Ok(nanoseconds as f64 / 1e9)
}
