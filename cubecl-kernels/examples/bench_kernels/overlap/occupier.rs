//! [`Occupier`]: a kernel that keeps multiprocessors from others for a time, as those of NCCL do.

use std::ffi::c_void;

use cudarc::driver::sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;

use crate::driver::{Gpu, Kernel, Memory, Stream};

/// A block reads and writes floats of its own, round after round.
const SOURCE: &str = r#"
extern "C" __global__ void occupy(float *data, unsigned int floats, unsigned int rounds) {
    float *own = data + (size_t)blockIdx.x * floats;
    for (unsigned int round = 0; round < rounds; ++round) {
        for (unsigned int at = threadIdx.x; at < floats; at += blockDim.x) {
            own[at] = own[at] * 0.5f + 1.0f;
        }
    }
}
"#;

/// Work of a block meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// It keeps its multiprocessor, and works in the cache.
    Cache,
    /// It reads and writes memory at full speed.
    Memory,
}

/// The kernel: a block has all of a multiprocessor's shared memory, so that no matmul's block runs next to it.
pub struct Occupier {
    kernel: Kernel,
    memory: Memory,
    threads: u32,
    most_blocks: u32,
}

/// Blocks that work for a time.
#[derive(Clone, Copy, Debug)]
pub struct Occupation {
    pub blocks: u32,
    floats: u32,
    rounds: u32,
}

impl Occupier {
    /// Makes one of up to `most_blocks` blocks; `small` for the emulator, where a block's threads run in turn.
    pub fn new(gpu: &Gpu, most_blocks: u32, small: bool) -> anyhow::Result<Self> {
        let shared = gpu.attribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)?;
        let (threads, bytes_of_block) = if small { (32, 1 << 10) } else { (512, 16 << 20) };
        Ok(Self {
            kernel: gpu.compile(SOURCE, "occupy", shared)?,
            memory: Memory::random(most_blocks as usize * bytes_of_block)?,
            threads,
            most_blocks,
        })
    }

    /// Returns blocks that take some `seconds` with the GPU to themselves: found by trying.
    pub fn lasting(&self, work: Work, blocks: u32, seconds: f64, stream: &Stream) -> anyhow::Result<Occupation> {
        assert!(blocks <= self.most_blocks, "{blocks} blocks of {}", self.most_blocks);
        let mut tried = Occupation {
            blocks,
            floats: match work {
                Work::Cache => self.threads,
                Work::Memory => (self.memory.bytes() / size_of::<f32>()) as u32 / self.most_blocks,
            },
            rounds: 1,
        };
        loop {
            let taken = stream.time(|| self.launch(tried, stream))?;
            let factor = seconds / taken.max(1e-9);
            if factor < 4.0 || tried.rounds >= 1 << 24 {
                tried.rounds = (f64::from(tried.rounds) * factor).ceil().max(1.0) as u32;
                return Ok(tried);
            }
            // Not at once: a short launch says little of a long one.
            tried.rounds *= (factor / 2.0).clamp(2.0, 64.0) as u32;
        }
    }

    /// Queues it.
    pub fn launch(&self, occupation: Occupation, stream: &Stream) -> anyhow::Result<()> {
        let Occupation {
            blocks,
            mut floats,
            mut rounds,
        } = occupation;
        let mut address = self.memory.address;
        let mut arguments = [
            (&raw mut address).cast::<c_void>(),
            (&raw mut floats).cast(),
            (&raw mut rounds).cast(),
        ];
        // SAFETY: they are the kernel's arguments; `blocks * floats` numbers are in the memory, which outlives the
        // stream's work.
        unsafe { self.kernel.launch(blocks, self.threads, stream, &mut arguments)? };
        Ok(())
    }
}
