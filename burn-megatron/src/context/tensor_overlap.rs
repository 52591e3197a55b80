//! [`TensorOverlap`]: whether tensor-parallel linear layers are computed in chunks of rows.

use std::num::NonZeroUsize;

/// Whether linear layers under sequence parallelism gather their input, and reduce-scatter their output, in chunks of
/// rows, which overlap with their matmul. Megatron-LM's `--tp-comm-overlap`.
///
/// Without sequence parallelism, and on one tensor-parallel rank, nothing is gathered or reduce-scattered, and so
/// nothing is chunked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TensorOverlap {
    /// All rows at once: the matmul waits for the gather, and the reduce-scatter for the matmul.
    #[default]
    Off,
    /// In the number of chunks that pays on GPUs that NVLink connects: see
    /// [`OverlapSizes::num_chunks`](crate::tensor_parallel::OverlapSizes::num_chunks). Where a library does not
    /// multiply on the GPU, whole.
    WhereItPays,
    /// In this many chunks, on any device; in fewer where there are fewer rows.
    Chunks(NonZeroUsize),
}
