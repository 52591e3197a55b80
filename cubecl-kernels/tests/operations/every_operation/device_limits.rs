//! What a device, or its kernels, do not take: an error with the values, before anything is launched.

use anyhow::ensure;
use burn::tensor::{DType, Tensor, TensorData, backend::Backend};
use burn_wgpu::WgpuDevice;
use cubecl_kernels::flash_attention::{
    AttentionMask, AttentionOptions, PackedHeads, flash_attention, flash_attention_packed,
};
use cubecl_kernels::swiglu::swiglu;
use cubecl_kernels::{KernelBackend, KernelError};
use cuda_source::CudaSourceDevice;
use libtest_mimic::{Failed, Trial};

use crate::support::backends::{SourceOfCuda, Vulkan, has_vulkan};

pub fn trials() -> Vec<Trial> {
    let vulkan = |name: &str, run: fn() -> anyhow::Result<()>| {
        let trial = Trial::test(format!("vulkan_f32::{name}"), move || run().map_err(Failed::from));
        trial.with_ignored_flag(!has_vulkan(DType::F32))
    };
    vec![
        vulkan("attention_says_what_is_too_much", || {
            attention_says_what_is_too_much::<Vulkan>(&WgpuDevice::DefaultDevice)
        }),
        Trial::test("cuda_source_f32::attention_says_what_is_too_much", || {
            Ok(attention_says_what_is_too_much::<SourceOfCuda>(
                &CudaSourceDevice::default(),
            )?)
        }),
        vulkan(
            "types_that_a_device_lacks_are_errors",
            types_that_a_device_lacks_are_errors,
        ),
    ]
}

fn zeros<B: KernelBackend, const D: usize>(device: &B::Device, dims: [usize; D], dtype: DType) -> Tensor<B, D> {
    let data = TensorData::zeros::<f32, _>(dims).convert_dtype(dtype);
    Tensor::from_data(data, (device, dtype))
}

/// Checks that an operation refused its inputs, in words that contain some.
fn expect<T>(result: Result<T, KernelError>, words: &str) -> anyhow::Result<()> {
    let message = result.err().map(|error| error.to_string()).unwrap_or_default();
    ensure!(
        message.contains(words),
        "the error is {message:?}, expected one with {words:?}"
    );
    Ok(())
}

fn options() -> AttentionOptions {
    AttentionOptions {
        mask: AttentionMask::Full,
        scale: 1.0,
        dropout: None,
        documents: None,
        key_lengths: None,
        is_deterministic: false,
    }
}

fn attention_says_what_is_too_much<B: KernelBackend>(device: &B::Device) -> anyhow::Result<()> {
    let tensor = |batch, heads| zeros::<B, 4>(device, [batch, 1, heads, 1], DType::F32);
    let run = |batch: usize, heads: usize, kv_heads: usize| {
        flash_attention(
            tensor(batch, heads),
            tensor(batch, kv_heads),
            tensor(batch, kv_heads),
            options(),
        )
    };
    expect(
        run(65_536, 1, 1),
        "flash_attention: the batch must be at most 65535 on this device, got 65536",
    )?;
    expect(
        run(1, 65_536, 1),
        "flash_attention: the number of query heads must be at most 65535 on this device, got 65536",
    )?;
    let packed = PackedHeads {
        queries: 65_536,
        keys: 1,
    };
    expect(
        flash_attention_packed(tensor(1, packed.total()), packed, options()),
        "flash_attention_packed: the number of query heads",
    )
}

fn types_that_a_device_lacks_are_errors() -> anyhow::Result<()> {
    let device = WgpuDevice::DefaultDevice;
    if Vulkan::supports_dtype(&device, DType::BF16) {
        return Ok(());
    }
    let input = zeros::<Vulkan, 2>(&device, [2, 4], DType::BF16);
    expect(swiglu(input), "swiglu: the input is BF16, which")?;
    let tensor = || zeros::<Vulkan, 4>(&device, [1, 3, 2, 4], DType::BF16);
    expect(
        flash_attention(tensor(), tensor(), tensor(), options()),
        "flash_attention: the query is BF16, which",
    )
}
