//! [`OptimizerOffload`]: where an optimizer's state is to be, and [`Offload`], what holds it there.

use std::path::PathBuf;

use burn::tensor::{DType, Device};
use serde::{Deserialize, Serialize};

use super::host::{HostState, OffloadedState};
use crate::collectives::has_device_memory;
use crate::data_parallel::main_type;
use crate::offload::{OffloadError, Offloaded, check_folder};
use crate::optimizer::StoredOptimizer;

/// Place of the state of an optimizer, and what updates it.
///
/// # Reference
/// Ren et al. 2021, arXiv:2101.06840 (ZeRO-Offload); Rajbhandari et al. 2021, arXiv:2104.07857 (ZeRO-Infinity).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub enum OptimizerOffload {
    /// State where the parameters are, updated by what computes there.
    #[default]
    None,
    /// A share of it in host memory, updated by the CPU. On devices that compute there already, this changes nothing.
    Cpu {
        /// The share of this rank's elements, from 0 to 1.
        fraction: f64,
    },
    /// A share of it in a file, updated by the CPU.
    Nvme {
        /// The folder of each rank's file, which has no name while the run lasts.
        folder: PathBuf,
        /// The share of this rank's elements, from 0 to 1.
        fraction: f64,
    },
}

impl OptimizerOffload {
    /// The share of a rank's elements whose state is in a file, not in memory.
    pub fn fraction_on_disk(&self) -> f64 {
        match self {
            Self::Nvme { fraction, .. } => *fraction,
            _ => 0.0,
        }
    }

    /// Returns whether nothing is to be moved: the optimizer is on the CPU already, where it was to be offloaded to.
    pub fn changes_nothing_on(&self, device: &Device) -> bool {
        matches!(self, Self::Cpu { .. }) && !has_device_memory(device)
    }

    /// The share of a rank's elements whose state is elsewhere than the parameters, if these are on a device.
    pub fn fraction(&self) -> f64 {
        match self {
            Self::None => 0.0,
            Self::Cpu { fraction } | Self::Nvme { fraction, .. } => *fraction,
        }
    }

    /// Checks what can be checked before there is an optimizer: the share, and that a file can be made in the folder.
    ///
    /// # Errors
    /// When the share is not from 0 to 1, or no file can be made in the folder.
    pub fn check(&self) -> Result<(), OffloadError> {
        let fraction = self.fraction();
        if !(0.0..=1.0).contains(&fraction) {
            return Err(OffloadError::Fraction { fraction });
        }
        match self {
            Self::Nvme { folder, .. } => check_folder(Offloaded::OptimizerState, folder),
            _ => Ok(()),
        }
    }
}

/// Offloaded state of a sharded optimizer.
pub(in crate::optimizer) struct Offload<O> {
    pub(in crate::optimizer) state: Box<dyn OffloadedState<O>>,
    /// The share of this rank's elements that is to be offloaded.
    pub(in crate::optimizer) fraction: f64,
    /// True if gradients and values of a bucket come to the host at once: each read of a device waits for it.
    pub(in crate::optimizer) reads_buckets: bool,
}

impl<O: StoredOptimizer> Offload<O> {
    /// Returns what is asked for, of no pieces yet; `None` where that is nothing on this device.
    pub(in crate::optimizer) fn new(
        config: &OptimizerOffload,
        rank: usize,
        dtype: DType,
        device: &Device,
    ) -> Option<Self> {
        let folder = match config {
            OptimizerOffload::None => return None,
            _ if config.changes_nothing_on(device) => return None,
            OptimizerOffload::Cpu { .. } => None,
            OptimizerOffload::Nvme { folder, .. } => Some(folder.as_path()),
        };
        let state = HostState::new(folder, rank, main_type(dtype));
        Some(Self::to(state, config.fraction(), has_device_memory(device)))
    }

    /// Returns what offloads a share of the pieces to a state of the host.
    pub(in crate::optimizer) fn to(state: HostState, fraction: f64, reads_buckets: bool) -> Self {
        Self {
            state: Box::new(state),
            fraction,
            reads_buckets,
        }
    }
}
