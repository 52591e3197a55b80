//! Where a test finds the library, and what it sets so that the dynamic linker finds it too.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::toolkit;

/// The names under which NVIDIA's libraries are looked for.
const NAMES: &[&str] = &[
    "libcuda.so",
    "libcuda.so.1",
    "libnvrtc.so",
    "libnvrtc.so.12",
    "libnvrtc.so.13",
    "libnccl.so",
    "libnccl.so.2",
    "libcublasLt.so",
    "libcublasLt.so.12",
    "libcublasLt.so.13",
];

/// Returns a folder with links named as NVIDIA's libraries to the emulator, and with `include`, as if it were an
/// installation of CUDA; it is removed when the value is dropped.
///
/// The dynamic linker reads where to look when a process starts: set [`environment`] for a process to be started, which
/// may be the same program.
///
/// # Errors
///
/// If the library is not next to the running program, where Cargo puts it for the tests of packages that depend on this
/// one, or the folder cannot be created.
pub fn library_folder() -> io::Result<TempDir> {
    let library = library()?;
    let folder = tempfile::Builder::new().prefix("cuda-emulator-").tempdir()?;
    for name in NAMES {
        std::os::unix::fs::symlink(&library, folder.path().join(name))?;
    }
    let include = folder.path().join("include");
    std::fs::create_dir(&include)?;
    // `cubecl-cuda` wants a toolkit; what a kernel includes comes from `shim/`.
    std::fs::write(
        include.join("cuda_fp16.h"),
        "#error the emulator compiles with headers of its own\n",
    )?;
    Ok(folder)
}

/// Returns the variables that a process needs to find the emulator in a folder of [`library_folder`], and a toolkit of
/// CUDA where it was before.
pub fn environment(folder: &Path) -> Vec<(&'static str, OsString)> {
    let others = std::env::var_os("LD_LIBRARY_PATH").filter(|paths| !paths.is_empty());
    let mut paths = folder.as_os_str().to_owned();
    if let Some(others) = others {
        paths.push(":");
        paths.push(others);
    }
    let toolkit = std::env::var_os(toolkit::VARIABLE).or_else(|| std::env::var_os("CUDA_PATH"));
    let ours = [("LD_LIBRARY_PATH", paths), ("CUDA_PATH", folder.as_os_str().to_owned())];
    ours.into_iter()
        .chain(toolkit.map(|toolkit| (toolkit::VARIABLE, toolkit)))
        .collect()
}

/// Finds the library: Cargo builds it into `deps`, where tests are too; examples are in a folder next to `deps`.
fn library() -> io::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let own = program.parent().unwrap_or(Path::new("."));
    let above = own.parent().unwrap_or(own);
    let folders = [own.to_owned(), own.join("deps"), above.join("deps"), above.to_owned()];
    let found = folders.iter().find_map(|folder| {
        let entries = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
        let libraries = entries.filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libcuda_emulator") && name.ends_with(".so")
        });
        libraries.max_by_key(|path| path.metadata().and_then(|metadata| metadata.modified()).ok())
    });
    found.ok_or_else(|| {
        let what = format!(
            "no libcuda_emulator.so in {}",
            folders.map(|folder| folder.display().to_string()).join(", ")
        );
        io::Error::new(io::ErrorKind::NotFound, what)
    })
}
