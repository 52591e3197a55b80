//! What attention takes of memory, forward and backward each: nothing that grows with the square of the sequence.
//!
//! On Vulkan what the runtime reserves for the kernels that need no matrix units; of those for matrix units what CUDA's
//! would, on the device that compiles and runs nothing; on Flex what is allocated.

use anyhow::ensure;
use burn::tensor::{DType, Distribution, Tensor};
use burn_flex::Flex;
use burn_wgpu::{WgpuDevice, WgpuRuntime};
use cubecl::Runtime;
use cubecl::client::ComputeClient;
use cubecl_kernels::KernelBackend;
use cubecl_kernels::flash_attention::{AttentionBackward, AttentionMask, AttentionOptions, PackedHeads, reference};
use cuda_source::{Architecture, CudaSource, CudaSourceDevice, Toolkit};
use libtest_mimic::Trial;

use crate::support::allocation::{most_bytes, restart};
use crate::support::backends::{SourceOfCuda, Vulkan, has_vulkan};

const HEADS: PackedHeads = PackedHeads { queries: 1, keys: 1 };

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for pass in [Pass::Forward, Pass::Backward] {
        let name = |place| format!("{place}::attention_{pass:?}_memory_grows_with_the_sequence").to_lowercase();
        let vulkan = move || Ok(is_linear(DType::F32, |case| on_vulkan(Case { pass, ..case }))?);
        trials.push(Trial::test(name("vulkan_f32"), vulkan).with_ignored_flag(!has_vulkan(DType::F32)));
        let flex = move || Ok(is_linear(DType::F32, |case| on_flex(Case { pass, ..case }))?);
        trials.push(Trial::test(name("flex_f32"), flex));
    }
    // One after the other: they share a device.
    let compiled = || {
        for pass in [Pass::Forward, Pass::Backward] {
            is_linear(DType::BF16, |case| on_matrix_units(Case { pass, ..case }))
                .map_err(|error| error.context(format!("{pass:?}")))?;
        }
        Ok(())
    };
    let name = "cuda_source_bf16::attention_memory_on_matrix_units_grows_with_the_sequence";
    trials.push(Trial::test(name, compiled).with_ignored_flag(Toolkit::find().is_err()));
    trials
}

#[derive(Clone, Copy, Debug)]
enum Pass {
    Forward,
    Backward,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    seq: usize,
    pass: Pass,
    has_weights: bool,
}

/// Checks that a pass over four times the tokens takes at most four times the memory, less than half of what the
/// weights would, and that the measure sees these where there are any.
fn is_linear(dtype: DType, bytes: impl Fn(Case) -> anyhow::Result<u64>) -> anyhow::Result<()> {
    let weights = |seq: usize| (seq * seq * dtype.size()) as u64;
    let case = |seq, has_weights| Case {
        seq,
        pass: Pass::Forward,
        has_weights,
    };
    let [short, long] = [1024, 4096].map(|seq| bytes(case(seq, false)));
    let (short, long) = (short?, long?);
    let facts = format!("{short} bytes for 1024 tokens, {long} for 4096");
    ensure!(long <= 4 * short && long < weights(4096) / 2, "{facts}");
    let with_weights = bytes(case(1024, true))?;
    ensure!(
        with_weights >= short + weights(1024),
        "{facts}; {with_weights} with weights"
    );
    Ok(())
}

/// Runs a pass between `start` and `bytes`.
fn measure<B: KernelBackend>(
    case: Case,
    [query, key, value, gradient]: [Tensor<B, 4>; 4],
    start: impl Fn(),
    bytes: impl Fn() -> anyhow::Result<u64>,
) -> anyhow::Result<u64> {
    let options = AttentionOptions {
        mask: AttentionMask::Causal,
        scale: 0.25,
        dropout: None,
        documents: None,
        key_lengths: None,
        is_deterministic: false,
    };
    let inputs = [query, key, value];
    match (case.pass, case.has_weights) {
        (Pass::Forward, false) => {
            start();
            let _forward = B::flash_attention_forward(inputs, None, &options);
            bytes()
        }
        (Pass::Forward, true) => {
            start();
            let _forward = reference::forward(inputs, None, &options);
            bytes()
        }
        (Pass::Backward, false) => {
            let forward = B::flash_attention_forward(inputs.clone(), None, &options);
            let pass = AttentionBackward {
                forward,
                gradient,
                bias: None,
            };
            start();
            let _gradients = B::flash_attention_backward(inputs, pass, &options);
            bytes()
        }
        (Pass::Backward, true) => {
            let pass = AttentionBackward {
                forward: reference::forward(inputs.clone(), None, &options),
                gradient,
                bias: None,
            };
            start();
            let _gradients = reference::backward(inputs, pass, &options);
            bytes()
        }
    }
}

fn drawn<B: KernelBackend>(case: Case, device: &B::Device) -> [Tensor<B, 4>; 4] {
    [(); 4].map(|()| Tensor::random([1, case.seq, 1, 16], Distribution::Normal(0.0, 1.0), device))
}

fn on_vulkan(case: Case) -> anyhow::Result<u64> {
    // A thread has a stream, and a stream its memory.
    let run = move || {
        let device = WgpuDevice::DefaultDevice;
        let client = WgpuRuntime::client(&device);
        let inputs = drawn::<Vulkan>(case, &device);
        measure(case, inputs, || client.memory_cleanup(), || reserved(&client))
    };
    let usage = std::thread::spawn(run).join();
    usage.map_err(|_| anyhow::anyhow!("{case:?} panicked"))?
}

fn reserved<R: Runtime>(client: &ComputeClient<R>) -> anyhow::Result<u64> {
    let usage = client.memory_usage().map_err(|error| anyhow::anyhow!("{error:?}"))?;
    Ok(usage.bytes_reserved)
}

/// The most that is allocated at once in a pass, on one thread.
fn on_flex(case: Case) -> anyhow::Result<u64> {
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build()?;
    pool.install(|| {
        restart();
        let before = most_bytes();
        let inputs = drawn::<Flex>(case, &Default::default());
        measure(case, inputs, restart, || Ok(u64::try_from(most_bytes() - before)?))
    })
}

/// Packed, in bf16, as training launches it. Burn's matmul is not compiled for it: the weights are a tensor of the same
/// size.
fn on_matrix_units(case: Case) -> anyhow::Result<u64> {
    let run = move || {
        let device = CudaSourceDevice::compiling(Architecture::Sm80);
        let client = CudaSource::client(&device);
        let options = (&device, DType::BF16);
        let packed = Tensor::<SourceOfCuda, 4>::empty([1, case.seq, HEADS.total(), 64], options);
        let gradient = Tensor::<SourceOfCuda, 4>::empty([1, case.seq, 1, 64], options);
        let attention = AttentionOptions {
            mask: AttentionMask::Causal,
            scale: 0.125,
            dropout: None,
            documents: None,
            key_lengths: None,
            is_deterministic: false,
        };
        let weights = || {
            let shape = [1, 1, case.seq, case.seq];
            case.has_weights
                .then(|| Tensor::<SourceOfCuda, 4>::empty(shape, options))
        };
        match case.pass {
            Pass::Forward => {
                client.memory_cleanup();
                let _weights = weights();
                let _forward = SourceOfCuda::flash_attention_packed_forward(packed, HEADS, None, &attention);
                reserved(&client)
            }
            Pass::Backward => {
                let forward = SourceOfCuda::flash_attention_packed_forward(packed.clone(), HEADS, None, &attention);
                client.memory_cleanup();
                let _weights = weights();
                let pass = AttentionBackward {
                    forward,
                    gradient,
                    bias: None,
                };
                let _gradient = SourceOfCuda::flash_attention_packed_backward(packed, HEADS, pass, &attention);
                reserved(&client)
            }
        }
    };
    let usage = std::thread::spawn(run).join();
    usage.map_err(|_| anyhow::anyhow!("{case:?} panicked"))?
}
