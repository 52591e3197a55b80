//! The CUDA driver's copy from device memory to device memory, timed by events on a stream of its own.

use cudarc::driver::DriverError;
use cudarc::driver::result::stream::StreamKind;
use cudarc::driver::result::{ctx, device, event, free_sync, malloc_sync, memcpy_dtod_async, memcpy_htod_sync};
use cudarc::driver::result::{primary_ctx, stream};
use cudarc::driver::sys::CUevent_flags::CU_EVENT_DEFAULT;

use super::timing::median;

/// Copies of a sample, and samples.
const COPIES: usize = 20;
const SAMPLES: usize = 9;

/// Copies `bytes` bytes, and returns how many it reads and writes in a second.
pub fn bytes_per_second(bytes: usize) -> anyhow::Result<f64> {
    // SAFETY: the primary context of the first device, which CubeCL uses too, is alive when this returns; memory,
    // stream and events are made and released inside; the copies stay within the two allocations.
    let seconds = unsafe { seconds(bytes)? };
    Ok(2.0 * bytes as f64 / seconds)
}

/// # Safety
/// The driver has been started.
unsafe fn seconds(bytes: usize) -> Result<f64, DriverError> {
    // SAFETY: as the caller says; each call is given what the calls before it made. An error leaves what was made to
    // the process's end, which follows.
    unsafe {
        ctx::set_current(primary_ctx::retain(device::get(0)?)?)?;
        let (from, to) = (malloc_sync(bytes)?, malloc_sync(bytes)?);
        fill(from, bytes)?;
        let queue = stream::create(StreamKind::NonBlocking)?;
        let (start, end) = (event::create(CU_EVENT_DEFAULT)?, event::create(CU_EVENT_DEFAULT)?);
        let mut seconds = Vec::new();
        for sample in 0..SAMPLES + 2 {
            event::record(start, queue)?;
            for _ in 0..COPIES {
                memcpy_dtod_async(to, from, bytes, queue)?;
            }
            event::record(end, queue)?;
            stream::synchronize(queue)?;
            if sample >= 2 {
                seconds.push(f64::from(event::elapsed(start, end)?) / 1e3 / COPIES as f64);
            }
        }
        event::destroy(start)?;
        event::destroy(end)?;
        stream::destroy(queue)?;
        free_sync(from)?;
        free_sync(to)?;
        Ok(median(&mut seconds))
    }
}

/// Writes numbers that no two of are alike.
///
/// # Safety
/// `memory` has `bytes` bytes, and its context is the current one.
unsafe fn fill(memory: u64, bytes: usize) -> Result<(), DriverError> {
    const BLOCK: usize = 1 << 20;
    let numbers: Vec<u32> = (0..BLOCK as u32 / 4)
        .map(|index| index.wrapping_mul(0x9E37_79B9) ^ 0x5bd1_e995)
        .collect();
    let block: &[u8] = bytemuck::cast_slice(&numbers);
    for first in (0..bytes).step_by(BLOCK) {
        let length = BLOCK.min(bytes - first);
        // SAFETY: the block ends within the memory.
        unsafe { memcpy_htod_sync(memory + first as u64, &block[..length])? };
    }
    Ok(())
}
