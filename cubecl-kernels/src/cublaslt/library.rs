//! The library, found at run time.

use std::fmt;

use cudarc::cublaslt::sys;

/// Why products cannot run on cuBLASLt.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CublasLtError {
    /// There is no such library. The names are those that were tried.
    #[error("no cuBLASLt: none of {} could be opened", .0.join(", "))]
    Missing(Vec<String>),
    /// It does not take the device, or CubeCL does not give it.
    #[error("cuBLASLt cannot be used: {0}")]
    Refused(String),
}

/// The version of the library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Version(pub usize);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Two digits of the minor number, and of the patch, since version 12: 120803 is 12.8.3.
        let Self(number) = *self;
        write!(f, "{}.{}.{}", number / 10_000, number / 100 % 100, number % 100)
    }
}

/// Returns the version of the library that is there. Opens it, once.
///
/// # Errors
/// [`CublasLtError::Missing`], with the names that were tried.
pub fn version() -> Result<Version, CublasLtError> {
    // SAFETY: opens NVIDIA's library or nothing; its initialisers only prepare itself.
    if !unsafe { sys::is_culib_present() } {
        return Err(CublasLtError::Missing(cudarc::get_lib_name_candidates("cublasLt")));
    }
    // SAFETY: asks for a number.
    Ok(Version(unsafe { sys::cublasLtGetVersion() }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_written_with_dots() {
        assert_eq!(Version(120_803).to_string(), "12.8.3");
        assert_eq!(Version(130_002).to_string(), "13.0.2");
    }
}
