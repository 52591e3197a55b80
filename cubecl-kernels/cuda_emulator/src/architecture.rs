//! `Architecture`: the GPUs that kernels are compiled for, with what the CUDA driver says of each.

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

    /// Returns the GPU of a name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|architecture| architecture.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sm80 => "A100",
            Self::Sm90 => "H100",
        }
    }

    /// The target that NVRTC and `ptxas` are asked for: from Hopper on with the instructions that only this generation
    /// has.
    pub fn target(self) -> &'static str {
        match self {
            Self::Sm80 => "sm_80",
            Self::Sm90 => "sm_90a",
        }
    }

    /// The major number of the compute capability, whose minor is 0.
    pub(crate) fn capability(self) -> u32 {
        match self {
            Self::Sm80 => 8,
            Self::Sm90 => 9,
        }
    }

    /// The shared memory of a multiprocessor in bytes; of a block that asks for it, 1 KiB less.
    pub(crate) fn shared_memory(self) -> usize {
        match self {
            Self::Sm80 => 164 << 10,
            Self::Sm90 => 228 << 10,
        }
    }

    /// The most shared memory of a block that asks for it, in bytes.
    pub(crate) fn max_shared_memory(self) -> usize {
        self.shared_memory() - (1 << 10)
    }

    /// The multiprocessors of SXM boards.
    pub(crate) fn multiprocessors(self) -> usize {
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
