//! [`SlotClient`]: from the descriptions of operations to the executor of their device.

use std::sync::atomic::{AtomicU64, Ordering};

use burn_backend::{DType, DTypeUsageSet, ExecutionError, Shape, TensorData};
use burn_ir::{BackendIr, GraphBindings, GraphId, OperationIr, TensorId, TensorIr};
use burn_router::{MultiBackendBridge, RouterChannel, RouterClient, RouterTensor, TensorInterpreter, get_client};

use super::executor::SharedExecutor;
use super::{NdArrayDevice, Read};

/// Channel of the router to the executors of this process.
#[derive(Clone)]
pub struct Slot;

/// Client of a device.
#[derive(Clone)]
pub struct SlotClient {
    device: NdArrayDevice,
    executor: SharedExecutor,
}

/// Numbers of tensors. The interpreters number their own from 0.
static NEXT_TENSOR: AtomicU64 = AtomicU64::new(1 << 32);

impl SlotClient {
    /// Runs with the interpreter of a backend. No tensor of the device may be dropped meanwhile: that is an operation
    /// of the same executor.
    pub(crate) fn with_interpreter<B: BackendIr, T>(&self, run: impl FnOnce(&mut TensorInterpreter<B>) -> T) -> T {
        let mut executor = self.executor.lock();
        let interpreter = executor.as_any().downcast_mut();
        run(interpreter.unwrap_or_else(|| {
            panic!(
                "device {:?} is not run by the interpreter of {}",
                self.device,
                std::any::type_name::<B>()
            )
        }))
    }
}

impl RouterClient for SlotClient {
    type Device = NdArrayDevice;

    fn register_op(&self, operation: OperationIr) {
        self.executor.lock().operation(operation);
    }

    fn read_tensor_async(&self, tensor: TensorIr) -> Read {
        self.executor.lock().read(tensor)
    }

    fn sync(&self) -> Result<(), ExecutionError> {
        self.executor.lock().sync()
    }

    fn flush(&self) {}

    fn create_empty_handle(&self) -> TensorId {
        TensorId::new(NEXT_TENSOR.fetch_add(1, Ordering::Relaxed))
    }

    fn register_tensor_data(&self, data: TensorData) -> RouterTensor<Self> {
        let (id, shape, dtype) = (self.create_empty_handle(), data.shape().clone(), data.dtype());
        self.executor.lock().write(id, data);
        RouterTensor::new(id, shape, dtype, self.clone())
    }

    fn device(&self) -> NdArrayDevice {
        self.device
    }

    fn seed(&self, seed: u64) {
        self.executor.lock().seed(seed);
    }

    fn dtype_usage(&self, dtype: DType) -> DTypeUsageSet {
        self.executor.lock().usage(dtype)
    }

    fn register_and_execute_graph(&self, _: GraphId, _: Vec<OperationIr>, _: GraphBindings) {
        unreachable!("burn's fusion alone records graphs, and the slot has none")
    }

    fn execute_graph(&self, _: GraphId, _: GraphBindings) {
        unreachable!("burn's fusion alone records graphs, and the slot has none")
    }

    fn register_alias(&self, new: TensorId, source: TensorId) {
        self.executor.lock().alias(new, source);
    }
}

/// Bridge of the router between backends of one client, of which the slot has none.
pub struct NoBridge;

impl MultiBackendBridge for NoBridge {
    type TensorHandle = TensorIr;
    type Device = NdArrayDevice;

    fn change_backend_float(_: TensorIr, _: Shape, _: &NdArrayDevice) -> TensorIr {
        unreachable!("tensors change their device by `change_client_backend`")
    }

    fn change_backend_int(_: TensorIr, _: Shape, _: &NdArrayDevice) -> TensorIr {
        unreachable!("tensors change their device by `change_client_backend`")
    }

    fn change_backend_bool(_: TensorIr, _: Shape, _: &NdArrayDevice) -> TensorIr {
        unreachable!("tensors change their device by `change_client_backend`")
    }
}

impl RouterChannel for Slot {
    type Device = NdArrayDevice;
    type Bridge = NoBridge;
    type Client = SlotClient;

    fn name(device: &NdArrayDevice) -> String {
        format!("slot {device:?}")
    }

    fn init_client(device: &NdArrayDevice) -> SlotClient {
        SlotClient {
            device: *device,
            executor: device.executor(),
        }
    }

    fn get_tensor_handle(tensor: &TensorIr, _: &SlotClient) -> TensorIr {
        tensor.clone()
    }

    fn register_tensor(_: &SlotClient, _: TensorIr, _: Shape, _: DType) -> RouterTensor<SlotClient> {
        unreachable!("tensors change their device by `change_client_backend`")
    }

    /// Through host memory: the devices' backends need not be the same.
    fn change_client_backend(tensor: RouterTensor<SlotClient>, device: &NdArrayDevice) -> RouterTensor<SlotClient> {
        let source = tensor.client.clone();
        let data = burn_std::reader::try_read_sync(source.read_tensor_async(tensor.into_ir()))
            .expect("a native backend reads without an executor")
            .unwrap_or_else(|error| panic!("a tensor that moves to {device:?} could not be read: {error:?}"));
        get_client::<Self>(device).register_tensor_data(data)
    }
}
