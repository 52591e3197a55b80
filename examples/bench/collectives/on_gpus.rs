//! One rank of a job on GPUs: calls on tensors return before their results are there.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, bail};
use burn::tensor::{DType, Device, Tensor};
use burn_megatron::collectives::{
    ElementType, PendingTensor, ProcessGroup, ReduceOp, TensorCall, recv_start, send_start, start, tensor_engine,
};
use burn_megatron::context::ParallelContextConfig;
use burn_megatron::launch::World;
use burn_megatron::topology::ParallelConfig;
use examples::arguments::Dtype;
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
    let device = arguments.device.start(dtype, world)?;
    let layout = ParallelContextConfig::new(ParallelConfig::new());
    let context = arguments.device.connect(world, layout)?;
    measure_all(arguments, context.world_group(), (&device, dtype.into()), log)
}

fn measure_all(
    arguments: &Arguments,
    group: &ProcessGroup,
    (device, dtype): (&Device, DType),
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
            let tensor = Tensor::<1>::ones([own], (device, dtype));
            let times = measure(group, arguments.repeats, |number| {
                call(benchmark, tensor.clone(), number, group)
            })?;
            if let Some(log) = &mut log {
                let (engine, bytes) = (tensor_engine(device, group), elements * dtype.size());
                log.write(&measurement(benchmark, engine, group.size(), bytes, times))?;
            }
        }
    }
    Ok(())
}

/// Makes a call and waits for its result; returns when the call had been made.
fn call(benchmark: Benchmark, tensor: Tensor<1>, number: usize, group: &ProcessGroup) -> anyhow::Result<Instant> {
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
    let pending = start(tensor, collective, group);
    let returned = Instant::now();
    finish(pending, &device)?;
    Ok(returned)
}

/// Sends to the other of a pair and back; returns when both had been asked for.
fn send_and_receive(tensor: Tensor<1>, group: &ProcessGroup) -> anyhow::Result<Instant> {
    let (device, partner) = (tensor.device(), group.rank() ^ 1);
    // The last of an odd number of ranks has no partner.
    if partner >= group.size() {
        return Ok(Instant::now());
    }
    let (shape, dtype) = (tensor.dims(), tensor.dtype());
    let send = || send_start(tensor.clone(), partner, group);
    let sent = (group.rank() < partner).then(send);
    let received = recv_start(shape, dtype, &device, partner, group);
    let returned = Instant::now();
    finish(received, &device)?;
    sent.unwrap_or_else(send).wait()?;
    Ok(returned)
}

/// Waits until the result is in the device's memory.
fn finish(pending: PendingTensor, device: &Device) -> anyhow::Result<()> {
    pending.wait()?;
    device.sync().context("the GPU does not finish")
}
