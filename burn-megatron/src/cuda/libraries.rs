//! The libraries that are loaded at run time. Each is asked for by name, so that what is missing is said before
//! anything panics for it.

use std::ffi::c_int;
use std::fmt;
use std::path::Path;

use cubecl::cuda::install::cuda_path;
use cudarc::{driver, get_lib_name_candidates, nvrtc};

use super::CudaError;

/// The header that CubeCL's kernels include.
const HEADER: &str = "cuda_fp16.h";

/// A version of CUDA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// The first number.
    pub major: i32,
    /// The second.
    pub minor: i32,
}

impl fmt::Display for Version {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}.{}", self.major, self.minor)
    }
}

/// Checks that the driver, NVRTC and the headers of CUDA are there, and that the driver understands what NVRTC
/// compiles.
///
/// # Errors
/// [`CudaError::Missing`], with the names and the places that were tried; [`CudaError::NvrtcTooNew`].
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
    check_versions(nvrtc_version()?, driver_version()?)?;
    check_headers(cuda_path().as_deref())
}

/// Returns the version of NVRTC, which must be there.
///
/// # Errors
/// When NVRTC does not say it.
pub fn nvrtc_version() -> Result<Version, CudaError> {
    let (mut major, mut minor): (c_int, c_int) = (0, 0);
    // SAFETY: writes two numbers.
    let status = unsafe { nvrtc::sys::nvrtcVersion(&raw mut major, &raw mut minor) };
    match status {
        nvrtc::sys::nvrtcResult::NVRTC_SUCCESS => Ok(Version { major, minor }),
        error => Err(CudaError::Driver {
            call: "nvrtcVersion",
            error: format!("{error:?}"),
        }),
    }
}

/// Returns the newest version of CUDA that the driver knows, which must be there.
///
/// # Errors
/// When the driver does not say it.
pub fn driver_version() -> Result<Version, CudaError> {
    let mut number: c_int = 0;
    // SAFETY: writes one number; needs no initialised driver.
    let status = unsafe { driver::sys::cuDriverGetVersion(&raw mut number) };
    match status {
        driver::sys::CUresult::CUDA_SUCCESS => Ok(Version {
            major: number / 1000,
            minor: number % 1000 / 10,
        }),
        error => Err(CudaError::Driver {
            call: "cuDriverGetVersion",
            error: format!("{error:?}"),
        }),
    }
}

/// Checks that the driver loads what NVRTC compiles: PTX of its own version or an older one.
fn check_versions(nvrtc: Version, driver: Version) -> Result<(), CudaError> {
    if nvrtc > driver {
        Err(CudaError::NvrtcTooNew { nvrtc, driver })
    } else {
        Ok(())
    }
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
    fn an_nvrtc_that_is_newer_than_the_driver_is_refused() {
        let [old, new, newest] = [(12, 4), (12, 8), (13, 0)].map(|(major, minor)| Version { major, minor });
        check_versions(new, new).expect("it is the same");
        check_versions(old, newest).expect("the driver is newer");
        for (nvrtc, driver) in [(new, old), (newest, new)] {
            let error = check_versions(nvrtc, driver)
                .expect_err("the driver is older")
                .to_string();
            for part in [&format!("NVRTC {nvrtc}"), &format!("CUDA {driver}"), "update"] {
                assert!(error.contains(part), "{part} is not in {error}");
            }
        }
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
