//! Modules, made of what the emulated NVRTC returns, and their functions.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::device::stream::settle_before;
use super::device::{Device, current};
use super::error::{Error, Outcome, tell};
use crate::exported::{Out, exported};
use crate::handles::Handles;
use crate::host::HostKernel;
use crate::nvrtc::{self, HEADER};
use crate::recording;

static MODULES: Handles<Module> = Handles::new(4);
static FUNCTIONS: Handles<Function> = Handles::new(5);
/// Dynamic shared memory of a function that asks for none, in bytes.
const SHARED: usize = 48 * 1024;
const MAX_DYNAMIC_SHARED: c_uint = 8;

struct Module {
    device: &'static Device,
    source: String,
}

/// A kernel that was loaded.
#[derive(Debug)]
pub struct Function {
    pub device: &'static Device,
    /// Its name in the source.
    pub name: String,
    /// What runs; nothing while recording.
    pub kernel: Option<HostKernel>,
    /// The sizes of its arguments in bytes; none are known while recording.
    pub arguments: Vec<usize>,
    shared: AtomicUsize,
}

impl Function {
    pub fn of(handle: *mut c_void) -> Outcome<Arc<Self>> {
        FUNCTIONS.get(handle).ok_or(Error::INVALID_HANDLE)
    }

    /// The most dynamic shared memory that a launch may have, in bytes.
    pub fn max_shared(&self) -> usize {
        self.shared.load(Ordering::Acquire)
    }

    fn load(module: &Module, name: &str) -> Outcome<Self> {
        if !nvrtc::kernels(&module.source).contains(&name) {
            return Err(Error::NOT_FOUND);
        }
        let (kernel, arguments) = if recording::is_on() {
            (None, Vec::new())
        } else {
            let (kernel, arguments) = compile(&module.source, name)?;
            (Some(kernel), arguments)
        };
        Ok(Self {
            device: module.device,
            name: name.to_owned(),
            kernel,
            arguments,
            shared: AtomicUsize::new(SHARED),
        })
    }
}

/// Returns a kernel of a source for the CPU, and the sizes of its arguments in bytes.
fn compile(source: &str, name: &str) -> Outcome<(HostKernel, Vec<usize>)> {
    let failed = |error: String| {
        tell(&error);
        Error::INVALID_PTX
    };
    let kernel = nvrtc::kernel(source, name).map_err(failed)?;
    // SAFETY: the first is added to every kernel with this type by `host`, the second by `nvrtc`.
    let functions = unsafe {
        let count = kernel.function::<unsafe extern "C" fn() -> c_int>(c"emulator_arguments");
        let size = kernel.function::<unsafe extern "C" fn(c_int) -> usize>(c"emulator_argument_size");
        count.and_then(|count| Ok((count, size?)))
    };
    let (count, size) = functions.map_err(|error| failed(error.to_string()))?;
    // SAFETY: as above; every index is one of an argument.
    let arguments = unsafe { (0..count()).map(|index| size(index)).collect() };
    Ok((kernel, arguments))
}

/// # Safety
///
/// The image must be null or point to bytes that end with a zero.
unsafe fn load(module: Out<*mut c_void>, image: *const c_void) -> Outcome {
    let device = current()?;
    if image.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    // SAFETY: PTX is a text that ends with a zero; other images differ in the first byte, which is read first.
    let text = unsafe { CStr::from_ptr(image.cast::<c_char>()) };
    let source = text.to_str().ok().and_then(|text| text.strip_prefix(HEADER));
    let source = source.ok_or(Error::INVALID_PTX)?.to_string();
    settle_before(device, "the load of a module")?;
    recording::count("module", "load", source.len());
    module.give(MODULES.insert(Arc::new(Module { device, source })))
}

exported! {
    fn cuModuleLoadData(module: Out<*mut c_void>, image: *const c_void) {
        // SAFETY: the caller's.
        unsafe { load(module, image) }
    }

    fn cuModuleLoadDataEx(
        module: Out<*mut c_void>,
        image: *const c_void,
        _count: c_uint,
        _options: *mut c_uint,
        _values: *mut *mut c_void,
    ) {
        // SAFETY: the caller's.
        unsafe { load(module, image) }
    }

    fn cuModuleUnload(module: *mut c_void) {
        MODULES.remove(module).map(drop).ok_or(Error::INVALID_HANDLE)
    }

    fn cuModuleGetFunction(function: Out<*mut c_void>, module: *mut c_void, name: *const c_char) {
        let module = MODULES.get(module).ok_or(Error::INVALID_HANDLE)?;
        if name.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // SAFETY: the caller's text, which ends with a zero.
        let name = unsafe { CStr::from_ptr(name) }.to_str().map_err(|_| Error::NOT_FOUND)?;
        function.give(FUNCTIONS.insert(Arc::new(Function::load(&module, name)?)))
    }

    fn cuFuncSetAttribute(function: *mut c_void, attribute: c_uint, value: c_int) {
        let function = Function::of(function)?;
        if attribute == MAX_DYNAMIC_SHARED {
            let most = function.device.architecture.max_shared_memory();
            let bytes = usize::try_from(value).ok().filter(|&bytes| bytes <= most);
            // Less than the usual is asked for by those who ask for what they use; CUDA lets the launch have it too.
            let bytes = bytes.ok_or(Error::INVALID_VALUE)?;
            function.shared.store(bytes.max(SHARED), Ordering::Release);
        }
        Ok(())
    }

    fn cuFuncGetAttribute(value: Out<c_int>, attribute: c_uint, function: *mut c_void) {
        let function = Function::of(function)?;
        value.give(match attribute {
            0 => 1024,
            1..=3 | 7 => 0,
            4 => 32,
            5 | 6 => 80,
            MAX_DYNAMIC_SHARED => function.max_shared() as c_int,
            _ => return Err(Error::INVALID_VALUE),
        })
    }

    fn cuFuncSetCacheConfig(function: *mut c_void, _config: c_uint) {
        Function::of(function).map(drop)
    }
}
