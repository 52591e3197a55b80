//! [`Ctas`]: how many thread blocks the kernels of a communicator may have, so that those of all fit a GPU at once.

use std::collections::HashMap;
use std::sync::{LazyLock, Once};

use cudarc::driver::sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT;
use parking_lot::Mutex;

use crate::cuda::driver::attributes;

/// Thread blocks of a message between two ranks: a few already carry what a link between nodes does.
const TRANSFER: u16 = 4;
/// Thread blocks of a group whose reductions are large: the number that NCCL takes itself on NVLink.
const GROUP: u16 = 24;
/// Thread blocks of groups whose calls are small or rare, by name.
const SMALL: [(&str, u16); 4] = [("world", 4), ("model", 4), ("embedding", 4), ("replica", 8)];

/// The blocks of all communicators, by device.
static TAKEN: LazyLock<Mutex<HashMap<usize, usize>>> = LazyLock::new(Mutex::default);

/// The most blocks of the kernel of one communicator, which has one at a time on the GPU; given back when dropped.
#[derive(Debug)]
pub(super) struct Ctas {
    device: usize,
    /// As NCCL's configuration has it.
    pub most: u16,
    counted: usize,
}

impl Ctas {
    /// Returns the bound of a communicator between a sender and its receiver.
    pub fn of_transfers(device: usize) -> Self {
        Self::take(device, TRANSFER)
    }

    /// Returns the bound of a communicator of all ranks of a group.
    pub fn of_group(name: &str, device: usize) -> Self {
        let small = SMALL.into_iter().find(|(small, _)| *small == name);
        Self::take(device, small.map_or(GROUP, |(_, most)| most))
    }

    /// Counts them, and warns if there may be more blocks on a device than it has multiprocessors.
    fn take(device: usize, most: u16) -> Self {
        // It goes before the configuration.
        let of_environment = std::env::var("NCCL_MAX_CTAS").ok().and_then(|value| value.parse().ok());
        let counted = of_environment.unwrap_or(usize::from(most));
        let taken = {
            let mut taken = TAKEN.lock();
            let taken = taken.entry(device).or_default();
            *taken += counted;
            *taken
        };
        if let Ok([multiprocessors]) = attributes(device, [CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT])
            && usize::try_from(multiprocessors).is_ok_and(|multiprocessors| taken > multiprocessors)
        {
            static WARNED: Once = Once::new();
            WARNED.call_once(|| {
                tracing::warn!(
                    device,
                    "kernels of NCCL may take {taken} multiprocessors at once, and the GPU has {multiprocessors}: \
                     those that wait for other ranks may leave no room for those that the others wait for; lower it by \
                     NCCL_MAX_CTAS"
                );
            });
        }
        Self { device, most, counted }
    }
}

impl Drop for Ctas {
    fn drop(&mut self) {
        if let Some(taken) = TAKEN.lock().get_mut(&self.device) {
            *taken -= self.counted;
        }
    }
}
