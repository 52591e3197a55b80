//! Faults that can be planted to see the parity tests go red. Absent from release builds.
//!
//! Asked at the few places where a fault is planted; switched on by the tests through the feature `mutants` and the
//! environment variable `BURN_MEGATRON_MUTANT`, in builds with debug assertions only: the fault as it is written here.

/// A fault, each of which breaks parity with the one-rank run in its own way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutant {
    /// A row-parallel layer adds its bias on every tensor rank, before the sum.
    BiasAddedPerRank,
    /// Gradients are summed, not averaged, over the data-parallel ranks.
    DataParallelSumForMean,
    /// The two uses of a tied embedding are not summed: only one reaches the gradient.
    NoTiedSum,
    /// The gradients of a tied embedding's copies on the first and on the last stage are not summed.
    NoTiedStageSum,
    /// The global norm counts both copies of a tied embedding.
    TiedCopyCountedTwice,
    /// Gradients of norms and row biases stay partial under sequence parallelism.
    SequenceParallelSumMissing,
    /// The global norm counts parameters that every tensor rank holds once per rank.
    ReplicaCountedTwice,
    /// A parameter is clipped by the norm of what this rank holds of it.
    ClippedByShard,
    /// Keys and values change places in a shard.
    KeyAndValueSwapped,
    /// All data-parallel ranks drop what the first one drops.
    SharedDropoutMask,
    /// One rank, by its number, finds an infinite gradient in every backward pass.
    InfiniteGradient(usize),
}

/// Whether a fault is planted in this process.
#[cfg(all(feature = "mutants", debug_assertions))]
pub fn is_active(mutant: Mutant) -> bool {
    use std::sync::OnceLock;
    static ACTIVE: OnceLock<Option<String>> = OnceLock::new();
    let active = ACTIVE.get_or_init(|| std::env::var("BURN_MEGATRON_MUTANT").ok());
    active.as_deref() == Some(format!("{mutant:?}").as_str())
}

/// Whether a fault is planted in this process: never, in this build.
#[cfg(not(all(feature = "mutants", debug_assertions)))]
#[inline(always)]
pub const fn is_active(_mutant: Mutant) -> bool {
    false
}
