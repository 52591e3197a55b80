//! One rank of a job on GPUs: calls on tensors return before their results are there.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, bail};
use burn::tensor::{DType, Tensor};
use burn_megatron::collectives::{CollectiveBackend, ElementType, PendingTensor, ProcessGroup, ReduceOp, TensorCall};
use burn_megatron::context::ParallelContextConfig;
use burn_megatron::launch::World;
use burn_megatron::topology::ParallelConfig;
use examples::arguments::Dtype;
use examples::device::{Program, TrainingBackend};
use examples::json_lines::JsonLines;

use super::worker::{measure, measurement};
use super::{Arguments, Benchmark};

/// Operations that have a form on tensors.
pub const BENCHMARKS: [Benchmark; 5] = [
    Benchmark::AllReduce,
    Benchmark::AllGather,
    Benchmark::ReduceScatter,
    Benchmark::Broadcast,
    Benchmark::SendRecv,
];

/// Returns the type of tensors of these elements.
///
/// # Errors
/// When a GPU's tensors are not of it.
pub fn dtype(element_type: ElementType) -> anyhow::Result<Dtype> {
    Ok(match element_type {
        ElementType::F32 => Dtype::F32,
        ElementType::F64 => Dtype::F64,
        ElementType::F16 => Dtype::F16,
        ElementType::BF16 => Dtype::Bf16,
        other => bail!("{} is not measured between GPUs", other.name()),
    })
}

/// Measures as a rank of a job; rank 0 writes the results to `log`.
pub fn run(arguments: &Arguments, world: &World, log: &Path) -> anyhow::Result<()> {
    let dtype = dtype(arguments.element_type)?;
    let measuring = Measuring {
        arguments,
        dtype: dtype.into(),
        world,
        log,
    };
    arguments.device.run(dtype, world, measuring)
}

struct Measuring<'a> {
    arguments: &'a Arguments,
    dtype: DType,
    world: &'a World,
    log: &'a Path,
}

impl Program for Measuring<'_> {
    type Output = ();

    fn run<B: TrainingBackend>(self, device: B::Device) -> anyhow::Result<()> {
        let context = self
            .arguments
            .device
            .connect(self.world, ParallelContextConfig::new(ParallelConfig::new()))?;
        measure_all::<B::InnerBackend>(self.arguments, context.world_group(), (&device, self.dtype), self.log)
    }
}

fn measure_all<B: CollectiveBackend>(
    arguments: &Arguments,
    group: &ProcessGroup,
    (device, dtype): (&B::Device, DType),
    log: &Path,
) -> anyhow::Result<()> {
    let mut log = (group.rank() == 0).then(|| JsonLines::create(log)).transpose()?;
    let sizes = arguments.sizes_kib.iter().map(|kib| kib * 1024);
    let sizes: Vec<usize> = sizes.filter(|&bytes| bytes <= arguments.max_bytes).collect();
    for benchmark in arguments.operations()? {
        for &bytes in &sizes {
            let elements = bytes / dtype.size();
            // Rounded down to whole shards, of which a rank begins with one to gather all.
            let elements = elements - elements % group.size();
            let own = match benchmark {
                Benchmark::AllGather => elements / group.size(),
                _ => elements,
            };
            let tensor = Tensor::<B, 1>::ones([own], (device, dtype));
            let times = measure(group, arguments.repeats, |number| {
                call(benchmark, tensor.clone(), number, group)
            })?;
            if let Some(log) = &mut log {
                let (engine, bytes) = (B::tensor_engine(group), elements * dtype.size());
                log.write(&measurement(benchmark, engine, group.size(), bytes, times))?;
            }
        }
    }
    Ok(())
}

/// Makes a call and waits for its result; returns when the call had been made.
fn call<B: CollectiveBackend>(
    benchmark: Benchmark,
    tensor: Tensor<B, 1>,
    number: usize,
    group: &ProcessGroup,
) -> anyhow::Result<Instant> {
    let device = tensor.device();
    let collective = match benchmark {
        Benchmark::AllGather => TensorCall::AllGather,
        Benchmark::ReduceScatter => TensorCall::ReduceScatter(ReduceOp::Sum),
        Benchmark::Broadcast => TensorCall::Broadcast {
            root: number % group.size(),
        },
        Benchmark::SendRecv => return send_and_receive(tensor, group),
        _ => TensorCall::AllReduce(ReduceOp::Sum),
    };
    let pending = B::start(tensor.into_primitive().tensor(), collective, group);
    let returned = Instant::now();
    finish(pending, &device)?;
    Ok(returned)
}

/// Sends to the other of a pair and back; returns when both had been asked for.
fn send_and_receive<B: CollectiveBackend>(tensor: Tensor<B, 1>, group: &ProcessGroup) -> anyhow::Result<Instant> {
    let (device, partner) = (tensor.device(), group.rank() ^ 1);
    // The last of an odd number of ranks has no partner.
    if partner >= group.size() {
        return Ok(Instant::now());
    }
    let (shape, dtype) = (tensor.shape(), tensor.dtype());
    let send = || B::send_start(tensor.clone().into_primitive().tensor(), partner, group);
    let sent = (group.rank() < partner).then(send);
    let received = B::recv_start(shape, dtype, &device, partner, group);
    let returned = Instant::now();
    finish(received, &device)?;
    sent.unwrap_or_else(send).wait()?;
    Ok(returned)
}

/// Waits until the result is in the device's memory.
fn finish<B: CollectiveBackend>(pending: PendingTensor<B>, device: &B::Device) -> anyhow::Result<()> {
    pending.wait()?;
    B::sync(device).context("the GPU does not finish")
}
