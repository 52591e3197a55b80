//! Which GPU a rank takes, and whether another takes it too.

use std::collections::HashMap;

use burn::tensor::Device;
use cubecl::MemoryScope;
use cubecl_kernels::cube::launch::client_of;
use cudarc::driver::result;

use super::driver::{handle, note_chosen, refused};
use super::{CudaError, libraries, lost_work};
use burn_megatron_comm::collectives::ProcessGroup;

const UUID_BYTES: usize = 16;

/// Permission of ranks to compute on the same GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// Each rank has a GPU of its own.
    Refused,
    /// Local ranks above the number of GPUs begin at the first again: for tests, slow, and over NCCL only where
    /// [it takes them](crate::collectives).
    Allowed,
}

/// Returns the number of the GPU of the rank with number `local_rank` on its node, which `Device::cuda` takes: the same
/// number among those that `CUDA_VISIBLE_DEVICES` shows, or the only one, where a launcher shows each rank its own.
/// [`check_shared`] finds two ranks that see the same. Starts the driver, and notes from now on what CubeCL loses:
/// see [`check_work`](super::check_work). It does so with a panic hook: a program that installs one of its own does
/// that before.
///
/// # Errors
/// A library is missing, the driver does not start, or there are too few GPUs.
pub fn choose(local_rank: usize, sharing: Sharing) -> Result<usize, CudaError> {
    libraries::check()?;
    lost_work::watch();
    result::init().map_err(refused("cuInit"))?;
    let gpus = result::device::get_count().map_err(refused("cuDeviceGetCount"))?;
    let gpu = choose_of(usize::try_from(gpus).unwrap_or(0), local_rank, sharing)?;
    note_chosen(gpu);
    #[cfg(feature = "kernel-cache")]
    super::kernel_cache::enable();
    Ok(gpu)
}

/// Returns the number of the GPU among `gpus`.
fn choose_of(gpus: usize, local_rank: usize, sharing: Sharing) -> Result<usize, CudaError> {
    match sharing {
        _ if local_rank < gpus => Ok(local_rank),
        _ if gpus == 1 => Ok(0),
        Sharing::Allowed if gpus > 0 => Ok(local_rank % gpus),
        _ => Err(CudaError::TooFew {
            local_rank,
            gpus,
            visible: std::env::var("CUDA_VISIBLE_DEVICES").ok(),
        }),
    }
}

/// Returns how many bytes of a GPU's memory CubeCL's pools have reserved, in use or not. Waits until
/// what has been launched so far is queued, not until it is done.
pub fn reserved_bytes(gpu: usize) -> u64 {
    let client = client_of(&Device::cuda(gpu)).expect("a device of CubeCL");
    client.memory_report(MemoryScope::Device).usage().bytes_reserved
}

/// Returns the name that the driver gives a GPU, such as `NVIDIA H100 80GB HBM3`.
///
/// # Errors
/// When the driver does not say it.
pub fn device_name(gpu: usize) -> Result<String, CudaError> {
    result::device::get_name(handle(gpu)?).map_err(refused("cuDeviceGetName"))
}

/// Checks that no two ranks of the group compute on the same GPU, by the GPUs' UUIDs. Collective over the group.
///
/// # Errors
/// [`CudaError::Shared`] on every rank, which names the lowest ranks that share one.
pub fn check_shared(gpu: usize, group: &ProcessGroup) -> Result<(), CudaError> {
    let handle = handle(gpu)?;
    let uuid = result::device::get_uuid(handle).map_err(refused("cuDeviceGetUuid"))?;
    let uuid = uuid.bytes.map(|byte| byte.to_ne_bytes()[0]);
    let mut uuids = vec![0; UUID_BYTES * group.size()];
    group.all_gather(&uuid, &mut uuids)?;
    match first_shared(&uuids) {
        None => Ok(()),
        Some((first, second)) => Err(CudaError::Shared {
            first: group.ranks()[first],
            second: group.ranks()[second],
            uuid: format_uuid(&uuids[first * UUID_BYTES..][..UUID_BYTES]),
        }),
    }
}

/// Returns the lowest pair of places with the same UUID.
fn first_shared(uuids: &[u8]) -> Option<(usize, usize)> {
    let mut seen = HashMap::new();
    uuids
        .as_chunks::<UUID_BYTES>()
        .0
        .iter()
        .enumerate()
        .find_map(|(place, uuid)| Some((seen.insert(uuid, place)?, place)))
}

/// As NVIDIA's tools print it.
fn format_uuid(uuid: &[u8]) -> String {
    let digits: Vec<String> = uuid.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..4, 4..6, 6..8, 8..10, 10..16].map(|range| digits[range].concat());
    format!("GPU-{}", parts.join("-"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_local_rank_has_a_gpu_of_its_own_unless_they_may_share() {
        assert_eq!(choose_of(4, 3, Sharing::Refused).expect("the fourth"), 3);
        assert_eq!(choose_of(2, 3, Sharing::Allowed).expect("the second again"), 1);
        let error = choose_of(2, 3, Sharing::Refused)
            .expect_err("there are two")
            .to_string();
        assert!(
            error.contains("local rank 3") && error.contains("has 2") && error.contains("at least 4"),
            "{error}"
        );
        assert!(choose_of(0, 0, Sharing::Allowed).is_err(), "there is none to share");
    }

    #[test]
    fn the_only_gpu_that_a_rank_sees_is_its_own() {
        assert_eq!(choose_of(1, 3, Sharing::Refused).expect("the only one"), 0);
    }

    #[test]
    fn the_lowest_ranks_that_share_are_named() {
        let uuids = |numbers: &[u8]| -> Vec<u8> { numbers.iter().flat_map(|number| [*number; UUID_BYTES]).collect() };
        assert_eq!(first_shared(&uuids(&[1, 2, 3])), None);
        assert_eq!(first_shared(&uuids(&[1, 2, 3, 2, 1])), Some((1, 3)));
        assert_eq!(
            format_uuid(&[0xab; UUID_BYTES]),
            "GPU-abababab-abab-abab-abab-abababababab"
        );
    }
}
