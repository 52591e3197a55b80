//! The fewest GPUs of a size that hold a run, as more data-parallel ranks share it out.

use std::fmt;

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

/// How many GPUs hold a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fit {
    gigabytes: u32,
    found: Result<usize, Reason>,
}

/// Why no number of GPUs does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    Activations,
    /// More data-parallel ranks would hold it than the global batch has micro-batches for.
    Batch,
    /// What every data-parallel rank has.
    Whole,
}

impl Fit {
    /// Finds the fewest GPUs, each with a rank, of models on `model` ranks. `data_parallel_sizes` are those that the
    /// run may have, in order; `needs` says what a rank needs with one of them: the larger, the less.
    pub(super) fn find(
        gigabytes: u32,
        model: usize,
        data_parallel_sizes: &[usize],
        needs: impl Fn(usize) -> RankMemory,
    ) -> Self {
        let usable = f64::from(gigabytes) * 1e9 * (1.0 - FREE_SHARE) - FREE_BYTES;
        let fits = |size: usize| needs(size).total() <= usable;
        let smallest = data_parallel_sizes.iter().copied().find(|&size| fits(size));
        let found = match smallest {
            Some(size) => Ok(size * model),
            None if needs(1).activations > usable => Err(Reason::Activations),
            None if fits(MOST_RANKS) => Err(Reason::Batch),
            None => Err(Reason::Whole),
        };
        Self { gigabytes, found }
    }
}

impl fmt::Display for Fit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let gigabytes = self.gigabytes;
        match self.found {
            Ok(count) => write!(formatter, "{count} of {gigabytes} GB"),
            Err(Reason::Activations) => write!(formatter, "none of {gigabytes} GB (activations alone exceed it)"),
            Err(Reason::Batch) => write!(formatter, "none of {gigabytes} GB (with this global batch)"),
            Err(Reason::Whole) => write!(formatter, "none of {gigabytes} GB (what is not shared out exceeds it)"),
        }
    }
}
