//! A matmul next to a kernel that occupies multiprocessors, as a collective does: how much slower it is, for how many
//! multiprocessors cuBLASLt should choose its kernel ([`reserve`]), and what `CUDA_DEVICE_MAX_CONNECTIONS` changes
//! ([`queues`]), which a process reads once.

mod occupier;
mod queues;
mod reserve;

use burn::tensor::DType;

use super::driver::{Gpu, Stream};
use super::sizes::StepSizes;
use super::step_products;
use occupier::Occupier;

/// Multiprocessors that are occupied.
const OCCUPIED: [u32; 5] = [4, 8, 16, 32, 64];

/// Device, streams and matmul of both parts.
struct Scene<'a> {
    gpu: &'a Gpu,
    occupier: Occupier,
    products: &'a cubecl_kernels::cublaslt::measured::Products,
    /// Stream of the matmuls.
    stream: Stream,
}

/// Prints both tables, as Markdown.
pub fn print(sizes: StepSizes, dtype: DType, small: bool) -> anyhow::Result<()> {
    let gpu = Gpu::open()?;
    let products = step_products::library(&gpu)?;
    let connections = std::env::var("CUDA_DEVICE_MAX_CONNECTIONS").unwrap_or_else(|_| "not set".to_owned());
    println!(
        "{}, {} multiprocessors, CUDA_DEVICE_MAX_CONNECTIONS {connections}",
        gpu.name()?,
        gpu.multiprocessors()?
    );
    let scene = Scene {
        occupier: Occupier::new(&gpu, OCCUPIED[OCCUPIED.len() - 1], small)?,
        gpu: &gpu,
        products: &products,
        stream: Stream::new()?,
    };
    let layers = step_products::all(sizes, dtype);
    let forward = |name| {
        let found = layers.iter().find(|own| own.layer == name && own.pass == "forward");
        found.expect("every layer has a forward pass")
    };
    reserve::print(&scene, &[forward("qkv"), forward("down")])?;
    queues::print(&scene, forward("qkv"), &connections)
}
