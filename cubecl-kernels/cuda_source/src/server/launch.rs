//! Launches: kernels compiled for a GPU, or for the CPU and run there.

use std::ffi::c_void;
use std::sync::Arc;

use cubecl_common::backtrace::BackTrace;
use cubecl_common::stream_id::StreamId;
use cubecl_core::server::{KernelArguments, LaunchError, ResourceLimitError, ServerError};
use cubecl_core::{CompilationError, CubeCount, CubeDim, CubeTask, ExecutionMode};
use cubecl_runtime::id::KernelId;
use cubecl_runtime::validation::{validate_cube_dim, validate_units};
use parking_lot::Mutex;

use super::{CudaSourceServer, GUARD};
use crate::canonical::Canonical;
use crate::host::{Host, HostKernel};
use crate::properties::options;
use crate::report::record;
use crate::runtime::CudaCompiler;
use crate::storage::HostResource;
use crate::{KernelReport, Mode, Toolkit};

pub(super) enum Kernel {
    Compiled(Arc<KernelReport>),
    Hosted { kernel: HostKernel, block: [u32; 3] },
}

impl CudaSourceServer {
    pub(super) fn launch_checked(
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
            let report = KernelReport {
                grid,
                ..report.as_ref().clone()
            };
            record(self.device, stream, Arc::new(report));
            return Ok(());
        }
        self.run(&id, grid, arguments)
    }

    /// Runs a kernel on the CPU. Its arguments are those of `cubecl-cuda`: the buffers, the tensors' shapes and
    /// strides, and what is passed by value.
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
        // SAFETY: every allocation ends with a guard.
        let earlier: Vec<[u8; GUARD]> = buffers.iter().map(|buffer| unsafe { bytes_after(buffer) }).collect();
        let Kernel::Hosted { kernel, block } = &self.kernels[id] else {
            return Err(unknown("was compiled for a GPU".to_string()).into());
        };
        let host = Host::find().map_err(failed)?;
        // SAFETY: these are the arguments that `cubecl-cuda` passes to a kernel with this source, and CubeCL's launch
        // gives a kernel the buffers that it is written for.
        unsafe { host.run(kernel, &mut pointers, grid, *block) }.map_err(|error| unknown(error.to_string()))?;
        for (index, before) in earlier.iter().enumerate() {
            let end = buffers[index].address as usize + buffers[index].size;
            // SAFETY: as above.
            let after = unsafe { bytes_after(&buffers[index]) };
            let is_strange = |byte: usize| !buffers.iter().any(|buffer| buffer.holds(end + byte));
            let changed = (0..GUARD).find(|&byte| before[byte] != after[byte] && is_strange(byte));
            if let Some(byte) = changed {
                let size = buffers[index].size;
                let what = format!("{id:?} wrote at byte {byte} past its buffer {index} of {size} bytes");
                return Err(unknown(what).into());
            }
        }
        Ok(())
    }

    /// Returns a launch's blocks, if CUDA takes that many.
    fn grid(&mut self, id: &KernelId, count: CubeCount) -> Result<[u32; 3], ServerError> {
        let grid = match count {
            CubeCount::Static(x, y, z) => [x, y, z],
            // Nothing has written it.
            CubeCount::Dynamic(_) if self.device.mode == Mode::Compile => [1; 3],
            CubeCount::Dynamic(binding) => {
                let resource = self.resource(&binding)?;
                let mut grid = [0u32; 3];
                assert!(resource.size >= size_of_val(&grid), "a count has three numbers");
                // SAFETY: the buffer has these 12 bytes, and the server's thread alone writes there.
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
        let compiled = {
            // CubeCL 0.10 numbers temporary variables in a static, from 0 for each kernel: of two that are written at
            // once, each may declare a variable twice.
            static WRITING: Mutex<()> = Mutex::new(());
            let _writing = WRITING.lock();
            kernel.compile(&mut Default::default(), &options, mode, kernel.address_type())?
        };
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
                let Canonical {
                    text,
                    more_shared_memory,
                } = Canonical::new(&compiled.source);
                let shared_memory = shared_memory.saturating_add_signed(more_shared_memory);
                let resources = toolkit
                    .compile(&text, self.device.architecture, shared_memory)
                    .map_err(|error| failed(format!("{}: {error}", compiled.entrypoint_name)))?;
                let printed = format!("{id:?}");
                let specialisation = printed.split_once("info: ").map_or("", |(_, info)| info);
                Ok(Kernel::Compiled(Arc::new(KernelReport {
                    path: compiled.debug_name.unwrap_or_default().to_string(),
                    name: compiled.entrypoint_name,
                    specialisation: specialisation.to_string(),
                    units: compiled.cube_dim.num_elems(),
                    grid: [0; 3],
                    architecture: self.device.architecture,
                    source: text.into(),
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
}

/// Returns the bytes after a buffer: other tensors of its allocation, or the guard.
///
/// # Safety
///
/// The allocation must have a guard.
unsafe fn bytes_after(buffer: &HostResource) -> [u8; GUARD] {
    // SAFETY: the caller's.
    unsafe { buffer.address.add(buffer.size).cast::<[u8; GUARD]>().read() }
}

fn failed(error: impl std::fmt::Display) -> LaunchError {
    CompilationError::Generic {
        reason: error.to_string(),
        backtrace: BackTrace::capture(),
    }
    .into()
}

pub(super) fn unknown(reason: String) -> LaunchError {
    LaunchError::Unknown {
        reason,
        backtrace: BackTrace::capture(),
    }
}
