//! The CUDA driver's copy from device memory to device memory, timed by events on a stream of its own.

use cudarc::driver::result::memcpy_dtod_async;

use super::driver::{Gpu, Memory, Stream};
use super::timing::median;

/// Copies of a sample, and samples.
const COPIES: usize = 20;
const SAMPLES: usize = 9;

/// Copies `bytes` bytes, and returns how many it reads and writes in a second.
pub fn bytes_per_second(bytes: usize) -> anyhow::Result<f64> {
    let _gpu = Gpu::open()?;
    let (from, to, stream) = (Memory::random(bytes)?, Memory::random(bytes)?, Stream::new()?);
    let copies = || {
        for _ in 0..COPIES {
            // SAFETY: both have `bytes` bytes, and stay until the stream has been waited for.
            unsafe { memcpy_dtod_async(to.address, from.address, bytes, stream.0)? };
        }
        Ok(())
    };
    let mut seconds = Vec::new();
    for sample in 0..SAMPLES + 2 {
        let taken = stream.time(copies)?;
        if sample >= 2 {
            seconds.push(taken / COPIES as f64);
        }
    }
    Ok(2.0 * bytes as f64 / median(&mut seconds))
}
