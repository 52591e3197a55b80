//! What a rank of a job does: it makes the calls and times them.

use std::path::Path;
use std::time::Instant;

use anyhow::Context as _;
use burn_megatron::collectives::{
    CollectiveElement, CollectiveError, ElementType, GroupConfig, ProcessGroup, ReduceOp, SharedBuffer,
};
use burn_megatron::launch::{JoinConfig, World};
use examples::figures::median;
use examples::json_lines::JsonLines;
use examples::launching::run_own_rank;

use crate::collectives::report::Measurement;
use crate::collectives::{Arguments, Benchmark};

/// Tells the ranks of a job which of the engines they are to use.
pub const ENGINE_VARIABLE: &str = "BENCH_COLLECTIVES_ENGINE";

/// Calls of each size that are not counted.
const WARM_UP_CALLS: usize = 3;
/// How long the calls of one size take in all, unless the number of calls is given.
const SECONDS_PER_SIZE: f64 = 0.3;
/// Calls between two looks at the time.
const CALLS_PER_BATCH: usize = 5;
/// Calls that are enough, however short.
const MAX_CALLS: usize = 5000;

/// Measures as a rank of the job around this process; rank 0 writes the results to `log`.
pub fn run_rank(arguments: &Arguments, log: &Path) -> anyhow::Result<()> {
    run_own_rank("--worker-log", &JoinConfig::new(), |world| {
        match arguments.element_type {
            ElementType::F32 => measure_all::<f32>(arguments, log, world),
            ElementType::F64 => measure_all::<f64>(arguments, log, world),
            ElementType::F16 => measure_all::<half::f16>(arguments, log, world),
            ElementType::BF16 => measure_all::<half::bf16>(arguments, log, world),
            ElementType::I32 => measure_all::<i32>(arguments, log, world),
            ElementType::I64 => measure_all::<i64>(arguments, log, world),
            ElementType::U8 => measure_all::<u8>(arguments, log, world),
        }
    })
}

fn measure_all<T: CollectiveElement + From<u8>>(
    arguments: &Arguments,
    log: &Path,
    world: &World,
) -> anyhow::Result<()> {
    let engine = std::env::var(ENGINE_VARIABLE).with_context(|| format!("{ENGINE_VARIABLE} is not set"))?;
    let engine = crate::collectives::engine(&engine).map_err(|rule| anyhow::anyhow!("{ENGINE_VARIABLE}: {rule}"))?;
    let ranks: Vec<usize> = (0..world.world_size()).collect();
    let group = ProcessGroup::connect(world, "bench", &ranks, &GroupConfig::new().with_engine(engine))?;
    let mut log = match group.rank() {
        0 => Some(JsonLines::create(log)?),
        _ => None,
    };
    for &benchmark in &arguments.operations {
        let mut sizes: Vec<usize> = match benchmark {
            Benchmark::Barrier => vec![0],
            _ => arguments.sizes_kib.iter().map(|kib| kib * 1024).collect(),
        };
        sizes.retain(|&bytes| bytes <= arguments.max_bytes);
        for bytes in sizes {
            let mut task = Task::<T>::new(benchmark, &group, bytes)?;
            let seconds = task.measure(arguments.repeats)?;
            if let Some(log) = &mut log {
                log.write(&Measurement {
                    engine: group.engine_name().to_owned(),
                    operation: benchmark.to_string(),
                    world: group.size(),
                    bytes: task.bytes(),
                    seconds,
                    bus_gb_per_s: task.bytes() as f64 * benchmark.bus_factor(group.size()) / seconds / 1e9,
                })?;
            }
        }
    }
    Ok(())
}

/// One operation on one size, with its buffers.
struct Task<'a, T> {
    benchmark: Benchmark,
    group: &'a ProcessGroup,
    /// Elements of the message.
    elements: usize,
    /// The whole message, for the operations on ordinary memory.
    whole: Vec<T>,
    /// The same for those on the group's.
    shared: SharedBuffer<T>,
    /// This rank's part, for the operations that have one, or the copy.
    shard: Vec<T>,
    calls: usize,
}

impl<'a, T: CollectiveElement + From<u8>> Task<'a, T> {
    /// Returns the task with a message of `bytes`, rounded down to whole shards. Collective.
    fn new(benchmark: Benchmark, group: &'a ProcessGroup, bytes: usize) -> Result<Self, CollectiveError> {
        let elements = bytes / T::ELEMENT_TYPE.size_bytes();
        let shard = match benchmark {
            Benchmark::AllGather | Benchmark::ReduceScatter => elements / group.size(),
            Benchmark::Copy => elements,
            _ => 0,
        };
        let elements = match benchmark {
            Benchmark::AllGather | Benchmark::ReduceScatter => shard * group.size(),
            _ => elements,
        };
        let (whole, shared) = match benchmark {
            Benchmark::AllReduceShared => (0, elements),
            _ => (elements, 0),
        };
        let mut shared = group.allocate(shared)?;
        // Ones, not zeros: memory that was never written has no pages of its own.
        shared.fill(T::from(1));
        Ok(Self {
            benchmark,
            group,
            elements,
            whole: vec![T::from(1); whole],
            shared,
            shard: vec![T::from(1); shard],
            calls: 0,
        })
    }

    fn bytes(&self) -> usize {
        self.elements * T::ELEMENT_TYPE.size_bytes()
    }

    /// Returns the median over calls of the slowest rank's time. Collective.
    ///
    /// Calls follow each other without a barrier, as in a training step.
    fn measure(&mut self, repeats: Option<u32>) -> Result<f64, CollectiveError> {
        for _ in 0..WARM_UP_CALLS {
            self.call()?;
        }
        let mut seconds = Vec::new();
        let start = Instant::now();
        loop {
            let batch = match repeats {
                Some(repeats) => repeats as usize,
                None => CALLS_PER_BATCH,
            };
            for _ in 0..batch {
                seconds.push(self.call()?);
            }
            // All ranks come to the same decision.
            let mut elapsed = [start.elapsed().as_secs_f64()];
            self.group.all_reduce(&mut elapsed, ReduceOp::Max)?;
            if repeats.is_some() || elapsed[0] >= SECONDS_PER_SIZE || seconds.len() >= MAX_CALLS {
                break;
            }
        }
        self.group.all_reduce(&mut seconds, ReduceOp::Max)?;
        Ok(median(seconds))
    }

    /// Makes one call and returns how long it took here.
    fn call(&mut self) -> Result<f64, CollectiveError> {
        let group = self.group;
        let start = Instant::now();
        match self.benchmark {
            Benchmark::AllReduce => group.all_reduce(&mut self.whole, ReduceOp::Sum)?,
            Benchmark::AllReduceShared => group.all_reduce_shared(&mut self.shared, ReduceOp::Sum)?,
            Benchmark::AllGather => group.all_gather(&self.shard, &mut self.whole)?,
            Benchmark::ReduceScatter => group.reduce_scatter(&self.whole, &mut self.shard, ReduceOp::Sum)?,
            // With a fixed root, the root would run ahead of the others.
            Benchmark::Broadcast => group.broadcast(&mut self.whole, self.calls % group.size())?,
            Benchmark::SendRecv => self.ping_pong()?,
            Benchmark::Barrier => group.barrier()?,
            Benchmark::Copy => {
                self.shard.copy_from_slice(&self.whole);
                std::hint::black_box(&mut self.shard);
            }
        }
        self.calls += 1;
        let seconds = start.elapsed().as_secs_f64();
        Ok(match self.benchmark {
            Benchmark::SendRecv => seconds / 2.0,
            _ => seconds,
        })
    }

    /// Sends the message to the other rank of the pair and back; the last of an odd number of ranks has no partner.
    fn ping_pong(&mut self) -> Result<(), CollectiveError> {
        let partner = self.group.rank() ^ 1;
        if partner >= self.group.size() {
            return Ok(());
        }
        if self.group.rank() < partner {
            self.group.send(&self.whole, partner)?;
            self.group.recv(&mut self.whole, partner)
        } else {
            self.group.recv(&mut self.whole, partner)?;
            self.group.send(&self.whole, partner)
        }
    }
}
