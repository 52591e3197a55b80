//! `CudaSourceServer`: takes what burn and CubeCL send to a GPU, and keeps buffers in host memory.
//!
//! One queue: everything happens when it is sent, in order. Buffers are filled with a number that is not one, and have a
//! guard behind them, so that what a kernel reads before it is written, or writes where it must not, is seen.

use std::collections::HashMap;
use std::ffi::c_void;
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
    Binding, ComputeServer, CopyDescriptor, IoError, KernelArguments, LaunchError, ProfileError, ProfilingToken,
    ResourceLimitError, ServerCommunication, ServerError, ServerUtilities,
};
use cubecl_core::{CompilationError, CubeCount, CubeDim, CubeTask, ExecutionMode, MemoryConfiguration, MemoryUsage};
use cubecl_runtime::allocator::PitchedMemoryLayoutPolicy;
use cubecl_runtime::id::KernelId;
use cubecl_runtime::logging::ServerLogger;
use cubecl_runtime::memory_management::{
    ManagedMemoryHandle, MemoryAllocationMode, MemoryManagement, MemoryManagementOptions,
};
use cubecl_runtime::storage::ManagedResource;
use cubecl_runtime::timestamp_profiler::TimestampProfiler;
use cubecl_runtime::validation::{validate_cube_dim, validate_units};

use crate::host::{Host, HostKernel};
use crate::properties::{ALIGNMENT, options, properties};
use crate::report::record;
use crate::runtime::CudaCompiler;
use crate::storage::{HostResource, HostStorage};
use crate::{CudaSourceDevice, KernelReport, Mode, Toolkit};

/// Bytes behind every buffer that nothing may write.
const GUARD: usize = 256;
/// What buffers hold before they are written, and guards always: not a number in every type of floats.
const UNWRITTEN: u8 = 0xFF;

/// The server of a device.
pub struct CudaSourceServer {
    device: CudaSourceDevice,
    properties: DeviceProperties,
    memory: MemoryManagement<HostStorage>,
    kernels: HashMap<KernelId, Kernel>,
    /// What went wrong since the last synchronisation.
    errors: Vec<ServerError>,
    timestamps: TimestampProfiler,
    utilities: Arc<ServerUtilities<Self>>,
}

/// A compiled kernel.
enum Kernel {
    Compiled(Arc<KernelReport>),
    Hosted { kernel: HostKernel, block: [u32; 3] },
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
            errors: Vec::new(),
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
        assert!(size + GUARD <= resource.size, "a buffer has a guard behind it");
        Ok(HostResource { size, ..resource })
    }

    fn launch_checked(
        &mut self,
        kernel: Box<dyn CubeTask<CudaCompiler>>,
        count: CubeCount,
        arguments: KernelArguments,
        mode: ExecutionMode,
        stream: StreamId,
    ) -> Result<(), ServerError> {
        let mut id = kernel.id();
        id.mode(mode);
        let grid = self.grid(&id, count)?;
        if !self.kernels.contains_key(&id) {
            let compiled = self.compile(&id, kernel, mode)?;
            self.kernels.insert(id.clone(), compiled);
        }
        if let Kernel::Compiled(report) = &self.kernels[&id] {
            record(self.device, stream, report.clone());
            return Ok(());
        }
        self.run(&id, grid, arguments)
    }

    /// Runs a kernel on the CPU. Its arguments are those of `cubecl-cuda`: the buffers, the tensors' shapes and strides,
    /// and what is passed by value.
    fn run(&mut self, id: &KernelId, grid: [u32; 3], arguments: KernelArguments) -> Result<(), ServerError> {
        if !arguments.tensor_maps.is_empty() {
            return Err(unknown("tensor maps are not emulated".to_string()).into());
        }
        let buffers = arguments.buffers.iter().map(|binding| self.resource(binding));
        let buffers = buffers.collect::<Result<Vec<_>, _>>()?;
        let info = arguments.info;
        let mut addresses: Vec<*mut u8> = buffers.iter().map(|buffer| buffer.address).collect();
        if let Some(shapes) = info.data.get(info.dynamic_metadata_offset..)
            && !shapes.is_empty()
        {
            addresses.push(shapes.as_ptr().cast_mut().cast());
        }
        let mut pointers: Vec<*mut c_void> = addresses
            .iter_mut()
            .map(|address| std::ptr::from_mut(address).cast())
            .collect();
        pointers.push(info.data.as_ptr().cast_mut().cast());
        // SAFETY: there is a guard behind every allocation.
        let behind: Vec<[u8; GUARD]> = buffers.iter().map(|buffer| unsafe { bytes_behind(buffer) }).collect();
        let Kernel::Hosted { kernel, block } = &self.kernels[id] else {
            return Err(unknown("was compiled for a GPU".to_string()).into());
        };
        let host = Host::find().map_err(failed)?;
        // SAFETY: these are the arguments that `cubecl-cuda` passes to a kernel with this source, and CubeCL's launch
        // gives a kernel the buffers that it is written for.
        unsafe { host.run(kernel, &mut pointers, grid, *block) }.map_err(|error| unknown(error.to_string()))?;
        for (index, before) in behind.iter().enumerate() {
            let end = buffers[index].address as usize + buffers[index].size;
            // SAFETY: as above.
            let after = unsafe { bytes_behind(&buffers[index]) };
            let is_strange = |byte: usize| !buffers.iter().any(|buffer| buffer.holds(end + byte));
            let changed = (0..GUARD).find(|&byte| before[byte] != after[byte] && is_strange(byte));
            if let Some(byte) = changed {
                let size = buffers[index].size;
                let what = format!("{id:?} wrote at byte {byte} behind its buffer {index} of {size} bytes");
                return Err(unknown(what).into());
            }
        }
        Ok(())
    }

    /// Returns a launch's blocks, if CUDA takes so many.
    fn grid(&mut self, id: &KernelId, count: CubeCount) -> Result<[u32; 3], ServerError> {
        let grid = match count {
            CubeCount::Static(x, y, z) => [x, y, z],
            // Nothing has written it.
            CubeCount::Dynamic(_) if self.device.mode == Mode::Compile => [1; 3],
            CubeCount::Dynamic(binding) => {
                let resource = self.resource(&binding)?;
                let mut grid = [0u32; 3];
                assert!(resource.size >= size_of_val(&grid), "a count has three numbers");
                // SAFETY: the buffer has so many bytes, and the server's thread alone writes there.
                unsafe { std::ptr::copy_nonoverlapping(resource.address, grid.as_mut_ptr().cast(), 12) };
                grid
            }
        };
        let (x, y, z) = self.properties.hardware.max_cube_count;
        if std::iter::zip(grid, [x, y, z]).any(|(count, most)| count == 0 || count > most) {
            return Err(unknown(format!(
                "a grid of {grid:?} blocks, CUDA takes 1 to {:?}: {id:?}",
                [x, y, z]
            ))
            .into());
        }
        Ok(grid)
    }

    fn compile(
        &self,
        id: &KernelId,
        kernel: Box<dyn CubeTask<CudaCompiler>>,
        mode: ExecutionMode,
    ) -> Result<Kernel, LaunchError> {
        validate_cube_dim(&self.properties, id)?;
        validate_units(&self.properties, id)?;
        let options = options(self.device.architecture);
        let compiled = kernel.compile(&mut Default::default(), &options, mode, kernel.address_type())?;
        let shared_memory = compiled.repr.as_ref().map_or(0, |kernel| kernel.shared_memory_size());
        let max = self.properties.hardware.max_shared_memory_size;
        if shared_memory > max {
            return Err(ResourceLimitError::SharedMemory {
                requested: shared_memory,
                max,
                backtrace: BackTrace::capture(),
            }
            .into());
        }
        match self.device.mode {
            Mode::Compile => {
                let toolkit = Toolkit::find().map_err(failed)?;
                let resources = toolkit
                    .compile(&compiled.source, self.device.architecture, shared_memory)
                    .map_err(|error| failed(format!("{}: {error}", compiled.entrypoint_name)))?;
                let printed = format!("{id:?}");
                let specialisation = printed.split_once("info: ").map_or("", |(_, info)| info);
                Ok(Kernel::Compiled(Arc::new(KernelReport {
                    path: compiled.debug_name.unwrap_or_default().to_string(),
                    name: compiled.entrypoint_name,
                    specialisation: specialisation.to_string(),
                    units: compiled.cube_dim.num_elems(),
                    resources,
                })))
            }
            Mode::Run => {
                let host = Host::find().map_err(failed)?;
                let kernel = host.compile(&compiled.entrypoint_name, &compiled.source, shared_memory);
                let CubeDim { x, y, z } = compiled.cube_dim;
                Ok(Kernel::Hosted {
                    kernel: kernel.map_err(failed)?,
                    block: [x, y, z],
                })
            }
        }
    }

    /// Returns what went wrong since this was last asked.
    fn take_errors(&mut self) -> Result<(), ServerError> {
        let errors = std::mem::take(&mut self.errors);
        if errors.is_empty() {
            return Ok(());
        }
        self.timestamps.error(ProfileError::Unknown {
            reason: format!("{errors:?}"),
            backtrace: BackTrace::capture(),
        });
        Err(ServerError::ServerUnhealthy {
            errors,
            backtrace: BackTrace::capture(),
        })
    }

    fn read_one(&mut self, descriptor: &CopyDescriptor) -> Result<Bytes, ServerError> {
        let resource = self.resource(&descriptor.handle)?;
        let rows = Rows::of(descriptor);
        let mut bytes = vec![0u8; rows.count * rows.width];
        rows.check(resource.size)?;
        for (row, to) in bytes.chunks_mut(rows.width.max(1)).enumerate() {
            // SAFETY: the rows lie inside the buffer, as checked, and the server's thread alone writes there.
            let from = unsafe { std::slice::from_raw_parts(resource.address.add(row * rows.pitch), rows.width) };
            to.copy_from_slice(from);
        }
        Ok(Bytes::from_bytes_vec(bytes))
    }

    fn write_one(&mut self, descriptor: &CopyDescriptor, data: &[u8]) -> Result<(), ServerError> {
        let resource = self.resource(&descriptor.handle)?;
        let rows = Rows::of(descriptor);
        rows.check(resource.size)?;
        assert!(data.len() >= rows.count * rows.width, "as many bytes as the shape has");
        for (row, from) in data.chunks(rows.width.max(1)).take(rows.count).enumerate() {
            // SAFETY: the rows lie inside the buffer, as checked, and the server's thread alone reads there.
            let to = unsafe { std::slice::from_raw_parts_mut(resource.address.add(row * rows.pitch), rows.width) };
            to.copy_from_slice(from);
        }
        Ok(())
    }
}

/// Returns what lies behind a buffer: other tensors of its allocation, or the guard.
///
/// # Safety
///
/// The allocation must have a guard.
unsafe fn bytes_behind(buffer: &HostResource) -> [u8; GUARD] {
    // SAFETY: the caller's.
    unsafe { buffer.address.add(buffer.size).cast::<[u8; GUARD]>().read() }
}

/// How a tensor lies in its buffer: rows, padded to a pitch. In bytes.
struct Rows {
    count: usize,
    width: usize,
    pitch: usize,
}

impl Rows {
    fn of(descriptor: &CopyDescriptor) -> Self {
        let (shape, strides) = (&descriptor.shape, &descriptor.strides);
        let rank = shape.len();
        let elements: usize = shape.iter().product();
        let size = descriptor.elem_size;
        match rank {
            0 | 1 => Self {
                count: 1,
                width: elements * size,
                pitch: elements * size,
            },
            _ => Self {
                count: shape.iter().take(rank - 1).product(),
                width: shape[rank - 1] * size,
                pitch: strides[rank - 2] * size,
            },
        }
    }

    fn check(&self, size: usize) -> Result<(), ServerError> {
        let is_empty = self.count == 0 || self.width == 0;
        if !is_empty && (self.count - 1) * self.pitch + self.width > size {
            let Self { count, width, pitch } = self;
            let what = format!("{count} rows of {width} bytes every {pitch} do not fit a buffer of {size}");
            return Err(unknown(what).into());
        }
        Ok(())
    }
}

fn failed(error: impl std::fmt::Display) -> LaunchError {
    CompilationError::Generic {
        reason: error.to_string(),
        backtrace: BackTrace::capture(),
    }
    .into()
}

fn unknown(reason: String) -> LaunchError {
    LaunchError::Unknown {
        reason,
        backtrace: BackTrace::capture(),
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
            // SAFETY: the allocation has so many bytes, and nobody else has it yet.
            unsafe { std::ptr::write_bytes(resource.address, UNWRITTEN, size as usize + GUARD) };
        }
    }

    fn logger(&self) -> Arc<ServerLogger> {
        self.utilities.logger.clone()
    }

    fn utilities(&self) -> Arc<ServerUtilities<Self>> {
        self.utilities.clone()
    }

    fn read(&mut self, descriptors: Vec<CopyDescriptor>, _stream: StreamId) -> DynFut<Result<Vec<Bytes>, ServerError>> {
        let outcome = self
            .take_errors()
            .and_then(|()| descriptors.iter().map(|descriptor| self.read_one(descriptor)).collect());
        Box::pin(async move { outcome })
    }

    fn write(&mut self, descriptors: Vec<(CopyDescriptor, Bytes)>, _stream: StreamId) {
        for (descriptor, data) in descriptors {
            if let Err(error) = self.write_one(&descriptor, &data) {
                self.errors.push(error);
            }
        }
    }

    fn sync(&mut self, _stream: StreamId) -> DynFut<Result<(), ServerError>> {
        let outcome = self.take_errors();
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
        // A kernel that cannot be expanded panics, and the thread of the device would go on as if nothing was.
        let launch = AssertUnwindSafe(|| self.launch_checked(kernel, count, bindings, kind, stream));
        let outcome = catch_unwind(launch).unwrap_or_else(|panic| {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text
                .or_else(|| panic.downcast_ref::<&str>().copied())
                .unwrap_or("a panic without a text");
            Err(unknown(format!("the launch panicked: {text}")).into())
        });
        if let Err(error) = outcome {
            self.errors.push(error);
        }
    }

    fn flush(&mut self, _stream: StreamId) -> Result<(), ServerError> {
        self.take_errors()
    }

    fn memory_usage(&mut self, _stream: StreamId) -> Result<MemoryUsage, ServerError> {
        Ok(self.memory.memory_usage())
    }

    fn memory_cleanup(&mut self, _stream: StreamId) {
        self.memory.cleanup(true);
    }

    fn start_profile(&mut self, _stream: StreamId) -> Result<ProfilingToken, ServerError> {
        self.take_errors()?;
        Ok(self.timestamps.start())
    }

    fn end_profile(&mut self, _stream: StreamId, token: ProfilingToken) -> Result<ProfileDuration, ProfileError> {
        if let Err(error) = self.take_errors() {
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
