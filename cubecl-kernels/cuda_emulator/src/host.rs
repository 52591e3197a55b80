//! `Host`: kernels compiled by the host's C++ compiler, with the headers of `shim/` in place of CUDA's, and called.
//!
//! What was compiled stays in the user's cache.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::cache;
use crate::source::for_host;

/// The headers and the emulator.
const FILES: &[(&str, &str)] = &[
    ("emulator.hpp", include_str!("../shim/emulator.hpp")),
    ("emulator.cpp", include_str!("../shim/emulator.cpp")),
    ("assembly.cpp", include_str!("../shim/assembly.cpp")),
    ("half.hpp", include_str!("../shim/half.hpp")),
    ("cuda_runtime.h", include_str!("../shim/cuda_runtime.h")),
    ("cuda_fp16.h", include_str!("../shim/cuda_fp16.h")),
    ("cuda_bf16.h", include_str!("../shim/cuda_bf16.h")),
    ("mma.h", include_str!("../shim/mma.h")),
    ("cooperative_groups.h", include_str!("../shim/cooperative_groups.h")),
    (
        "cooperative_groups/memcpy_async.h",
        include_str!("../shim/cooperative_groups/memcpy_async.h"),
    ),
    ("cuda/barrier", include_str!("../shim/cuda/barrier")),
    ("cuda/pipeline", include_str!("../shim/cuda/pipeline")),
    ("cuda/ptx", include_str!("../shim/cuda/ptx")),
];
/// Kernels reinterpret numbers as the GPU's compiler lets them.
const OPTIONS: &[&str] = &[
    "-std=gnu++17",
    "-march=native",
    "-fno-strict-aliasing",
    "-fPIC",
    "-shared",
    "-w",
];
/// Of the emulator, which is compiled once and multiplies matrices.
const FOR_SPEED: &[&str] = &["-O3"];
/// Of kernels, of which most run once: they are as fast as with more, for which the compiler takes twice as long.
/// Products and sums are not rounded together by its choice: two kernels of the same formula give the same bits.
const FOR_FAST_BUILDS: &[&str] = &["-Og", "-ffp-contract=off"];

#[derive(Debug, thiserror::Error)]
pub enum HostError {
    /// There is no C++ compiler, or not for this machine.
    #[error("CUDA kernels cannot run on the CPU: {0}")]
    Missing(String),
    /// A file could not be written or a program not be started.
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
    #[error("{kernel}: the host's compiler says {log}")]
    Compiler {
        kernel: String,
        /// What it said, with the file's place.
        log: String,
    },
    /// What was compiled could not be opened.
    #[error("{kernel}: {source}")]
    Open { kernel: String, source: libloading::Error },
    /// A kernel did something that it must not.
    #[error("{kernel}: {what}")]
    Fault { kernel: String, what: String },
}

/// The emulator, and where kernels are compiled.
#[derive(Debug)]
pub struct Host {
    compiler: PathBuf,
    folder: PathBuf,
    emulator: Library,
}

/// A kernel that is ready to be called.
#[derive(Debug)]
pub struct HostKernel {
    name: String,
    library: Library,
}

type Entry = unsafe extern "C" fn(*mut *mut c_void);
type Launch = unsafe extern "C" fn(Entry, *mut *mut c_void, *const c_uint, *const c_uint, usize) -> *const c_char;

impl Host {
    /// Returns the emulator, compiled if it was not; looked for once.
    pub fn find() -> Result<&'static Self, &'static HostError> {
        static FOUND: OnceLock<Result<Host, HostError>> = OnceLock::new();
        FOUND.get_or_init(Self::prepare).as_ref()
    }

    fn prepare() -> Result<Self, HostError> {
        if !cfg!(all(target_arch = "x86_64", target_os = "linux")) {
            return Err(HostError::Missing("the emulator is for Linux on x86-64".to_string()));
        }
        let (compiler, version) = compiler()?;
        let folder = cache::name_of(&(FILES, OPTIONS, FOR_SPEED, FOR_FAST_BUILDS, version));
        let folder = cache::folder().join("cuda_emulator").join(folder);
        for (name, content) in FILES {
            let path = folder.join(name);
            if !path.is_file() {
                write(&path, content)?;
            }
        }
        let path = folder.join("emulator.so");
        if !path.is_file() {
            let sources = [folder.join("emulator.cpp"), folder.join("assembly.cpp")];
            compile(&compiler, FOR_SPEED, &folder, "the emulator", &sources, &path)?;
        }
        // SAFETY: ours; it has no initialisers that do anything.
        let emulator = unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) };
        let emulator = emulator.map_err(|source| HostError::Open {
            kernel: "the emulator".to_string(),
            source,
        })?;
        Ok(Self {
            compiler,
            folder,
            emulator,
        })
    }

    /// Compiles a kernel, if it was not compiled before.
    pub fn compile(&self, name: &str, source: &str) -> Result<HostKernel, HostError> {
        let source = for_host(source, name).map_err(|log| HostError::Compiler {
            kernel: name.to_string(),
            log,
        })?;
        let file = format!("{name}_{}", cache::name_of(&source));
        let path = self.folder.join(&file).with_extension("so");
        if !path.is_file() {
            let input = self.folder.join(&file).with_extension("cpp");
            write(&input, &source)?;
            let sources = std::slice::from_ref(&input);
            compile(&self.compiler, FOR_FAST_BUILDS, &self.folder, name, sources, &path)?;
        }
        // SAFETY: a kernel's library has no initialisers; what it needs of the emulator is open.
        let library = unsafe { Library::open(Some(&path), RTLD_NOW) };
        let library = library.map_err(|source| HostError::Open {
            kernel: name.to_string(),
            source,
        })?;
        Ok(HostKernel {
            name: name.to_string(),
            library,
        })
    }

    /// Runs a kernel with `shared_memory` bytes of dynamic shared memory, on this thread.
    ///
    /// # Errors
    ///
    /// If it does something that is found out: threads that wait for ever, accesses outside the shared memory.
    ///
    /// # Safety
    ///
    /// The arguments must be those that the kernel's source names, in order, and its buffers as large as it uses them.
    /// Kernels that run at the same time on other threads must not use the same memory, not even by atomic operations.
    pub unsafe fn launch(
        &self,
        kernel: &HostKernel,
        arguments: &mut [*mut c_void],
        grid: [u32; 3],
        block: [u32; 3],
        shared_memory: usize,
    ) -> Result<(), HostError> {
        let open = |source| HostError::Open {
            kernel: kernel.name.clone(),
            source,
        };
        let fault = |what| HostError::Fault {
            kernel: kernel.name.clone(),
            what,
        };
        // SAFETY: the emulator's and the added functions are declared so; the arguments are the caller's care.
        let error = unsafe {
            let count = kernel
                .library
                .get::<unsafe extern "C" fn() -> c_int>(c"emulator_arguments")
                .map_err(open)?;
            let count = count() as usize;
            if count > arguments.len() {
                return Err(fault(format!("takes {count} arguments, has {}", arguments.len())));
            }
            let entry = kernel.library.get::<Entry>(c"emulator_entry").map_err(open)?;
            let launch = self.emulator.get::<Launch>(c"emulator_launch").map_err(open)?;
            let error = launch(
                *entry,
                arguments.as_mut_ptr(),
                grid.as_ptr(),
                block.as_ptr(),
                shared_memory,
            );
            if error.is_null() {
                return Ok(());
            } else {
                CStr::from_ptr(error).to_string_lossy().into_owned()
            }
        };
        Err(fault(error))
    }
}

impl HostKernel {
    /// Returns a function that was compiled with the kernel.
    ///
    /// # Safety
    ///
    /// `T` must be the function's type.
    pub unsafe fn function<T: Copy>(&self, name: &CStr) -> Result<T, HostError> {
        // SAFETY: the caller's.
        let found = unsafe { self.library.get::<T>(name) };
        found.map(|function| *function).map_err(|source| HostError::Open {
            kernel: self.name.clone(),
            source,
        })
    }
}

/// Returns the C++ compiler, and its version.
fn compiler() -> Result<(PathBuf, String), HostError> {
    let named = std::env::var_os("CXX").map(PathBuf::from);
    let usual = ["g++", "c++", "clang++"].map(PathBuf::from);
    for compiler in named.into_iter().chain(usual) {
        if let Ok(output) = Command::new(&compiler).arg("--version").output()
            && output.status.success()
        {
            return Ok((compiler, String::from_utf8_lossy(&output.stdout).into_owned()));
        }
    }
    let what = "needs a C++ compiler (on Debian: apt-get install g++)";
    Err(HostError::Missing(what.to_string()))
}

fn compile(
    compiler: &Path,
    optimisation: &[&str],
    folder: &Path,
    kernel: &str,
    sources: &[PathBuf],
    to: &Path,
) -> Result<(), HostError> {
    // Others compile the same, in this process and in others: each into a file of its own, which becomes the library at
    // once.
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let unfinished = to.with_extension(format!("{}_{number}.tmp", std::process::id()));
    let mut command = Command::new(compiler);
    command
        .args(OPTIONS)
        .args(optimisation)
        .arg("-I")
        .arg(folder)
        .arg("-o")
        .arg(&unfinished)
        .args(sources);
    let output = command.output().map_err(|source| HostError::Io {
        what: compiler.display().to_string(),
        source,
    })?;
    if !output.status.success() {
        return Err(HostError::Compiler {
            kernel: kernel.to_string(),
            log: String::from_utf8_lossy(&output.stderr).into_owned(),
        });
    }
    std::fs::rename(&unfinished, to).map_err(|source| HostError::Io {
        what: to.display().to_string(),
        source,
    })
}

fn write(path: &Path, content: &str) -> Result<(), HostError> {
    cache::write(path, content).map_err(|source| HostError::Io {
        what: path.display().to_string(),
        source,
    })
}
