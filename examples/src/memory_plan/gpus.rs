//! The fewest GPUs of a size that hold a run, as more data-parallel ranks share it out.

use super::RankMemory;

/// Gigabytes (10⁹ bytes) of the GPUs that are looked at.
pub(super) const SIZES: [u32; 3] = [40, 80, 141];

/// What is left free, in words.
pub(super) const RESERVE: &str =
    "with 15 % and 1.5 GB of each left free (the allocator's pages; CUDA, its libraries and NCCL)";

/// The share of a GPU that is left free. CubeCL takes 1 to 15 % more from the driver than a model has in use:
/// `burn-megatron/docs/gpu.md`.
const FREE_SHARE: f64 = 0.15;

/// The bytes that are left free in addition: an allowance, not measured, for the CUDA context, the kernels, cuBLASLt's
/// workspaces and NCCL's buffers (4 MiB per channel and connection unless `NCCL_BUFFSIZE` says otherwise).
const FREE_BYTES: f64 = 1.5e9;

/// Data-parallel ranks that are more than any run has.
const MOST_RANKS: usize = 1 << 16;

/// Returns the fewest GPUs of this size, each with a rank, that hold models on `model` ranks, in words.
/// `data_parallel_sizes` are those that the run may have, in order; `needs` says what a rank needs with one of them:
/// the larger, the less.
pub(super) fn fewest(
    gigabytes: u32,
    model: usize,
    data_parallel_sizes: &[usize],
    needs: impl Fn(usize) -> RankMemory,
) -> String {
    let usable = f64::from(gigabytes) * 1e9 * (1.0 - FREE_SHARE) - FREE_BYTES;
    let fits = |size: usize| needs(size).total() <= usable;
    let why = match data_parallel_sizes.iter().find(|&&size| fits(size)) {
        Some(size) => return format!("{} of {gigabytes} GB", size * model),
        None if needs(1).activations > usable => "activations alone exceed it",
        // More data-parallel ranks would hold it than the global batch has micro-batches for.
        None if fits(MOST_RANKS) => "with this global batch",
        None => "what is not shared out exceeds it",
    };
    format!("none of {gigabytes} GB ({why})")
}
