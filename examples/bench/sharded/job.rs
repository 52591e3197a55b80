//! One rank: the memory and communication of each model by itself, then steps of all of them in turn.

use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use burn_megatron::collectives::ReduceOp;
use burn_megatron::launch::World;
use burn_megatron::sharded::{Mesh, TrafficKind};
use burn_megatron::topology::ParallelConfig;
use burn_megatron::training::memory::{allocated_bytes, peak_bytes, restart_peak};
use examples::figures::bytes;
use examples::json_lines::JsonLines;

use super::subject::{self, Kind, Place};
use super::{Arguments, Layout, Problem};
use crate::measure::{in_turn, ratio};
use crate::table::Row;

/// Steps of every model before those that are measured.
const WARM_UP_ROUNDS: usize = 2;

/// Measures as a rank of a layout; rank 0 writes a row for each of its models.
pub fn run(world: &World, layout: Layout, arguments: &Arguments, log: &Path) -> anyhow::Result<()> {
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
    let kinds = layout.kinds(arguments)?;
    let alone_rows = kinds
        .iter()
        .map(|kind| alone(*kind, &place))
        .collect::<Result<Vec<_>, _>>()?;
    let subjects = kinds.iter().map(|kind| subject::make(*kind, &place));
    let mut subjects = subjects.collect::<Result<Vec<_>, _>>()?;
    let mut losses = vec![f64::NAN; kinds.len()];
    let mut measured = in_turn(place.num_steps, kinds.len(), |round, index| {
        context.world_group().barrier()?;
        let (start, processor) = (Instant::now(), processor_seconds()?);
        losses[index] = subjects[index].step(round - 1)?;
        let (seconds, processor) = (start.elapsed().as_secs_f64(), processor_seconds()? - processor);
        Ok(Row::default()
            .seconds("step", seconds)
            .seconds("processor time", processor))
    })?;
    if world.rank() > 0 {
        return Ok(());
    }
    for rounds in &mut measured {
        rounds.drain(..WARM_UP_ROUNDS);
    }
    let mut log = JsonLines::create(log)?;
    for (index, alone) in alone_rows.into_iter().enumerate() {
        let (reference, own) = (&measured[0], &measured[index]);
        let median = Row::median(own);
        let Problem {
            sizes,
            global_batch_size,
        } = &arguments.problem;
        let speed = (global_batch_size * sizes.seq_length) as f64 / median.value("step");
        let row = Row::default()
            .text("layout", format!("{layout:?}").to_lowercase())
            .text("model", format!("{:?}", kinds[index]).to_lowercase())
            .and(median)
            .number("tokens/s", speed)
            .number("ratio", ratio(reference, own, "step"))
            .number("processor ratio", ratio(reference, own, "processor time"));
        log.write(&row.and(alone).number("loss", losses[index]))?;
    }
    Ok(())
}

/// Returns the memory and the communication of a step, with one model only.
fn alone(kind: Kind, place: &Place<'_>) -> anyhow::Result<Row> {
    let Place { context, mesh, .. } = *place;
    let before = allocated_bytes();
    let mut subject = subject::make(kind, place)?;
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
    let collectives = kinds.into_iter().filter_map(|(kind, name)| {
        // An axis of one rank has no communication. Bytes are those of whole tensors; for all-to-alls of this rank's
        // parts.
        let of_kind = records
            .iter()
            .filter(|record| record.kind == kind && mesh.group(record.axis).size() > 1);
        let sum: usize = of_kind.clone().map(|record| record.bytes).sum();
        let count = of_kind.count();
        (count > 0).then(|| format!("{count} {name} of {}", bytes(sum as u64)))
    });
    // Those of the rank with the most.
    let mut largest = [subject.parameter_bytes(), peak_memory_bytes].map(|bytes| bytes as f64);
    context.world_group().all_reduce(&mut largest, ReduceOp::Max)?;
    Ok(Row::default()
        .bytes("parameters", largest[0])
        .bytes("peak memory", largest[1])
        .bytes("sent per step", sent_bytes as f64)
        .text("collectives", collectives.collect::<Vec<_>>().join(", ")))
}

/// Returns the processor time of this process's threads until now; those that have ended are not counted.
fn processor_seconds() -> anyhow::Result<f64> {
    let mut nanoseconds = 0;
    for thread in std::fs::read_dir("/proc/self/task").context("processor time is counted on Linux only")? {
        let text = std::fs::read_to_string(thread?.path().join("schedstat"))?;
        nanoseconds += text.split(' ').next().map_or(Ok(0), str::parse::<u64>)?;
    }
    Ok(nanoseconds as f64 / 1e9)
}
