//! `Toolkit`: NVRTC, `ptxas` and `cuobjdump`, where they are installed; none needs a GPU or a driver.
//!
//! Machine code, and what kernels take, stay in the user's cache, so that a kernel is compiled again when its source,
//! these compilers or this file have changed.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libloading::Library;

use crate::{Architecture, Resources, cache};

/// The variable with the installation where `CUDA_PATH` is the emulator's folder.
pub const VARIABLE: &str = "CUDA_EMULATOR_TOOLKIT";

/// NVRTC's and `ptxas`'s installation.
#[derive(Debug)]
pub struct Toolkit {
    nvrtc: Library,
    /// Opened before NVRTC, which looks for it by name only.
    _builtins: Option<Library>,
    ptxas: PathBuf,
    includes: Vec<PathBuf>,
    /// What the compilers say of themselves.
    version: String,
}

#[derive(Debug, thiserror::Error)]
pub enum ToolkitError {
    #[error("no CUDA compiler: {what} (`.ci/cuda_compiler` installs it, or set CUDA_PATH)")]
    Missing { what: String },
    #[error("NVRTC for {architecture}: {log}\n{source_code}")]
    Nvrtc {
        architecture: Architecture,
        log: String,
        source_code: String,
    },
    /// `ptxas` refused NVRTC's output, or said something else than expected.
    #[error("ptxas for {architecture}: {log}")]
    Ptxas { architecture: Architecture, log: String },
    /// `cuobjdump` did not print the machine code.
    #[error("cuobjdump: {log}")]
    Cuobjdump { log: String },
    /// A file could not be written, or a program not be started.
    #[error("{what}: {source}")]
    Io { what: String, source: std::io::Error },
}

impl Toolkit {
    /// Returns the installation in [`VARIABLE`], in `CUDA_PATH`, in the user's cache where `.ci/cuda_compiler` installs
    /// it, or in `/usr/local/cuda`; looked for once.
    pub fn find() -> Result<&'static Self, &'static ToolkitError> {
        static FOUND: OnceLock<Result<Toolkit, ToolkitError>> = OnceLock::new();
        FOUND.get_or_init(Self::look).as_ref()
    }

    fn look() -> Result<Self, ToolkitError> {
        let mut tried = Vec::new();
        for root in candidates() {
            match Self::open(&root) {
                Ok(toolkit) => return Ok(toolkit),
                Err(reason) => tried.push(format!("{}: {reason}", root.display())),
            }
        }
        Err(ToolkitError::Missing { what: tried.join("; ") })
    }

    fn open(root: &Path) -> Result<Self, String> {
        let library = |prefix: &str| {
            let folders = [root.join("lib"), root.join("lib64")];
            folders.iter().find_map(|folder| with_prefix(folder, prefix))
        };
        let ptxas = root.join("bin").join("ptxas");
        if !ptxas.is_file() {
            return Err("has no bin/ptxas".to_string());
        }
        let nvrtc = library("libnvrtc.so").ok_or("has no libnvrtc.so")?;
        let builtins = library("libnvrtc-builtins.so");
        let include = root.join("include");
        if !include.join("cuda_fp16.h").is_file() {
            return Err("has no include/cuda_fp16.h".to_string());
        }
        // `cubecl-cuda` adds the second folder where it exists; the wheels keep a part of it next to `include`.
        let includes = [include.clone(), include.join("cccl")];
        let open = |path: PathBuf| {
            // SAFETY: NVIDIA's libraries, whose initialisers only prepare themselves.
            unsafe { Library::new(&path) }.map_err(|error| format!("{}: {error}", path.display()))
        };
        let version = Command::new(&ptxas).arg("--version").output();
        let version = version.map_err(|error| format!("{}: {error}", ptxas.display()))?;
        let version = format!("{} {}", String::from_utf8_lossy(&version.stdout), nvrtc.display());
        Ok(Self {
            _builtins: builtins.map(open).transpose()?,
            nvrtc: open(nvrtc)?,
            ptxas,
            includes: includes.into_iter().filter(|path| path.is_dir()).collect(),
            version,
        })
    }

    /// Compiles a kernel's source as `cubecl-cuda` does, if it was not compiled before, and tells what it takes of the
    /// GPU.
    ///
    /// `dynamic_shared_memory`, in bytes, is what the launch adds to that of the source.
    pub fn compile(
        &self,
        source: &str,
        architecture: Architecture,
        dynamic_shared_memory: usize,
    ) -> Result<Resources, ToolkitError> {
        let path = self.compiled(source, architecture).with_extension("json");
        let known = std::fs::read(&path).ok();
        let known = known.and_then(|json| serde_json::from_slice::<Resources>(&json).ok());
        let mut resources = match known {
            Some(resources) => resources,
            None => self.compile_uncached(source, architecture)?,
        };
        resources.shared_memory += dynamic_shared_memory;
        Ok(resources)
    }

    /// Returns what `cuobjdump -sass` prints of a kernel's machine code, which is compiled first if it was not.
    ///
    /// # Errors
    ///
    /// If a compiler refuses it, or there is no `cuobjdump`.
    pub fn listing(&self, source: &str, architecture: Architecture) -> Result<String, ToolkitError> {
        let path = self.compiled(source, architecture).with_extension("sass");
        if let Ok(listing) = std::fs::read_to_string(&path) {
            return Ok(listing);
        }
        let cubin = path.with_extension("cubin");
        if !cubin.is_file() {
            self.compile_uncached(source, architecture)?;
        }
        let listing = self.disassemble(&cubin)?;
        cache::write(&path, &listing).map_err(io(path.display().to_string()))?;
        Ok(listing)
    }

    /// Returns the path in the cache, without an extension, of what is made of a source.
    fn compiled(&self, source: &str, architecture: Architecture) -> PathBuf {
        let key = (include_str!("toolkit.rs"), &self.version, architecture, source);
        cache::folder().join("compiled").join(cache::name_of(&key))
    }

    /// Compiles, and keeps the machine code and what it takes of the GPU.
    fn compile_uncached(&self, source: &str, architecture: Architecture) -> Result<Resources, ToolkitError> {
        let ptx = self.to_ptx(source, architecture)?;
        let (mut resources, cubin) = self.assemble(&ptx, architecture, &[])?;
        resources.matrix_instructions = matrix_instructions(&ptx);
        if resources.spilled > 0 || resources.stack_frame > 0 {
            // `ptxas` spills a little where this lets one more block run at once; not where one is enough.
            let alone = &["--override-directive-values", "--minnctapersm=1"];
            let (alone, _) = self.assemble(&ptx, architecture, alone)?;
            resources.traded = resources.spilled.saturating_sub(alone.spilled);
            resources.spilled = alone.spilled;
            resources.stack_frame = alone.stack_frame;
        }
        let path = self.compiled(source, architecture);
        let json = serde_json::to_vec(&resources).expect("numbers are JSON");
        for (extension, content) in [("cubin", cubin), ("json", json)] {
            let path = path.with_extension(extension);
            cache::write(&path, content).map_err(io(path.display().to_string()))?;
        }
        Ok(resources)
    }

    /// Compiles a kernel's source to PTX.
    pub fn to_ptx(&self, source: &str, architecture: Architecture) -> Result<String, ToolkitError> {
        let mut options = vec![format!("--gpu-architecture={}", architecture.target())];
        options.extend(
            self.includes
                .iter()
                .map(|path| format!("--include-path={}", path.display())),
        );
        options.push("-lineinfo".to_string());
        let failed = |log: String| ToolkitError::Nvrtc {
            architecture,
            log,
            source_code: source.to_string(),
        };
        let with_nul = |text: &str| CString::new(text).map_err(|error| failed(error.to_string()));
        let source_text = with_nul(source)?;
        let options = options
            .iter()
            .map(|option| with_nul(option))
            .collect::<Result<Vec<_>, _>>()?;
        // SAFETY: the signatures are those of nvrtc.h, and the strings end with a zero and outlive the program.
        unsafe { self.compile_by_nvrtc(&source_text, &options) }.map_err(failed)
    }

    /// # Safety
    ///
    /// `nvrtc` must be NVRTC.
    unsafe fn compile_by_nvrtc(&self, source: &CStr, options: &[CString]) -> Result<String, String> {
        type Program = *mut c_void;
        type Create = unsafe extern "C" fn(
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> c_int;
        type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
        type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
        type Text = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
        type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;

        let missing = |error: libloading::Error| error.to_string();
        // SAFETY: nvrtc.h declares these functions so, which the caller vouches for.
        unsafe {
            let create = self.nvrtc.get::<Create>(c"nvrtcCreateProgram").map_err(missing)?;
            let compile = self.nvrtc.get::<Compile>(c"nvrtcCompileProgram").map_err(missing)?;
            let destroy = self.nvrtc.get::<Destroy>(c"nvrtcDestroyProgram").map_err(missing)?;
            let text = |program: Program, size: &CStr, get: &CStr| -> Result<String, String> {
                let size = self.nvrtc.get::<Size>(size).map_err(missing)?;
                let get = self.nvrtc.get::<Text>(get).map_err(missing)?;
                let mut bytes = 0usize;
                if size(program, &mut bytes) != 0 {
                    return Err("has no text to give".to_string());
                }
                let mut buffer = vec![0u8; bytes + 1];
                if get(program, buffer.as_mut_ptr().cast()) != 0 {
                    return Err("has no text to give".to_string());
                }
                let end = buffer.iter().position(|&byte| byte == 0).unwrap_or(bytes);
                Ok(String::from_utf8_lossy(&buffer[..end]).into_owned())
            };

            let mut program: Program = std::ptr::null_mut();
            let nothing = std::ptr::null();
            let status = create(
                &mut program,
                source.as_ptr(),
                nothing,
                0,
                nothing.cast(),
                nothing.cast(),
            );
            if status != 0 {
                return Err(format!("nvrtcCreateProgram returned {status}"));
            }
            let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
            let status = compile(program, pointers.len() as c_int, pointers.as_ptr());
            let outcome = match status {
                0 => text(program, c"nvrtcGetPTXSize", c"nvrtcGetPTX"),
                _ => Err(text(program, c"nvrtcGetProgramLogSize", c"nvrtcGetProgramLog")
                    .unwrap_or_else(|error| format!("nvrtcCompileProgram returned {status}, and {error}"))),
            };
            destroy(&mut program);
            outcome
        }
    }

    /// Returns what the machine code of a PTX text takes of the GPU, and the code.
    fn assemble(
        &self,
        ptx: &str,
        architecture: Architecture,
        options: &[&str],
    ) -> Result<(Resources, Vec<u8>), ToolkitError> {
        let folder = tempfile::tempdir().map_err(io("a folder for the PTX".to_string()))?;
        let [input, cubin] = ["kernel.ptx", "kernel.cubin"].map(|name| folder.path().join(name));
        std::fs::write(&input, ptx).map_err(io(input.display().to_string()))?;
        let output = Command::new(&self.ptxas)
            .args(["-v", "--gpu-name", architecture.target()])
            .args(options)
            .arg("-o")
            .args([&cubin, &input])
            .output()
            .map_err(io(self.ptxas.display().to_string()))?;
        let log = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        if !output.status.success() {
            return Err(ToolkitError::Ptxas { architecture, log });
        }
        let code = std::fs::read(&cubin).map_err(io(cubin.display().to_string()))?;
        let resources = parse(&log).ok_or(ToolkitError::Ptxas { architecture, log })?;
        Ok((resources, code))
    }

    fn disassemble(&self, cubin: &Path) -> Result<String, ToolkitError> {
        // It looks for `nvdisasm` next to itself.
        let program = self.ptxas.with_file_name("cuobjdump");
        if !program.is_file() {
            return Err(ToolkitError::Missing {
                what: format!("{} is not there", program.display()),
            });
        }
        let output = Command::new(&program)
            .arg("-sass")
            .arg(cubin)
            .output()
            .map_err(io(program.display().to_string()))?;
        if !output.status.success() {
            return Err(ToolkitError::Cuobjdump {
                log: String::from_utf8_lossy(&output.stderr).into_owned(),
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn io(what: String) -> impl FnOnce(std::io::Error) -> ToolkitError {
    move |source| ToolkitError::Io { what, source }
}

/// Where toolkits are looked for.
fn candidates() -> Vec<PathBuf> {
    // Python's version is a part of the path.
    let libraries = cache::folder().join("cuda_compiler").join("lib");
    let installed =
        with_prefix(&libraries, "python").map(|python| python.join("site-packages").join("nvidia").join("cu13"));
    let usual = Some(PathBuf::from("/usr/local/cuda"));
    let named = [VARIABLE, "CUDA_PATH"].map(|name| std::env::var_os(name).map(PathBuf::from));
    named.into_iter().chain([installed, usual]).flatten().collect()
}

/// Returns a folder's first entry, by name, that begins with a prefix.
fn with_prefix(folder: &Path, prefix: &str) -> Option<PathBuf> {
    let entries = std::fs::read_dir(folder).ok()?.flatten();
    let names = entries.map(|entry| entry.path());
    names
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(prefix))
        })
        .min()
}

/// Returns what `ptxas -v` says of the one kernel that it compiled.
fn parse(log: &str) -> Option<Resources> {
    let before = |line: &str, word: &str| -> Option<u32> {
        let text = line[..line.find(word)?].trim_end();
        text.rsplit([' ', ',']).next()?.parse().ok()
    };
    // A line for the kernel, and one for each function that is not a part of it.
    let frames: Vec<&str> = log.lines().filter(|line| line.contains("bytes stack frame")).collect();
    let total = |word: &str| frames.iter().map(|line| before(line, word)).sum::<Option<u32>>();
    if frames.is_empty() {
        return None;
    }
    let used = log
        .lines()
        .find(|line| line.contains("Used") && line.contains("registers"))?;
    Some(Resources {
        registers: before(used, " registers")?,
        shared_memory: before(used, " bytes smem").unwrap_or(0) as usize,
        spilled: total(" bytes spill stores")? + total(" bytes spill loads")?,
        stack_frame: total(" bytes stack frame")?,
        ..Resources::default()
    })
}

/// Returns how many instructions of a PTX text run on the matrix units.
fn matrix_instructions(ptx: &str) -> usize {
    let is_matrix = |line: &&str| {
        let line = line.trim_start();
        ["mma.sync", "wmma.mma", "wgmma.mma_async"]
            .iter()
            .any(|instruction| line.starts_with(instruction))
    };
    ptx.lines().filter(is_matrix).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ptxas_says_is_read() {
        let log = "ptxas info    : 0 bytes gmem\n\
            ptxas info    : Compiling entry function 'kernel' for 'sm_80'\n\
            ptxas info    : Function properties for kernel\n    \
            24 bytes stack frame, 12 bytes spill stores, 16 bytes spill loads\n\
            ptxas info    : Used 255 registers, used 1 barriers, 24 bytes cumulative stack size, 1024 bytes smem, 400 \
            bytes cmem[0]\n";
        let expected = Resources {
            registers: 255,
            shared_memory: 1024,
            spilled: 28,
            stack_frame: 24,
            ..Resources::default()
        };
        assert_eq!(parse(log), Some(expected));
    }

    #[test]
    fn what_functions_keep_counts_too() {
        let log = "ptxas info    : Compiling entry function 'kernel' for 'sm_80'\n\
            ptxas info    : Function properties for kernel\n    \
            0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n\
            ptxas info    : Used 40 registers, 400 bytes cmem[0]\n\
            ptxas info    : Function properties for helper\n    \
            16 bytes stack frame, 4 bytes spill stores, 8 bytes spill loads\n";
        let resources = parse(log).expect("has both");
        assert_eq!((resources.stack_frame, resources.spilled), (16, 12));
        assert_eq!(parse("ptxas info    : Used 40 registers\n"), None);
    }
}
