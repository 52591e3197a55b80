//! cudarc's bindings, as short as the scenes need them.

use std::ffi::{CStr, CString, c_void};

use anyhow::{Result, anyhow};
use cudarc::driver::{DriverError, result, sys};
use cudarc::nccl::result::{NcclError, NcclStatus};
use cudarc::nvrtc::result as nvrtc;

/// A device's address, and how many elements are there.
pub type Address = sys::CUdeviceptr;

/// Makes a device the thread's, and returns a stream of it that is free of the default one.
pub fn open(ordinal: usize) -> Result<sys::CUstream> {
    result::init()?;
    let device = result::device::get(ordinal as i32)?;
    // SAFETY: the device is there, and its context is never released.
    unsafe { result::ctx::set_current(result::primary_ctx::retain(device)?)? };
    stream()
}

pub fn stream() -> Result<sys::CUstream> {
    Ok(result::stream::create(result::stream::StreamKind::NonBlocking)?)
}

pub fn synchronize(stream: sys::CUstream) -> Result<(), DriverError> {
    // SAFETY: the scenes' streams live to the end.
    unsafe { result::stream::synchronize(stream) }
}

pub fn allocate(bytes: usize, stream: sys::CUstream) -> Result<Address, DriverError> {
    // SAFETY: as above.
    unsafe { result::malloc_async(stream, bytes) }
}

pub fn free(address: Address, stream: sys::CUstream) -> Result<(), DriverError> {
    // SAFETY: what is wrong about it is what is tried.
    unsafe { result::free_async(address, stream) }
}

pub fn upload<T>(values: &[T], stream: sys::CUstream) -> Result<Address, DriverError> {
    let address = allocate(size_of_val(values), stream)?;
    write(address, values, stream)?;
    Ok(address)
}

pub fn write<T>(address: Address, values: &[T], stream: sys::CUstream) -> Result<(), DriverError> {
    // SAFETY: the driver reads pageable memory before it returns, and checks the address.
    unsafe { result::memcpy_htod_async(address, values, stream) }
}

pub fn download<T: Clone + Default>(
    address: Address,
    count: usize,
    stream: sys::CUstream,
) -> Result<Vec<T>, DriverError> {
    let mut values = vec![T::default(); count];
    // SAFETY: the driver writes pageable memory before it returns, and checks the address.
    unsafe { result::memcpy_dtoh_async(&mut values, address, stream)? };
    Ok(values)
}

/// Compiles a kernel, and loads it.
pub fn kernel(source: &CStr, name: &str) -> Result<sys::CUfunction> {
    let program = nvrtc::create_program(source, None)?;
    // SAFETY: the program is destroyed last, and the PTX ends with a zero.
    unsafe {
        let options = ["--gpu-architecture=sm_80", "-lineinfo"];
        if let Err(error) = nvrtc::compile_program(program, &options) {
            let log: Vec<u8> = nvrtc::get_program_log(program)?
                .iter()
                .map(|&letter| letter as u8)
                .collect();
            return Err(anyhow!("{error}: {}", String::from_utf8_lossy(&log)));
        }
        let ptx = nvrtc::get_ptx(program)?;
        nvrtc::destroy_program(program)?;
        let module = result::module::load_data(ptx.as_ptr().cast())?;
        Ok(result::module::get_function(module, CString::new(name)?)?)
    }
}

/// The address of an argument.
pub fn argument<T>(value: &T) -> *mut c_void {
    std::ptr::from_ref(value).cast_mut().cast()
}

pub fn launch(
    function: sys::CUfunction,
    blocks: u32,
    threads: u32,
    stream: sys::CUstream,
    arguments: &mut [*mut c_void],
) -> Result<(), DriverError> {
    // SAFETY: the scenes pass what their kernels take, and wrong sizes are what is tried.
    unsafe { result::launch_kernel(function, (blocks, 1, 1), (threads, 1, 1), 0, stream, arguments) }
}

/// Ends NCCL's results alike.
pub fn done(outcome: Result<NcclStatus, NcclError>) -> Result<()> {
    match outcome {
        Ok(NcclStatus::Success) => Ok(()),
        Ok(_) => Err(anyhow!("NCCL: in progress")),
        Err(error) => Err(anyhow!("NCCL: {:?}", error.0)),
    }
}

/// Keeps a stream busy.
pub fn pause(stream: sys::CUstream, milliseconds: usize) -> Result<()> {
    unsafe extern "C" fn sleep(milliseconds: *mut c_void) {
        std::thread::sleep(std::time::Duration::from_millis(milliseconds as u64));
    }
    // SAFETY: the function takes a number.
    unsafe { result::stream::launch_host_function(stream, sleep, milliseconds as *mut c_void)? };
    Ok(())
}

pub fn is_busy(stream: sys::CUstream) -> bool {
    // SAFETY: the scenes' streams live to the end.
    unsafe { sys::cuStreamQuery(stream) == sys::CUresult::CUDA_ERROR_NOT_READY }
}

/// The code of a call that should fail, which is success if it does not.
pub fn code<T>(outcome: Result<T, DriverError>) -> sys::CUresult {
    outcome.err().map_or(sys::CUresult::CUDA_SUCCESS, |error| error.0)
}

/// What is said of a call that should fail.
pub fn text<T>(outcome: Result<T>) -> String {
    outcome
        .err()
        .map_or("no error".to_string(), |error| format!("{error:#}"))
}
