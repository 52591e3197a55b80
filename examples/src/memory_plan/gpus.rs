//! The fewest GPUs of a size that hold a run, as more data-parallel ranks share it out.

use super::RankMemory;

/// Gigabytes (10⁹ bytes) of the GPUs that are looked at.
pub(super) const SIZES: [u32; 3] = [40, 80, 141];

/// What is left free, in words.
pub(super) const RESERVE: &str =
    "with 15 %, 1 GB and up to 0.5 GB for each communicator left free (the allocator's pages; CUDA; NCCL)";

/// The share of a GPU that is left free. CubeCL takes 1 to 15 % more from the driver than a model has in use:
/// `burn-megatron/docs/gpu.md`.
const FREE_SHARE: f64 = 0.15;

/// The bytes that are left free in addition: an allowance, not measured, for the CUDA context, the kernels and
/// cuBLASLt's workspaces.
const FREE_BYTES: f64 = 1e9;

/// The bytes of a communicator of a group and of one between two ranks, which has fewer channels: allowances, not
/// measured (a channel has 4 MiB for each connection unless `NCCL_BUFFSIZE` says otherwise, and some more).
const COMMUNICATOR_BYTES: [f64; 2] = [0.5e9, 0.1e9];

/// Data-parallel ranks that are more than any run has.
const MOST_RANKS: usize = 1 << 16;

/// Returns the bytes of a rank's communicators, by the ranks that are tensor-, pipeline- and data-parallel: one of the
/// tensor-parallel ranks, one of the data-parallel ranks, one of the first and the last stage, and one for each
/// direction to and from a stage next to it. Groups of a sharded optimizer with several instances are not counted.
pub(super) fn communicator_bytes([tensor, pipeline, data]: [usize; 3]) -> f64 {
    let groups = [tensor, pipeline, data].into_iter().filter(|&ranks| ranks > 1).count();
    let transfers = match pipeline {
        1 => 0,
        2 => 2,
        _ => 4,
    };
    let [of_group, of_transfers] = COMMUNICATOR_BYTES;
    groups as f64 * of_group + f64::from(transfers) * of_transfers
}

/// Returns the fewest GPUs of this size, each with a rank, that hold models on these tensor- and pipeline-parallel
/// ranks, in words. `data_parallel_sizes` are those that the run may have, in order; `needs` says what a rank needs
/// with one of them: the larger, the less.
pub(super) fn fewest(
    gigabytes: u32,
    [tensor, pipeline]: [usize; 2],
    data_parallel_sizes: &[usize],
    needs: impl Fn(usize) -> RankMemory,
) -> String {
    let usable = |size: usize| {
        f64::from(gigabytes) * 1e9 * (1.0 - FREE_SHARE) - FREE_BYTES - communicator_bytes([tensor, pipeline, size])
    };
    let fits = |size: usize| needs(size).total() <= usable(size);
    let why = match data_parallel_sizes.iter().find(|&&size| fits(size)) {
        Some(size) => return format!("{} of {gigabytes} GB", size * tensor * pipeline),
        None if needs(1).activations > usable(1) => "activations alone exceed it",
        // More data-parallel ranks would hold it than the global batch has micro-batches for.
        None if fits(MOST_RANKS) => "with this global batch",
        None => "what is not shared out exceeds it",
    };
    format!("none of {gigabytes} GB ({why})")
}
