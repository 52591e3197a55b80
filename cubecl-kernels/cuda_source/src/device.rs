//! `CudaSourceDevice`: which GPU a kernel is written for, and what becomes of its source.

use burn_backend::DeviceOps;
use cubecl_common::device::{Device, DeviceId};

use crate::Architecture;

/// What becomes of a kernel's source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// NVRTC and `ptxas` compile it; nothing runs, and buffers keep what they held.
    Compile,
    /// It runs on the CPU.
    Run,
}

/// A device of the runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CudaSourceDevice {
    /// The GPU.
    pub architecture: Architecture,
    /// What becomes of the source.
    pub mode: Mode,
}

impl Default for CudaSourceDevice {
    fn default() -> Self {
        Self {
            architecture: Architecture::Sm80,
            mode: Mode::Run,
        }
    }
}

impl CudaSourceDevice {
    pub(crate) const ALL: [Self; 4] = {
        use Architecture::{Sm80, Sm90};
        use Mode::{Compile, Run};
        [
            Self {
                architecture: Sm80,
                mode: Run,
            },
            Self {
                architecture: Sm90,
                mode: Run,
            },
            Self {
                architecture: Sm80,
                mode: Compile,
            },
            Self {
                architecture: Sm90,
                mode: Compile,
            },
        ]
    };
}

impl Device for CudaSourceDevice {
    fn from_id(device_id: DeviceId) -> Self {
        Self::ALL[usize::from(device_id.index_id)]
    }

    fn to_id(&self) -> DeviceId {
        let index = Self::ALL
            .iter()
            .position(|device| device == self)
            .expect("all are listed");
        DeviceId {
            type_id: 0,
            index_id: index as u16,
        }
    }
}

impl DeviceOps for CudaSourceDevice {}
