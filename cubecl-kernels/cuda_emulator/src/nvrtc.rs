//! NVRTC: "compiles" CUDA C++ to a text that holds the source, once a C++ compiler of the host has accepted it.
//!
//! [`module`](crate::driver) reads the source from the text again.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::fs::File;
use std::io::Write;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::exported::{Failure, Out, exported};
use crate::handles::Handles;
use crate::host::{Host, HostKernel};
use crate::{canonical, journal, recording};

/// The first line of what stands in place of PTX.
pub const HEADER: &str = "// cuda-emulator: CUDA C++ in place of PTX\n";
/// The variable with a file that gets a byte for each compilation.
const COUNT: &str = "CUDA_EMULATOR_COMPILATIONS";
/// The variable with the version of NVRTC.
const VERSION: &str = "CUDA_EMULATOR_NVRTC_VERSION";
/// Options with the target, and the targets of an A100 and an H100.
const TARGET: [&str; 2] = ["--gpu-architecture=", "-arch="];
const TARGETS: [&str; 5] = ["sm_80", "compute_80", "sm_90", "sm_90a", "compute_90"];
/// Other options that are known, or what they begin with.
const KNOWN: [&str; 11] = [
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

/// A code of `nvrtcResult` other than success.
#[derive(PartialEq, Eq)]
struct Error(u32);

type Outcome<T = ()> = Result<T, Error>;

impl Error {
    const INVALID_INPUT: Self = Self(3);
    const INVALID_PROGRAM: Self = Self(4);
    const INVALID_OPTION: Self = Self(5);
    const COMPILATION: Self = Self(6);
    const INTERNAL: Self = Self(11);
}

impl Failure for Error {
    fn null() -> Self {
        Self::INVALID_INPUT
    }

    fn panicked() -> Self {
        Self::INTERNAL
    }

    fn into_code(self) -> u32 {
        self.0
    }
}

static PROGRAMS: Handles<Program> = Handles::new(3);

struct Program {
    /// The source, the same for equal kernels.
    source: String,
    compiled: Mutex<Compiled>,
}

#[derive(Default)]
struct Compiled {
    ptx: Option<Vec<u8>>,
    log: Vec<u8>,
}

/// Adds a byte to the file that [`COUNT`] names.
fn count() {
    if let Some(path) = std::env::var_os(COUNT)
        && let Err(error) = File::options()
            .create(true)
            .append(true)
            .open(path)
            .and_then(|mut file| file.write_all(b"."))
    {
        eprintln!("cuda-emulator: {COUNT}: {error}");
    }
}

/// Returns what `nvrtcVersion` says: the driver's version, unless [`VERSION`] says another one.
fn version() -> (c_int, c_int) {
    let asked = std::env::var(VERSION).ok();
    let asked = asked.as_deref().and_then(|text| text.split_once('.'));
    let asked = asked.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    asked.unwrap_or((13, 0))
}

/// Compiles a kernel of a source for the CPU.
pub fn kernel(source: &str, name: &str) -> Result<HostKernel, String> {
    let host = Host::find().map_err(|error| error.to_string())?;
    let source = format!("{BEFORE}{source}{}", AFTER.replace("KERNEL", name));
    host.compile(name, &source).map_err(|error| error.to_string())
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

/// Returns the target that an option names.
fn target(option: &str) -> Option<&str> {
    TARGET.iter().find_map(|name| option.strip_prefix(name))
}

impl Program {
    fn of(handle: *mut c_void) -> Outcome<Arc<Self>> {
        PROGRAMS.get(handle).ok_or(Error::INVALID_PROGRAM)
    }

    fn compile(&self, options: &[&str]) -> Outcome {
        count();
        let mut compiled = self.compiled.lock();
        let is_known = |option: &str| {
            let is_target = target(option).is_some_and(|target| TARGETS.contains(&target));
            is_target || KNOWN.iter().any(|known| option.starts_with(known))
        };
        if let Some(option) = options.iter().find(|option| !is_known(option)) {
            compiled.log = format!("cuda-emulator: unknown option {option}\0").into_bytes();
            return Err(Error::INVALID_OPTION);
        }
        let names = kernels(&self.source);
        let target = options.iter().find_map(|option| target(option));
        let kept = journal::add_source(&names, target.unwrap_or(TARGETS[0]), &self.source);
        let refused = match kept {
            Err(error) => Some(format!("the journal: {error}")),
            Ok(()) if recording::is_on() => None,
            Ok(()) => names.into_iter().find_map(|name| kernel(&self.source, name).err()),
        };
        let failed = refused.is_some();
        compiled.log = format!("{}\0", refused.unwrap_or_default().replace('\0', " ")).into_bytes();
        if failed {
            return Err(Error::COMPILATION);
        }
        compiled.ptx = Some(format!("{HEADER}{}\0", self.source).into_bytes());
        Ok(())
    }

    /// Returns the text in place of PTX, with its terminating zero.
    fn ptx(&self) -> Outcome<Vec<u8>> {
        self.compiled.lock().ptx.clone().ok_or(Error::INVALID_PROGRAM)
    }

    /// Returns the log, with its terminating zero.
    fn log(&self) -> Vec<u8> {
        let log = self.compiled.lock().log.clone();
        if log.is_empty() { vec![0] } else { log }
    }
}

/// Copies a text, with its terminating zero, to where the caller has room for the size that was reported to it.
///
/// # Safety
///
/// The pointer must be null or point to that room.
unsafe fn copy(text: &[u8], to: *mut c_char) -> Outcome {
    if to.is_null() {
        return Err(Error::INVALID_INPUT);
    }
    // SAFETY: the caller's.
    unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len()) };
    Ok(())
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvrtcGetErrorString(error: u32) -> *const c_char {
    let text = match Error(error) {
        Error(0) => c"NVRTC_SUCCESS",
        Error::INVALID_INPUT => c"NVRTC_ERROR_INVALID_INPUT",
        Error::INVALID_PROGRAM => c"NVRTC_ERROR_INVALID_PROGRAM",
        Error::INVALID_OPTION => c"NVRTC_ERROR_INVALID_OPTION",
        Error::COMPILATION => c"NVRTC_ERROR_COMPILATION",
        Error::INTERNAL => c"NVRTC_ERROR_INTERNAL_ERROR",
        _ => c"NVRTC_ERROR unknown",
    };
    text.as_ptr()
}

exported! {
    fn nvrtcVersion(major: Out<c_int>, minor: Out<c_int>) {
        let version = version();
        major.give(version.0).and(minor.give(version.1))
    }

    fn nvrtcCreateProgram(
        program: Out<*mut c_void>,
        source: *const c_char,
        _name: *const c_char,
        headers: c_int,
        _contents: *const *const c_char,
        _names: *const *const c_char,
    ) {
        if program.is_null() || source.is_null() || headers != 0 {
            return Err(Error::INVALID_INPUT);
        }
        // SAFETY: the caller's text, which ends with a zero.
        let source = unsafe { CStr::from_ptr(source) };
        let created = Program {
            source: canonical::renumbered(&source.to_string_lossy()),
            compiled: Mutex::default(),
        };
        program.give(PROGRAMS.insert(Arc::new(created)))
    }

    fn nvrtcCompileProgram(program: *mut c_void, count: c_int, options: *const *const c_char) {
        let program = Program::of(program)?;
        let count = usize::try_from(count).map_err(|_| Error::INVALID_INPUT)?;
        let list = (0..count).map(|index| {
            // SAFETY: the caller's list of texts that end with a zero.
            let option = unsafe { CStr::from_ptr(*options.add(index)) };
            option.to_str().map_err(|_| Error::INVALID_OPTION)
        });
        program.compile(&list.collect::<Outcome<Vec<&str>>>()?)
    }

    fn nvrtcDestroyProgram(program: *mut *mut c_void) {
        // SAFETY: the caller's pointer, or null. It is not written: cudarc's points to what is constant.
        let handle = unsafe { program.as_ref() }.ok_or(Error::INVALID_PROGRAM)?;
        PROGRAMS.remove(*handle).map(drop).ok_or(Error::INVALID_PROGRAM)
    }

    fn nvrtcGetPTXSize(program: *mut c_void, bytes: Out<usize>) {
        bytes.give(Program::of(program)?.ptx()?.len())
    }

    fn nvrtcGetPTX(program: *mut c_void, to: *mut c_char) {
        // SAFETY: the caller's.
        unsafe { copy(&Program::of(program)?.ptx()?, to) }
    }

    fn nvrtcGetProgramLogSize(program: *mut c_void, bytes: Out<usize>) {
        bytes.give(Program::of(program)?.log().len())
    }

    fn nvrtcGetProgramLog(program: *mut c_void, to: *mut c_char) {
        // SAFETY: the caller's.
        unsafe { copy(&Program::of(program)?.log(), to) }
    }
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
