//! Launches: the arguments are copied when a launch is asked for, and the kernel runs when its stream comes to it.

use std::ffi::{c_uint, c_void};

use parking_lot::Mutex;

use super::device::stream::{Fault, resolve};
use super::error::{Error, Outcome, tell};
use super::memory::check_guards;
use super::module::Function;
use crate::exported::exported;
use crate::host::Host;
use crate::journal::{self, Launch};
use crate::recording;

/// An argument's bytes, aligned for everything that a kernel takes.
type Argument = Vec<u128>;

struct Shape {
    grid: [u32; 3],
    block: [u32; 3],
    shared: usize,
}

impl Shape {
    fn check(&self, function: &Function) -> Outcome {
        let most_blocks = [i32::MAX as u32, 65535, 65535];
        let most_threads = [1024, 1024, 64];
        let is_out =
            |sizes: [u32; 3], most: [u32; 3]| std::iter::zip(sizes, most).any(|(size, most)| size == 0 || size > most);
        let threads: u64 = self.block.iter().map(|&size| u64::from(size)).product();
        let is_wrong = is_out(self.grid, most_blocks) || is_out(self.block, most_threads) || threads > 1024;
        if is_wrong || self.shared > function.max_shared() {
            Err(Error::INVALID_VALUE)
        } else {
            Ok(())
        }
    }
}

fn run(function: &Function, shape: &Shape, arguments: &mut [Argument]) -> Result<(), Fault> {
    let failed = |what: String| (Error::LAUNCH_FAILED, what);
    let host = Host::find().map_err(|error| failed(error.to_string()))?;
    let kernel = function.kernel.as_ref();
    let kernel = kernel.ok_or_else(|| failed("the kernel was not compiled".to_owned()))?;
    let mut pointers: Vec<*mut c_void> = arguments
        .iter_mut()
        .map(|argument| argument.as_mut_ptr().cast())
        .collect();
    // Kernels of several streams may add to the same memory by atomic operations, which are none between threads here.
    static RUNNING: Mutex<()> = Mutex::new(());
    let _running = RUNNING.lock();
    // SAFETY: the arguments have the types that the kernel declares, and the rest is the caller's care as on a GPU.
    unsafe { host.launch(kernel, &mut pointers, shape.grid, shape.block, shape.shared) }
        .map_err(|error| failed(error.to_string()))?;
    let sizes = std::iter::zip(arguments, &function.arguments);
    let addresses = sizes
        .filter(|(_, size)| **size == size_of::<usize>())
        .map(|(argument, _)| argument[0] as usize);
    let addresses: Vec<usize> = addresses.collect();
    check_guards(&addresses).map_err(|(error, what)| (error, format!("a kernel {what}")))
}

/// # Safety
///
/// `parameters` must point to one pointer for each of the function's arguments, or be null.
unsafe fn launch(function: *mut c_void, shape: Shape, stream: *mut c_void, parameters: *mut *mut c_void) -> Outcome {
    let (function, stream) = (Function::of(function)?, resolve(stream)?);
    if !std::ptr::eq(function.device, stream.device) {
        return Err(Error::INVALID_HANDLE);
    }
    shape.check(&function)?;
    recording::count("launch", &function.name, 0);
    let launch = || Launch {
        kernel: function.name.clone(),
        grid: shape.grid,
        block: shape.block,
        shared_memory: shape.shared,
    };
    journal::add_launch(launch).map_err(|error| {
        tell(&format!("the journal: {error}"));
        Error::UNKNOWN
    })?;
    if parameters.is_null() && !function.arguments.is_empty() {
        return Err(Error::INVALID_VALUE);
    }
    let mut arguments: Vec<Argument> = Vec::with_capacity(function.arguments.len());
    for (index, &bytes) in function.arguments.iter().enumerate() {
        let mut argument: Argument = vec![0; bytes.div_ceil(size_of::<u128>()).max(1)];
        // SAFETY: the caller's list, with one entry for each argument.
        let from = unsafe { *parameters.add(index) };
        if from.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: as above, of `bytes` bytes.
        unsafe { std::ptr::copy_nonoverlapping(from.cast::<u8>(), argument.as_mut_ptr().cast(), bytes) };
        arguments.push(argument);
    }
    stream.submit(move || run(&function, &shape, &mut arguments));
    Ok(())
}

/// `CUlaunchConfig`.
#[repr(C)]
struct Configuration {
    grid: [c_uint; 3],
    block: [c_uint; 3],
    shared: c_uint,
    stream: *mut c_void,
    attributes: *mut c_void,
    attribute_count: c_uint,
}

exported! {
    fn cuLaunchKernel(
        function: *mut c_void,
        grid_x: c_uint,
        grid_y: c_uint,
        grid_z: c_uint,
        block_x: c_uint,
        block_y: c_uint,
        block_z: c_uint,
        shared: c_uint,
        stream: *mut c_void,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        if !extra.is_null() {
            return Err(Error::NOT_SUPPORTED);
        }
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        let shape = Shape { grid, block, shared: shared as usize };
        // SAFETY: the caller's.
        unsafe { launch(function, shape, stream, parameters) }
    }

    fn cuLaunchKernelEx(
        configuration: *const Configuration,
        function: *mut c_void,
        parameters: *mut *mut c_void,
        extra: *mut *mut c_void,
    ) {
        // SAFETY: the caller's, or null.
        let configuration = unsafe { configuration.as_ref() }.ok_or(Error::INVALID_VALUE)?;
        let &Configuration { grid, block, shared, stream, attributes, attribute_count } = configuration;
        // Clusters and the like are not there on an A100, or change only how fast a kernel starts.
        if !extra.is_null() || (attribute_count > 0 && attributes.is_null()) {
            return Err(Error::INVALID_VALUE);
        }
        let shape = Shape { grid, block, shared: shared as usize };
        // SAFETY: the caller's.
        unsafe { launch(function, shape, stream, parameters) }
    }
}
