//! `CudaSourceDevice`: which GPU a kernel is written for, and what becomes of its source.

use std::num::NonZero;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};

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

/// How many equal devices there are.
pub const EQUAL_DEVICES: u16 = 16;

/// A device of the runtime. Each has a queue of its own, so that threads with a device each do not wait for each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CudaSourceDevice {
    pub architecture: Architecture,
    /// What becomes of the source.
    pub mode: Mode,
    /// Which of the [`EQUAL_DEVICES`].
    pub index: u16,
}

impl Default for CudaSourceDevice {
    fn default() -> Self {
        Self {
            architecture: Architecture::Sm80,
            mode: Mode::Run,
            index: 0,
        }
    }
}

impl CudaSourceDevice {
    const KINDS: [(Architecture, Mode); 4] = [
        (Architecture::Sm80, Mode::Run),
        (Architecture::Sm90, Mode::Run),
        (Architecture::Sm80, Mode::Compile),
        (Architecture::Sm90, Mode::Compile),
    ];

    /// Returns the first device that compiles for an architecture.
    pub fn compiling(architecture: Architecture) -> Self {
        Self {
            architecture,
            mode: Mode::Compile,
            index: 0,
        }
    }

    /// Returns the equal device that the calling thread is to use: there is one for each core, which threads share.
    pub fn of_this_thread(self) -> Self {
        static THREADS: AtomicU16 = AtomicU16::new(0);
        static DEVICES: LazyLock<u16> = LazyLock::new(|| {
            let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
            cores.min(usize::from(EQUAL_DEVICES)) as u16
        });
        thread_local! {
            static INDEX: u16 = THREADS.fetch_add(1, Ordering::Relaxed) % *DEVICES;
        }
        Self {
            index: INDEX.with(|&index| index),
            ..self
        }
    }

    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..Self::KINDS.len() as u16 * EQUAL_DEVICES).map(|index_id| Self::from_id(DeviceId { type_id: 0, index_id }))
    }
}

impl Device for CudaSourceDevice {
    fn from_id(device_id: DeviceId) -> Self {
        let (architecture, mode) = Self::KINDS[usize::from(device_id.index_id / EQUAL_DEVICES)];
        Self {
            architecture,
            mode,
            index: device_id.index_id % EQUAL_DEVICES,
        }
    }

    fn to_id(&self) -> DeviceId {
        let is_kind = |kind: &(Architecture, Mode)| *kind == (self.architecture, self.mode);
        let kind = Self::KINDS.iter().position(is_kind).expect("all are listed");
        DeviceId {
            type_id: 0,
            index_id: kind as u16 * EQUAL_DEVICES + self.index,
        }
    }
}

impl DeviceOps for CudaSourceDevice {}
