//! `Gpu`: what the model takes of each GPU. Widths are those of CUDA's programming guide, clocks and memory those of
//! the data sheets; what is assumed says so.

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Gpu {
    /// Its name and, where there are two, the memory in GB.
    pub name: &'static str,
    /// What its kernels are compiled for.
    pub target: &'static str,
    pub multiprocessors: u32,
    /// Cycles per second under load.
    pub clock_hz: f64,
    /// Bytes per second of the data sheet.
    pub memory_bytes_per_second: f64,
    /// Cycles that `HMMA.16816`, 2048 products with a sum, holds the matrix unit of a sub-partition.
    pub matrix_cycles: f64,
    /// Cycles that a warp's instruction holds the pipe of f32 sums and products.
    pub float_cycles: f64,
    /// Shared memory per multiprocessor, in bytes.
    pub shared_memory: u32,
    /// Bytes that the system takes of it per block.
    pub shared_memory_per_block: u32,
    /// Bytes of f32 sums per cycle that the L2 cache adds for each multiprocessor. Assumed: 80 slices (A100) or 96
    /// (H100) add a sector of 32 bytes each per cycle, at the multiprocessors' clock.
    pub atomic_bytes_per_cycle: f64,
}

/// Sub-partitions per multiprocessor; each issues one instruction per cycle.
pub const SUB_PARTITIONS: usize = 4;
/// Bytes of a warp's 32 threads for each byte of one.
pub const WARP: u32 = 32;

impl Gpu {
    pub const A100_40: Self = Self {
        name: "A100-40",
        target: "sm_80",
        multiprocessors: 108,
        clock_hz: 1.41e9,
        memory_bytes_per_second: 1555e9,
        matrix_cycles: 8.0,
        float_cycles: 2.0,
        shared_memory: 164 * 1024,
        shared_memory_per_block: 1024,
        atomic_bytes_per_cycle: 80.0 * 32.0 / 108.0,
    };
    pub const A100_80: Self = Self {
        name: "A100-80",
        memory_bytes_per_second: 2039e9,
        ..Self::A100_40
    };
    /// An H100 for SXM boards.
    pub const H100: Self = Self {
        name: "H100",
        target: "sm_90a",
        multiprocessors: 132,
        clock_hz: 1.755e9,
        memory_bytes_per_second: 3350e9,
        matrix_cycles: 4.0,
        float_cycles: 1.0,
        shared_memory: 228 * 1024,
        shared_memory_per_block: 1024,
        atomic_bytes_per_cycle: 96.0 * 32.0 / 132.0,
    };
    pub const ALL: [Self; 3] = [Self::A100_40, Self::A100_80, Self::H100];

    /// Bytes per cycle and multiprocessor that memory gives.
    pub fn memory_bytes_per_cycle(&self) -> f64 {
        self.memory_bytes_per_second / f64::from(self.multiprocessors) / self.clock_hz
    }

    /// Operations per second of the matrix units, a product and a sum being two.
    pub fn matrix_flops(&self) -> f64 {
        let per_cycle = SUB_PARTITIONS as f64 * 2.0 * 2048.0 / self.matrix_cycles;
        f64::from(self.multiprocessors) * per_cycle * self.clock_hz
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_are_those_of_the_data_sheets() {
        let tera = |gpu: Gpu| gpu.matrix_flops() / 1e12;
        assert_eq!(tera(Gpu::A100_80).round(), 312.0);
        // 989 at the highest clock of 1.83 GHz.
        assert_eq!((tera(Gpu::H100) * 1.83 / 1.755).round(), 989.0);
        assert!((Gpu::A100_40.memory_bytes_per_cycle() - 10.2).abs() < 0.1);
    }
}
