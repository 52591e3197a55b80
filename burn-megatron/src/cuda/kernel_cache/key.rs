//! What compiled kernels depend on, as the name of a folder.

use std::fs::File;
use std::hash::Hasher;
use std::io::{self, Read};

use cubecl::cuda::install::cuda_path;
use cubecl::hash::StableHasher;
use cudarc::driver::sys::CUdevice_attribute::{
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
};

use crate::cuda::driver;
use crate::cuda::libraries::nvrtc_version;

/// Returns the name for this program, which has the kernels' sources in it, and a GPU.
///
/// Kernels in a shared library that a program loads are not of its file: such a program turns the cache off when it
/// changes.
pub(super) fn of(ordinal: usize) -> io::Result<String> {
    let program = hash(File::open("/proc/self/exe")?)?;
    let capability = [
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
    ];
    let [major, minor] = driver::attributes(ordinal, capability).map_err(io::Error::other)?;
    let nvrtc = nvrtc_version().map_err(io::Error::other)?;
    Ok(format!("{program:032x}-sm_{major}{minor}-nvrtc_{nvrtc}"))
}

/// Returns a hash of a program, and of where the headers are that its kernels include.
fn hash(mut program: impl Read) -> io::Result<u128> {
    let mut hasher = StableHasher::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match program.read(&mut buffer)? {
            0 => break,
            read => hasher.write(&buffer[..read]),
        }
    }
    let headers = cuda_path().unwrap_or_default();
    hasher.write(headers.as_os_str().as_encoded_bytes());
    Ok(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_program_has_another_hash() {
        let long = vec![7; (1 << 20) + 3];
        let mut other = long.clone();
        *other.last_mut().expect("it is long") = 8;
        let [first, again, other] = [&long, &long, &other].map(|program| hash(&program[..]).expect("it is read"));
        assert_eq!(first, again);
        assert_ne!(first, other);
    }
}
