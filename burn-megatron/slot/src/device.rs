//! [`NdArrayDevice`]: a device of the slot.

use std::sync::Arc;

use burn_backend::{DeviceId, DeviceOps, DeviceSettings};
use burn_ir::BackendIr;
use burn_router::{CustomOpRegistry, TensorInterpreter};
use parking_lot::{Mutex, RwLock};

use super::Executor;
use super::executor::SharedExecutor;

/// The devices of the process, by their index. They stay until its end, as other devices do.
static DEVICES: RwLock<Vec<(SharedExecutor, DeviceSettings)>> = RwLock::new(Vec::new());

/// A device of the slot: its operations are run by the [`Executor`] that it was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct NdArrayDevice {
    index: u16,
}

impl NdArrayDevice {
    /// The first device, by the name that burn's dispatch asks for.
    #[allow(non_upper_case_globals, reason = "burn's own device is an enum")]
    pub const Cpu: Self = Self { index: 0 };

    /// Returns a new device whose operations the backend runs on a device of its own.
    ///
    /// # Panics
    /// As [`execute`](Self::execute).
    pub fn serve<B: BackendIr>(device: B::Device) -> Self {
        Self::execute(TensorInterpreter::<B>::new(device))
    }

    /// Returns a new device, as [`serve`](Self::serve), that also runs these custom operations.
    ///
    /// # Panics
    /// As [`execute`](Self::execute).
    pub fn serve_with<B: BackendIr>(device: B::Device, operations: CustomOpRegistry<B>) -> Self {
        Self::execute(TensorInterpreter::<B>::with_custom_ops(device, operations))
    }

    /// Returns a new device whose operations this runs.
    ///
    /// # Panics
    /// When there are 65,536 devices already.
    pub fn execute(executor: impl Executor) -> Self {
        let settings = executor.settings();
        let mut devices = DEVICES.write();
        let index = u16::try_from(devices.len()).expect("at most 65,536 devices of the slot");
        devices.push((Arc::new(Mutex::new(Box::new(executor))), settings));
        Self { index }
    }

    /// The executor of the device.
    pub(crate) fn executor(&self) -> SharedExecutor {
        self.entry(|(executor, _)| executor.clone())
    }

    fn entry<T>(&self, of: impl FnOnce(&(SharedExecutor, DeviceSettings)) -> T) -> T {
        let devices = DEVICES.read();
        let entry = devices.get(usize::from(self.index));
        of(entry.unwrap_or_else(|| {
            panic!(
                "the slot has {} devices, and none of index {}: make one by NdArrayDevice::serve; this package takes \
                 the place of burn's ndarray backend",
                devices.len(),
                self.index
            )
        }))
    }
}

impl DeviceOps for NdArrayDevice {
    fn defaults(&self) -> DeviceSettings {
        self.entry(|&(_, settings)| settings)
    }
}

impl burn_backend::Device for NdArrayDevice {
    fn from_id(id: DeviceId) -> Self {
        Self { index: id.index_id }
    }

    fn to_id(&self) -> DeviceId {
        DeviceId {
            type_id: 0,
            index_id: self.index,
        }
    }
}
