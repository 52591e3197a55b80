//! How many blocks of a kernel a multiprocessor holds at once.

use crate::gpu::{Gpu, SUB_PARTITIONS, WARP};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockSize {
    pub threads: u32,
    /// Registers of each.
    pub registers: u32,
    /// Shared memory in bytes.
    pub shared_memory: u32,
}

/// Registers of a sub-partition.
const REGISTERS: u32 = 16384;
/// Registers are given to a warp in units of these.
const REGISTER_UNIT: u32 = 256;
/// Warps of a sub-partition.
const WARPS: u32 = 16;
/// Blocks of a multiprocessor.
const BLOCKS: u32 = 32;

impl BlockSize {
    pub fn warps(&self) -> u32 {
        self.threads.div_ceil(WARP)
    }

    /// Returns how many blocks a multiprocessor holds.
    pub fn resident(&self, gpu: &Gpu) -> u32 {
        let of_warp = (self.registers * WARP)
            .next_multiple_of(REGISTER_UNIT)
            .max(REGISTER_UNIT);
        let warps = SUB_PARTITIONS as u32 * (REGISTERS / of_warp).min(WARPS);
        let by_memory = gpu.shared_memory / (self.shared_memory + gpu.shared_memory_per_block);
        (warps / self.warps().max(1)).min(by_memory).min(BLOCKS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_shared_memory_and_warps_bound() {
        let resident = |threads, registers, shared_memory| {
            let size = BlockSize {
                threads,
                registers,
                shared_memory,
            };
            size.resident(&Gpu::A100_80)
        };
        assert_eq!(resident(128, 251, 69_648), 2);
        assert_eq!(resident(128, 168, 54_955), 2);
        assert_eq!(resident(128, 168, 54_954), 3);
        assert_eq!(resident(256, 32, 2048), 8);
        assert_eq!(resident(256, 44, 0), 5);
        assert_eq!(resident(64, 16, 0), 32);
    }
}
