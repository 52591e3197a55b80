//! Matmuls by NVIDIA's cuBLASLt.

use cubecl::cuda::CudaDevice;
use cubecl_kernels::cublaslt::{self, CublasLtError, Version};

use super::CudaError;
use super::libraries::looked_for;
use burn_megatron_comm::collectives::ProcessGroup;

/// Lets this rank's matmuls run on cuBLASLt from now on. Call it after [`choose`](super::choose), before the first
/// matmul.
///
/// # Errors
/// [`CudaError::Missing`], with the names and places that were tried: then matmuls stay with burn's own kernels. The
/// library refuses the device.
pub fn enable_cublaslt(gpu: usize) -> Result<(), CudaError> {
    let version = cublaslt::enable(&CudaDevice::new(gpu)).map_err(cuda_error)?;
    tracing::info!(%version, gpu, "matmuls run on cuBLASLt");
    Ok(())
}

/// Checks that all ranks of the group compute matmuls alike: with the same version of cuBLASLt, or all without.
/// Collective over the group.
///
/// # Errors
/// [`CudaError::DifferentMatmuls`] on every rank, which names the first that differs from the group's first.
pub fn check_same_matmuls(group: &ProcessGroup) -> Result<(), CudaError> {
    let own = cublaslt::enabled().map_or(0, |Version(number)| number as i64);
    let mut versions = vec![0; group.size()];
    group.all_gather(&[own], &mut versions)?;
    match versions.iter().position(|version| *version != versions[0]) {
        None => Ok(()),
        Some(other) => Err(CudaError::DifferentMatmuls {
            first: group.ranks()[0],
            of_first: in_words(versions[0]),
            other: group.ranks()[other],
            of_other: in_words(versions[other]),
        }),
    }
}

/// Returns the name of the library or the kernels that compute a rank's matmuls.
fn in_words(version: i64) -> String {
    match version {
        0 => "burn's own kernels".to_owned(),
        number => format!("cuBLASLt {}", Version(usize::try_from(number).unwrap_or(0))),
    }
}

fn cuda_error(error: CublasLtError) -> CudaError {
    match error {
        CublasLtError::Missing(names) => CudaError::Missing {
            what: "no cuBLASLt, which computes matmuls",
            looked: looked_for(&names),
            remedy: "put the folder of libcublasLt.so on LD_LIBRARY_PATH, or do without it (--no-cublaslt)",
        },
        other => CudaError::Driver {
            call: "cuBLASLt",
            error: other.to_string(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_computes_matmuls_is_named() {
        assert_eq!(in_words(0), "burn's own kernels");
        assert_eq!(in_words(120_803), "cuBLASLt 12.8.3");
    }

    #[test]
    fn a_missing_library_is_reported_with_names_places_and_a_remedy() {
        let error = cuda_error(CublasLtError::Missing(vec!["libcublasLt.so".to_owned()])).to_string();
        for part in ["no cuBLASLt", "libcublasLt.so", "LD_LIBRARY_PATH", "--no-cublaslt"] {
            assert!(error.contains(part), "{part} is not in {error}");
        }
    }
}
