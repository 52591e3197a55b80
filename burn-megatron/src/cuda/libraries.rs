//! The libraries that are loaded at run time. Each is asked for by name, so that what is missing is said before
//! anything panics for it.

use std::path::Path;

use cubecl::cuda::install::cuda_path;
use cudarc::{driver, get_lib_name_candidates, nvrtc};

use super::CudaError;

/// The header that CubeCL's kernels include.
const HEADER: &str = "cuda_fp16.h";

/// Checks that the driver, NVRTC and the headers of CUDA are there.
///
/// # Errors
/// [`CudaError::Missing`], with the names and the places that were tried.
pub fn check() -> Result<(), CudaError> {
    // SAFETY: loads NVIDIA's driver or nothing, which is allowed at any time on any thread.
    if !unsafe { driver::sys::is_culib_present() } {
        return Err(CudaError::Missing {
            what: "no CUDA driver",
            looked: looked_for(&get_lib_name_candidates("cuda")),
            remedy: "install NVIDIA's driver, or choose another --device",
        });
    }
    // SAFETY: as above, for NVRTC.
    if !unsafe { nvrtc::sys::is_culib_present() } {
        return Err(CudaError::Missing {
            what: "no NVRTC, which compiles the kernels",
            looked: looked_for(&get_lib_name_candidates("nvrtc")),
            remedy: "install the CUDA toolkit, or put the folder of libnvrtc.so on LD_LIBRARY_PATH",
        });
    }
    check_headers(cuda_path().as_deref())
}

/// Says which names were tried where, for the message of a library that is not there.
pub(crate) fn looked_for(names: &[String]) -> String {
    let places = match std::env::var("LD_LIBRARY_PATH") {
        Ok(path) if !path.is_empty() => format!("LD_LIBRARY_PATH ({path})"),
        _ => "LD_LIBRARY_PATH (not set)".to_owned(),
    };
    format!(
        "none of {} could be opened, in {places} or the system's folders",
        names.join(", ")
    )
}

/// Checks for the headers in a toolkit.
fn check_headers(toolkit: Option<&Path>) -> Result<(), CudaError> {
    let missing = |looked| {
        Err(CudaError::Missing {
            what: "no headers of CUDA, which the kernels include",
            looked,
            remedy: "set CUDA_PATH to a toolkit that has them",
        })
    };
    match toolkit {
        None => missing(
            "CUDA_PATH is not set, and there is none of /usr/local/cuda, /opt/cuda and /usr/bin/nvcc".to_owned(),
        ),
        Some(root) => match root.join("include").join(HEADER) {
            header if header.is_file() => Ok(()),
            header => missing(format!("no file {}", header.display())),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_looked_for_in_the_named_toolkit() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path();
        let error = check_headers(Some(root)).expect_err("the toolkit is empty").to_string();
        let named = root.display().to_string();
        assert!(error.contains(&named) && error.contains("CUDA_PATH"), "{error}");
        std::fs::create_dir(folder.path().join("include")).expect("the folder is writable");
        std::fs::write(folder.path().join("include").join(HEADER), "").expect("the folder is writable");
        check_headers(Some(root)).expect("the header is there");
    }

    #[test]
    fn names_and_places_are_reported() {
        let text = looked_for(&["libone.so".to_owned(), "libtwo.so".to_owned()]);
        assert!(
            text.contains("libone.so, libtwo.so") && text.contains("LD_LIBRARY_PATH"),
            "{text}"
        );
    }
}
