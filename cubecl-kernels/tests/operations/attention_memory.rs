//! What attention reserves on the runtime, forward and backward: nothing that grows with the square of the sequence.

use anyhow::ensure;
use burn::backend::Autodiff;
use burn::tensor::{DType, Distribution, Tensor};
use burn_wgpu::{WgpuDevice, WgpuRuntime};
use cubecl::Runtime;
use cubecl_kernels::flash_attention::{AttentionOptions, Sight, flash_attention, reference};
use libtest_mimic::Trial;

use crate::backends::{Vulkan, has_vulkan};

type B = Autodiff<Vulkan>;

const D_HEAD: usize = 16;

pub fn trials() -> Vec<Trial> {
    let trial = Trial::test(
        "vulkan::attention_memory_grows_with_the_sequence_not_its_square",
        || {
            memory_is_linear()?;
            Ok(())
        },
    );
    vec![trial.with_ignored_flag(!has_vulkan(DType::F32))]
}

fn memory_is_linear() -> anyhow::Result<()> {
    let fused = |inputs: [Tensor<B, 4>; 3], options: AttentionOptions| {
        let [query, key, value] = inputs;
        flash_attention(query, key, value, options).expect("the shapes fit")
    };
    let plain = |inputs: [Tensor<B, 4>; 3], options: AttentionOptions| reference::forward(inputs, &options).output;
    let weights = |seq: usize| (seq * seq * size_of::<f32>()) as u64;
    let (short, long) = (reserved(1024, fused)?, reserved(4096, fused)?);
    let facts = format!("{short} bytes reserved for 1024 tokens, {long} for 4096");
    // Four times the tensors, in pages of the runtime's sizes.
    ensure!(long <= 4 * short && long < weights(4096) / 2, "{facts}");
    // The measure sees weights where there are any.
    let with_weights = reserved(1024, plain)?;
    ensure!(
        with_weights >= short + weights(1024),
        "{facts}; {with_weights} with weights"
    );
    Ok(())
}

/// The bytes that the runtime reserves for a forward and a backward pass on a stream of its own.
fn reserved(
    seq: usize,
    attend: impl Fn([Tensor<B, 4>; 3], AttentionOptions) -> Tensor<B, 4> + Send + Copy + 'static,
) -> anyhow::Result<u64> {
    // A thread has a stream, and a stream its memory.
    let run = move || {
        let device = WgpuDevice::DefaultDevice;
        let inputs = [(); 3].map(|()| {
            let shape = [1, seq, 1, D_HEAD];
            Tensor::<B, 4>::random(shape, Distribution::Normal(0.0, 1.0), &device).require_grad()
        });
        let options = AttentionOptions {
            sight: Sight::Causal,
            scale: 0.25,
            dropout: None,
        };
        let output = attend(inputs.clone(), options);
        let gradients = output.sum().backward();
        for input in &inputs {
            let gradient = input.grad(&gradients).expect("tracked");
            assert!(gradient.sum().into_scalar().is_finite());
        }
        let usage = WgpuRuntime::client(&device).memory_usage();
        usage.map(|usage| usage.bytes_reserved)
    };
    let usage = std::thread::spawn(run).join();
    let usage = usage.map_err(|_| anyhow::anyhow!("the passes of {seq} tokens panicked"))?;
    usage.map_err(|error| anyhow::anyhow!("{error:?}"))
}
