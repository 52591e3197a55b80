//! [`Executor`]: runs the operations of one device.

use std::any::Any;
use std::sync::Arc;

use burn_backend::{DType, DTypeUsageSet, DeviceSettings, ExecutionError, TensorData};
use burn_ir::{BackendIr, OperationIr, TensorId, TensorIr};
use burn_router::TensorInterpreter;
use burn_std::future::DynFut;
use parking_lot::Mutex;

/// Elements on their way to the host.
pub type Read = DynFut<Result<TensorData, ExecutionError>>;

/// Shared by the clients of a device. Without poisoning: a panic of an operation ends the pass that called it, and the
/// tensors that it did not take are still there.
pub(crate) type SharedExecutor = Arc<Mutex<Box<dyn Executor>>>;

/// Runs the operations of one device, in the order in which the program makes them.
pub trait Executor: Send + 'static {
    /// Runs an operation on tensors that are known by their numbers.
    fn operation(&mut self, operation: OperationIr);
    /// Reads a tensor.
    fn read(&mut self, tensor: TensorIr) -> Read;
    /// Makes a tensor of elements from the host.
    fn write(&mut self, id: TensorId, data: TensorData);
    /// Makes another number of a tensor.
    fn alias(&mut self, new: TensorId, source: TensorId);
    /// Waits until all operations are done.
    ///
    /// # Errors
    /// The error of an operation that failed.
    fn sync(&mut self) -> Result<(), ExecutionError>;
    /// Seeds random tensors.
    fn seed(&mut self, seed: u64);
    /// Uses that the device has for an element type.
    fn usage(&self, dtype: DType) -> DTypeUsageSet;
    /// Element types of tensors for which the program names none.
    fn settings(&self) -> DeviceSettings;
    /// The executor itself, for [`take`](super::take) and [`put`](super::put).
    fn as_any(&mut self) -> &mut dyn Any;
}

impl<B: BackendIr> Executor for TensorInterpreter<B> {
    fn operation(&mut self, operation: OperationIr) {
        self.register_op(operation);
    }

    fn read(&mut self, tensor: TensorIr) -> Read {
        self.read_tensor_async(tensor)
    }

    fn write(&mut self, id: TensorId, data: TensorData) {
        self.register_tensor_data_id(id, data);
    }

    fn alias(&mut self, new: TensorId, source: TensorId) {
        self.register_alias(new, source);
    }

    fn sync(&mut self) -> Result<(), ExecutionError> {
        TensorInterpreter::sync(self)
    }

    fn seed(&mut self, seed: u64) {
        TensorInterpreter::seed(self, seed);
    }

    fn usage(&self, dtype: DType) -> DTypeUsageSet {
        self.dtype_usage(dtype)
    }

    fn settings(&self) -> DeviceSettings {
        self.device_settings()
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}
