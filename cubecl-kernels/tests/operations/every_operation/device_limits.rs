//! Refusals of what a device, or its kernels, do not take: with the values, before anything is launched.

use anyhow::ensure;
use burn::tensor::{DType, Device, Tensor, TensorData};
use cubecl_kernels::KernelError;
use cubecl_kernels::flash_attention::{
    AttentionMask, AttentionOptions, PackedHeads, flash_attention, flash_attention_packed,
};
use libtest_mimic::Trial;

use crate::support::setting::plain;

pub fn trials() -> Vec<Trial> {
    vec![plain(
        "cuda_f32::attention_says_what_is_too_much",
        attention_says_what_is_too_much,
    )]
}

fn zeros<const D: usize>(device: &Device, dims: [usize; D], dtype: DType) -> Tensor<D> {
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

fn attention_says_what_is_too_much() -> anyhow::Result<()> {
    let device = &Device::cuda(0);
    let tensor = |batch, heads| zeros::<4>(device, [batch, 1, heads, 1], DType::F32);
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
