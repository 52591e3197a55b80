//! `Architecture`: the GPUs that kernels are compiled for, with the limits that the CUDA driver reports of them.

use std::fmt;

/// A GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Architecture {
    /// An A100.
    Sm80,
    /// An H100.
    Sm90,
}

impl Architecture {
    pub const ALL: [Self; 2] = [Self::Sm80, Self::Sm90];

    /// The compute capability, times ten.
    pub fn version(self) -> u32 {
        match self {
            Self::Sm80 => 80,
            Self::Sm90 => 90,
        }
    }

    /// What NVRTC and `ptxas` are asked for: from Hopper on with the instructions that only this generation has.
    pub fn target(self) -> &'static str {
        match self {
            Self::Sm80 => "sm_80",
            Self::Sm90 => "sm_90a",
        }
    }

    /// The most shared memory of a block that asks for it, in bytes.
    pub(crate) fn max_shared_memory(self) -> usize {
        match self {
            Self::Sm80 => 163 * 1024,
            Self::Sm90 => 227 * 1024,
        }
    }

    /// The multiprocessors of the A100 and H100 for SXM boards.
    pub(crate) fn multiprocessors(self) -> u32 {
        match self {
            Self::Sm80 => 108,
            Self::Sm90 => 132,
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.target())
    }
}
