//! `CudaSourceServer`: takes what burn and CubeCL send to a GPU, and keeps buffers in host memory.
//!
//! One queue: every command runs when it is sent, in order. Buffers are filled with NaN and followed by a guard, which
//! reveals reads of unwritten memory and writes out of bounds.

mod copies;
mod launch;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use cubecl_common::backtrace::BackTrace;
use cubecl_common::bytes::Bytes;
use cubecl_common::device::{Device, DeviceId, DeviceService};
use cubecl_common::future::DynFut;
use cubecl_common::profile::ProfileDuration;
use cubecl_common::stream_id::StreamId;
use cubecl_core::device::ServerUtilitiesHandle;
use cubecl_core::ir::DeviceProperties;
use cubecl_core::server::{
    Binding, ComputeServer, CopyDescriptor, IoError, KernelArguments, ProfileError, ProfilingToken,
    ServerCommunication, ServerError, ServerUtilities,
};
use cubecl_core::{CubeCount, CubeTask, ExecutionMode, MemoryConfiguration, MemoryUsage};
use cubecl_runtime::allocator::PitchedMemoryLayoutPolicy;
use cubecl_runtime::id::KernelId;
use cubecl_runtime::logging::ServerLogger;
use cubecl_runtime::memory_management::{
    ManagedMemoryHandle, MemoryAllocationMode, MemoryManagement, MemoryManagementOptions,
};
use cubecl_runtime::storage::ManagedResource;
use cubecl_runtime::timestamp_profiler::TimestampProfiler;

use crate::properties::{ALIGNMENT, properties};
use crate::runtime::CudaCompiler;
use crate::storage::{HostResource, HostStorage};
use crate::{CudaSourceDevice, Mode};
use launch::{Kernel, unknown};

/// Bytes of the guard after every buffer, which nothing may write.
const GUARD: usize = 256;
/// What buffers hold before they are written, and guards always: not a number in every type of floats.
const UNWRITTEN: u8 = 0xFF;

pub struct CudaSourceServer {
    device: CudaSourceDevice,
    properties: DeviceProperties,
    memory: MemoryManagement<HostStorage>,
    kernels: HashMap<KernelId, Kernel>,
    /// What went wrong on each stream since its last synchronisation.
    errors: HashMap<StreamId, Vec<ServerError>>,
    timestamps: TimestampProfiler,
    utilities: Arc<ServerUtilities<Self>>,
}

impl std::fmt::Debug for CudaSourceServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CudaSourceServer")
            .field("device", &self.device)
            .finish_non_exhaustive()
    }
}

impl DeviceService for CudaSourceServer {
    fn init(device: DeviceId) -> Self {
        let device = CudaSourceDevice::from_id(device);
        let properties = properties(device.architecture);
        let logger = Arc::new(ServerLogger::default());
        let policy = PitchedMemoryLayoutPolicy::new(ALIGNMENT as usize);
        let utilities = ServerUtilities::new(properties.clone(), logger.clone(), (), policy);
        let memory = MemoryManagement::from_configuration(
            HostStorage::default(),
            &properties.memory,
            MemoryConfiguration::ExclusivePages,
            logger,
            MemoryManagementOptions::new("CUDA source"),
        );
        Self {
            device,
            properties,
            memory,
            kernels: HashMap::new(),
            errors: HashMap::new(),
            timestamps: TimestampProfiler::default(),
            utilities: Arc::new(utilities),
        }
    }

    fn utilities(&self) -> ServerUtilitiesHandle {
        self.utilities.clone() as ServerUtilitiesHandle
    }
}

impl CudaSourceServer {
    fn resource(&mut self, binding: &Binding) -> Result<HostResource, IoError> {
        let (start, end) = (binding.offset_start, binding.offset_end);
        let resource = self.memory.get_resource(binding.memory.clone(), start, end)?;
        let size = binding.size_in_used() as usize;
        assert!(size + GUARD <= resource.size, "a buffer has a guard after it");
        Ok(HostResource { size, ..resource })
    }

    /// Returns what went wrong on a stream since this was last asked.
    fn take_errors(&mut self, stream: StreamId) -> Result<(), ServerError> {
        let Some(errors) = self.errors.remove(&stream) else {
            return Ok(());
        };
        self.timestamps.error(ProfileError::Unknown {
            reason: format!("{errors:?}"),
            backtrace: BackTrace::capture(),
        });
        Err(ServerError::ServerUnhealthy {
            errors,
            backtrace: BackTrace::capture(),
        })
    }
}

impl ComputeServer for CudaSourceServer {
    type Kernel = Box<dyn CubeTask<CudaCompiler>>;
    type Storage = HostStorage;
    type MemoryLayoutPolicy = PitchedMemoryLayoutPolicy;
    type Info = ();

    fn initialize_memory(&mut self, memory: ManagedMemoryHandle, size: u64, _stream: StreamId) {
        let reserved = self
            .memory
            .reserve(size + GUARD as u64)
            .expect("the host has the memory");
        let binding = memory.clone().binding();
        self.memory.bind(reserved, memory, 0).expect("just reserved");
        if self.device.mode == Mode::Run {
            let resource = self.memory.get_resource(binding, None, None).expect("just bound");
            // SAFETY: the allocation has these bytes, and nothing else uses it yet.
            unsafe { std::ptr::write_bytes(resource.address, UNWRITTEN, size as usize + GUARD) };
        }
    }

    fn logger(&self) -> Arc<ServerLogger> {
        self.utilities.logger.clone()
    }

    fn utilities(&self) -> Arc<ServerUtilities<Self>> {
        self.utilities.clone()
    }

    fn read(&mut self, descriptors: Vec<CopyDescriptor>, stream: StreamId) -> DynFut<Result<Vec<Bytes>, ServerError>> {
        let outcome = self
            .take_errors(stream)
            .and_then(|()| descriptors.iter().map(|descriptor| self.read_one(descriptor)).collect());
        Box::pin(async move { outcome })
    }

    fn write(&mut self, descriptors: Vec<(CopyDescriptor, Bytes)>, stream: StreamId) {
        for (descriptor, data) in descriptors {
            if let Err(error) = self.write_one(&descriptor, &data) {
                self.errors.entry(stream).or_default().push(error);
            }
        }
    }

    fn sync(&mut self, stream: StreamId) -> DynFut<Result<(), ServerError>> {
        let outcome = self.take_errors(stream);
        Box::pin(async move { outcome })
    }

    fn get_resource(
        &mut self,
        binding: Binding,
        _stream: StreamId,
    ) -> Result<ManagedResource<HostResource>, ServerError> {
        let resource = self.resource(&binding)?;
        Ok(ManagedResource::new(binding.memory, resource))
    }

    unsafe fn launch(
        &mut self,
        kernel: Self::Kernel,
        count: CubeCount,
        bindings: KernelArguments,
        kind: ExecutionMode,
        stream: StreamId,
    ) {
        // A kernel that cannot be expanded panics, and the device's thread would continue as if nothing had happened.
        let launch = AssertUnwindSafe(|| self.launch_checked(kernel, count, bindings, kind, stream));
        let outcome = catch_unwind(launch).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("a panic without a text");
            Err(unknown(format!("the launch panicked: {text}")).into())
        });
        if let Err(error) = outcome {
            self.errors.entry(stream).or_default().push(error);
        }
    }

    fn flush(&mut self, stream: StreamId) -> Result<(), ServerError> {
        self.take_errors(stream)
    }

    fn memory_usage(&mut self, _stream: StreamId) -> Result<MemoryUsage, ServerError> {
        Ok(self.memory.memory_usage())
    }

    fn memory_cleanup(&mut self, _stream: StreamId) {
        self.memory.cleanup(true);
    }

    fn start_profile(&mut self, stream: StreamId) -> Result<ProfilingToken, ServerError> {
        self.take_errors(stream)?;
        Ok(self.timestamps.start())
    }

    fn end_profile(&mut self, stream: StreamId, token: ProfilingToken) -> Result<ProfileDuration, ProfileError> {
        if let Err(error) = self.take_errors(stream) {
            self.timestamps.error(ProfileError::Server(Box::new(error)));
        }
        self.timestamps.stop(token)
    }

    fn allocation_mode(&mut self, mode: MemoryAllocationMode, _stream: StreamId) {
        self.memory.mode(mode);
    }
}

impl ServerCommunication for CudaSourceServer {
    const SERVER_COMM_ENABLED: bool = false;
}
