//! [`PerDevice`]: what a model's layers share on each device.

use std::any::Any;
use std::sync::Arc;

use burn::tensor::{DType, Device, Tensor, TensorData};
use parking_lot::Mutex;

/// Values that clones share, such as those of a model's layers: one per backend (such as one with autodiff and one
/// without), device and type.
#[derive(Clone, Default)]
pub(super) struct PerDevice {
    /// One [`Entry`] each.
    entries: Arc<Mutex<Vec<Box<dyn Any + Send>>>>,
}

struct Entry<T> {
    device: Device,
    dtype: DType,
    value: T,
}

impl PerDevice {
    /// Runs with the value of this device; where there is none yet, `make` makes it, of the type that scores and angles
    /// are computed in for inputs of `dtype`: f32, and f64 where everything is.
    pub fn with<T: Send + 'static, R>(
        &self,
        dtype: DType,
        device: &Device,
        make: impl FnOnce(DType) -> T,
        run: impl FnOnce(&mut T, DType) -> R,
    ) -> R {
        let dtype = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
        // A panic while the lock is held leaves whole entries.
        let mut entries = self.entries.lock();
        let is_this = |entry: &Entry<T>| entry.device == *device && entry.dtype == dtype;
        let found = entries
            .iter()
            .position(|entry| entry.downcast_ref().is_some_and(is_this));
        let index = found.unwrap_or_else(|| {
            entries.push(Box::new(Entry::<T> {
                device: device.clone(),
                dtype,
                value: make(dtype),
            }));
            entries.len() - 1
        });
        let entry: &mut Entry<T> = entries[index].downcast_mut().expect("found by its type");
        run(&mut entry.value, dtype)
    }
}

/// Values in host memory as a tensor.
pub(super) fn upload<const D: usize>(values: Vec<f64>, shape: [usize; D], dtype: DType, device: &Device) -> Tensor<D> {
    let data = TensorData::new(values, shape).convert_dtype(dtype);
    Tensor::from_data(data, (device, dtype))
}
