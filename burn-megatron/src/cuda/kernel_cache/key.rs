//! What compiled kernels depend on, as the name of a folder.

use std::fs::File;
use std::hash::Hasher;
use std::io::{self, Read};

use cubecl::cuda::install::cuda_path;
use cubecl::hash::StableHasher;
use cudarc::driver::result::device;
use cudarc::driver::sys::CUdevice_attribute::{
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
};

use crate::cuda::libraries::nvrtc_version;

/// Returns the name for this program, which has the kernels' sources in it, and a GPU.
///
/// Kernels in a shared library that a program loads are not of its file: such a program turns the cache off when it
/// changes.
pub(super) fn of(ordinal: usize) -> io::Result<String> {
    let program = hash(File::open("/proc/self/exe")?)?;
    let [major, minor] = compute_capability(ordinal)?;
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

fn compute_capability(ordinal: usize) -> io::Result<[i32; 2]> {
    let refused = |error: cudarc::driver::DriverError| io::Error::other(format!("{error:?}"));
    let gpu = device::get(i32::try_from(ordinal).unwrap_or(i32::MAX)).map_err(refused)?;
    let of = |attribute| {
        // SAFETY: the device is one that the driver has just named.
        unsafe { device::get_attribute(gpu, attribute) }.map_err(refused)
    };
    Ok([
        of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?,
        of(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?,
    ])
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
