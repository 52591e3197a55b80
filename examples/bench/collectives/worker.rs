//! One rank of a job: it makes the calls and times them.
//!
//! In host memory a call is over when it returns; [`on_gpus`](super::on_gpus) makes those that are not.

use std::path::Path;
use std::time::Instant;

use burn_megatron::collectives::{
    CollectiveElement, CollectiveError, ElementType, EngineChoice, GroupConfig, ProcessGroup, ReduceOp,
};
use burn_megatron::launch::World;
use examples::figures::median;
use examples::json_lines::JsonLines;

use crate::collectives::report::Measurement;
use crate::collectives::{Arguments, Benchmark};

/// Calls of each size that are not counted.
const WARM_UP_CALLS: usize = 3;
/// How long the calls of one size take in all, unless the number of calls is given.
const SECONDS_PER_SIZE: f64 = 0.3;
/// Calls between two looks at the time.
const CALLS_PER_BATCH: usize = 5;
/// Calls that are enough, however short.
const MAX_CALLS: usize = 5000;

/// Measures as a rank of a job; rank 0 writes the results to `log`.
pub fn run(arguments: &Arguments, engine: EngineChoice, world: &World, log: &Path) -> anyhow::Result<()> {
    let ranks: Vec<usize> = (0..world.world_size()).collect();
    let group = ProcessGroup::connect(world, "bench", &ranks, &GroupConfig::new().with_engine(engine))?;
    match arguments.element_type {
        ElementType::F32 => measure_all::<f32>(arguments, &group, log),
        ElementType::F64 => measure_all::<f64>(arguments, &group, log),
        ElementType::F16 => measure_all::<half::f16>(arguments, &group, log),
        ElementType::BF16 => measure_all::<half::bf16>(arguments, &group, log),
        ElementType::I32 => measure_all::<i32>(arguments, &group, log),
        ElementType::I64 => measure_all::<i64>(arguments, &group, log),
        ElementType::U8 => measure_all::<u8>(arguments, &group, log),
    }
}

fn measure_all<T: CollectiveElement + From<u8>>(
    arguments: &Arguments,
    group: &ProcessGroup,
    log: &Path,
) -> anyhow::Result<()> {
    let mut log = (group.rank() == 0).then(|| JsonLines::create(log)).transpose()?;
    for benchmark in arguments.operations()? {
        let mut sizes: Vec<usize> = match benchmark {
            Benchmark::Barrier => vec![0],
            _ => arguments.sizes_kib.iter().map(|kib| kib * 1024).collect(),
        };
        sizes.retain(|&bytes| bytes <= arguments.max_bytes);
        for bytes in sizes {
            let elements = bytes / T::ELEMENT_TYPE.size_bytes();
            // Rounded down to whole shards.
            let elements = match benchmark {
                Benchmark::AllGather | Benchmark::ReduceScatter => elements - elements % group.size(),
                _ => elements,
            };
            let mut call = call::<T>(benchmark, group, elements)?;
            let times = measure(group, arguments.repeats, |number| {
                call(number)?;
                Ok(Instant::now())
            })?;
            if let Some(log) = &mut log {
                let bytes = elements * T::ELEMENT_TYPE.size_bytes();
                log.write(&measurement(benchmark, group.engine_name(), group.size(), bytes, times))?;
            }
        }
    }
    Ok(())
}

/// Operation with its buffers, which takes the number of the call.
type Call<'a> = dyn FnMut(usize) -> Result<(), CollectiveError> + 'a;

/// Returns the operation on a message. Collective.
fn call<'a, T: CollectiveElement + From<u8>>(
    benchmark: Benchmark,
    group: &'a ProcessGroup,
    elements: usize,
) -> Result<Box<Call<'a>>, CollectiveError> {
    // Ones, not zeros: memory that was never written has no pages of its own.
    let ones = |elements: usize| vec![T::from(1); elements];
    let (size, rank) = (group.size(), group.rank());
    if benchmark == Benchmark::AllReduceShared {
        let mut shared = group.allocate(elements)?;
        shared.fill(T::from(1));
        return Ok(Box::new(move |_| group.all_reduce_shared(&mut shared, ReduceOp::Sum)));
    }
    let mut whole = ones(elements);
    Ok(match benchmark {
        Benchmark::AllReduce | Benchmark::AllReduceShared => {
            Box::new(move |_| group.all_reduce(&mut whole, ReduceOp::Sum))
        }
        Benchmark::AllGather => {
            let shard = ones(elements / size);
            Box::new(move |_| group.all_gather(&shard, &mut whole))
        }
        Benchmark::ReduceScatter => {
            let mut shard = ones(elements / size);
            Box::new(move |_| group.reduce_scatter(&whole, &mut shard, ReduceOp::Sum))
        }
        // With a fixed root, the root would run ahead of the others.
        Benchmark::Broadcast => Box::new(move |call| group.broadcast(&mut whole, call % size)),
        Benchmark::SendRecv => Box::new(move |_| match rank ^ 1 {
            // The last of an odd number of ranks has no partner.
            partner if partner >= size => Ok(()),
            partner if rank < partner => {
                group.send(&whole, partner)?;
                group.recv(&mut whole, partner)
            }
            partner => {
                group.recv(&mut whole, partner)?;
                group.send(&whole, partner)
            }
        }),
        Benchmark::Barrier => Box::new(|_| group.barrier()),
        Benchmark::Copy => {
            let mut copy = ones(elements);
            Box::new(move |_| {
                copy.copy_from_slice(&whole);
                std::hint::black_box(&mut copy);
                Ok(())
            })
        }
    })
}

/// Times of a call, in seconds; medians over calls of the slowest rank's.
#[derive(Clone, Copy)]
pub(super) struct Times {
    /// Until the call has returned.
    host: f64,
    /// Until its result is there.
    whole: f64,
}

/// Returns the times of a call, which takes its number and returns when it has been made. Collective.
///
/// Calls follow each other without a barrier, as in a training step.
pub(super) fn measure(
    group: &ProcessGroup,
    repeats: Option<usize>,
    mut call: impl FnMut(usize) -> anyhow::Result<Instant>,
) -> anyhow::Result<Times> {
    for number in 0..WARM_UP_CALLS {
        call(number)?;
    }
    let (mut hosts, mut wholes) = (Vec::new(), Vec::new());
    let begun = Instant::now();
    loop {
        for _ in 0..repeats.unwrap_or(CALLS_PER_BATCH) {
            let start = Instant::now();
            let returned = call(WARM_UP_CALLS + wholes.len())?;
            wholes.push(start.elapsed().as_secs_f64());
            hosts.push(returned.duration_since(start).as_secs_f64());
        }
        // All ranks come to the same decision.
        let mut elapsed = [begun.elapsed().as_secs_f64()];
        group.all_reduce(&mut elapsed, ReduceOp::Max)?;
        if repeats.is_some() || elapsed[0] >= SECONDS_PER_SIZE || wholes.len() >= MAX_CALLS {
            break;
        }
    }
    group.all_reduce(&mut hosts, ReduceOp::Max)?;
    group.all_reduce(&mut wholes, ReduceOp::Max)?;
    Ok(Times {
        host: median(hosts),
        whole: median(wholes),
    })
}

/// Returns what is reported of an operation on a message of `bytes`.
pub(super) fn measurement(benchmark: Benchmark, engine: &str, world: usize, bytes: usize, times: Times) -> Measurement {
    let ways = if benchmark == Benchmark::SendRecv { 2.0 } else { 1.0 };
    let seconds = times.whole / ways;
    Measurement {
        engine: engine.to_owned(),
        operation: benchmark.name(),
        world,
        bytes,
        seconds,
        host_seconds: Some(times.host / ways),
        bus_gb_per_s: bytes as f64 * benchmark.bus_factor(world) / seconds / 1e9,
    }
}
