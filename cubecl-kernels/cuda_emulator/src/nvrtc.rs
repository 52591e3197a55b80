//! NVRTC: "compiles" CUDA C++ to a text that holds the source, once a C++ compiler of the host has accepted it.
//!
//! [`module`](crate::driver) reads the source from the text again.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use cuda_source::Host;
use cuda_source::host::HostKernel;

use crate::handles::Handles;

/// The first line of what stands in place of PTX.
pub const HEADER: &str = "// cuda-emulator: CUDA C++ in place of PTX\n";
/// What NVRTC knows without a header.
const BEFORE: &str = "#include <cuda_runtime.h>\n";
/// What reports the sizes of a kernel's arguments.
const AFTER: &str = "
template <class F> struct EmulatorSizes;
template <class... A> struct EmulatorSizes<void (*)(A...)> {
    static size_t of(int index) { const size_t sizes[] = {sizeof(A)..., 0}; return sizes[index]; }
};
extern \"C\" size_t emulator_argument_size(int index) { return EmulatorSizes<decltype(&KERNEL)>::of(index); }
";

const INVALID_INPUT: u32 = 3;
const INVALID_PROGRAM: u32 = 4;
const INVALID_OPTION: u32 = 5;
const COMPILATION: u32 = 6;
const INTERNAL: u32 = 11;

static PROGRAMS: Handles<Program> = Handles::new(3);

struct Program {
    source: String,
    compiled: Mutex<Compiled>,
}

#[derive(Default)]
struct Compiled {
    ptx: Option<Vec<u8>>,
    log: Vec<u8>,
}

/// Compiles a kernel of a source for the CPU.
pub fn kernel(source: &str, name: &str) -> Result<HostKernel, String> {
    let host = Host::find().map_err(|error| error.to_string())?;
    let source = format!("{BEFORE}{source}{}", AFTER.replace("KERNEL", name));
    host.compile(name, &source, 0).map_err(|error| error.to_string())
}

/// Returns the names of a source's kernels.
pub fn kernels(source: &str) -> Vec<&str> {
    let mut names = Vec::new();
    for part in source.split("__global__").skip(1) {
        let mut rest = part.trim_start();
        // The bounds may stand before or after the type.
        loop {
            let word = ["void", "__launch_bounds__", "__cluster_dims__"]
                .into_iter()
                .find(|word| rest.starts_with(word));
            let Some(word) = word else { break };
            rest = rest[word.len()..].trim_start();
            if word != "void"
                && let Some(end) = rest.find(')')
            {
                rest = rest[end + 1..].trim_start();
            }
        }
        let end = rest
            .find(|letter: char| !letter.is_alphanumeric() && letter != '_')
            .unwrap_or(rest.len());
        if end > 0 {
            names.push(&rest[..end]);
        }
    }
    names
}

impl Program {
    fn of(handle: *mut c_void) -> Result<Arc<Self>, u32> {
        PROGRAMS.get(handle).ok_or(INVALID_PROGRAM)
    }

    fn compile(&self, options: &[&str]) -> Result<(), u32> {
        const KNOWN: &[&str] = &[
            "--gpu-architecture=sm_80",
            "--gpu-architecture=compute_80",
            "-arch=sm_80",
            "-arch=compute_80",
            "--include-path=",
            "-I",
            "-lineinfo",
            "--generate-line-info",
            "--use_fast_math",
            "--fmad=",
            "--ftz=",
            "--prec-",
            "--std=",
            "-std=",
            "-default-device",
        ];
        let mut compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        let unknown = options
            .iter()
            .find(|option| !KNOWN.iter().any(|known| option.starts_with(known)));
        if let Some(option) = unknown {
            compiled.log = format!("cuda-emulator: unknown option {option}\0").into_bytes();
            return Err(INVALID_OPTION);
        }
        let refused = kernels(&self.source)
            .into_iter()
            .find_map(|name| kernel(&self.source, name).err());
        let failed = refused.is_some();
        compiled.log = format!("{}\0", refused.unwrap_or_default().replace('\0', " ")).into_bytes();
        if failed {
            return Err(COMPILATION);
        }
        compiled.ptx = Some(format!("{HEADER}{}\0", self.source).into_bytes());
        Ok(())
    }

    /// Returns the text in place of PTX, or the log, each with its terminating zero.
    fn text(&self, is_log: bool) -> Result<Vec<u8>, u32> {
        let compiled = self.compiled.lock().unwrap_or_else(PoisonError::into_inner);
        if !is_log {
            compiled.ptx.clone().ok_or(INVALID_PROGRAM)
        } else if compiled.log.is_empty() {
            Ok(vec![0])
        } else {
            Ok(compiled.log.clone())
        }
    }
}

fn returned(call: impl FnOnce() -> Result<(), u32>) -> u32 {
    catch_unwind(AssertUnwindSafe(call)).map_or(INTERNAL, |outcome| outcome.err().unwrap_or(0))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcVersion(major: *mut c_int, minor: *mut c_int) -> u32 {
    returned(|| {
        // SAFETY: the caller's pointers, or null.
        let (major, minor) = unsafe { (major.as_mut(), minor.as_mut()) };
        *major.ok_or(INVALID_INPUT)? = 13;
        *minor.ok_or(INVALID_INPUT)? = 0;
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetErrorString(error: u32) -> *const c_char {
    let text = match error {
        0 => c"NVRTC_SUCCESS",
        INVALID_INPUT => c"NVRTC_ERROR_INVALID_INPUT",
        INVALID_PROGRAM => c"NVRTC_ERROR_INVALID_PROGRAM",
        INVALID_OPTION => c"NVRTC_ERROR_INVALID_OPTION",
        COMPILATION => c"NVRTC_ERROR_COMPILATION",
        INTERNAL => c"NVRTC_ERROR_INTERNAL_ERROR",
        _ => c"NVRTC_ERROR unknown",
    };
    text.as_ptr()
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcCreateProgram(
    program: *mut *mut c_void,
    source: *const c_char,
    _name: *const c_char,
    headers: c_int,
    _contents: *const *const c_char,
    _names: *const *const c_char,
) -> u32 {
    returned(|| {
        if program.is_null() || source.is_null() || headers != 0 {
            return Err(INVALID_INPUT);
        }
        // SAFETY: the caller's text, which ends with a zero.
        let source = unsafe { CStr::from_ptr(source) };
        let created = Program {
            source: source.to_string_lossy().into_owned(),
            compiled: Mutex::default(),
        };
        // SAFETY: the caller's pointer, not null.
        unsafe { program.write(PROGRAMS.insert(Arc::new(created))) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcCompileProgram(program: *mut c_void, count: c_int, options: *const *const c_char) -> u32 {
    returned(|| {
        let program = Program::of(program)?;
        let count = usize::try_from(count).map_err(|_| INVALID_INPUT)?;
        let mut list = Vec::new();
        for index in 0..count {
            // SAFETY: the caller's list of texts that end with a zero.
            list.push(
                unsafe { CStr::from_ptr(*options.add(index)) }
                    .to_str()
                    .map_err(|_| INVALID_OPTION)?,
            );
        }
        program.compile(&list)
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcDestroyProgram(program: *mut *mut c_void) -> u32 {
    returned(|| {
        // SAFETY: the caller's pointer, or null. It is not written: cudarc's points to what is constant.
        let handle = unsafe { program.as_ref() }.ok_or(INVALID_PROGRAM)?;
        PROGRAMS.remove(*handle).map(drop).ok_or(INVALID_PROGRAM)
    })
}

fn size(program: *mut c_void, bytes: *mut usize, is_log: bool) -> u32 {
    returned(|| {
        let text = Program::of(program)?.text(is_log)?;
        // SAFETY: the caller's pointer, or null.
        *unsafe { bytes.as_mut() }.ok_or(INVALID_INPUT)? = text.len();
        Ok(())
    })
}

fn text(program: *mut c_void, to: *mut c_char, is_log: bool) -> u32 {
    returned(|| {
        let text = Program::of(program)?.text(is_log)?;
        if to.is_null() {
            return Err(INVALID_INPUT);
        }
        // SAFETY: the caller has room for the size that was reported to it.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len()) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetPTXSize(program: *mut c_void, bytes: *mut usize) -> u32 {
    size(program, bytes, false)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetPTX(program: *mut c_void, to: *mut c_char) -> u32 {
    text(program, to, false)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetProgramLogSize(program: *mut c_void, bytes: *mut usize) -> u32 {
    size(program, bytes, true)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetProgramLog(program: *mut c_void, to: *mut c_char) -> u32 {
    text(program, to, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_found_by_name() {
        let source = "extern \"C\" __global__ void __launch_bounds__(256) first(int x) {}\n\
            __device__ void none() {}\n__global__ void __launch_bounds__(1, 2)\nsecond_2(){}";
        assert_eq!(kernels(source), ["first", "second_2"]);
        assert!(kernels("int x;").is_empty());
    }
}
