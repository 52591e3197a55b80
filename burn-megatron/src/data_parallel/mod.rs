//! Data parallelism around any burn module: each rank sees its own samples, and gradients are averaged.
//!
//! [`DistributedDataParallel`] hooks every parameter of a module for one forward pass, so that its gradient leaves the
//! autodiff graph the moment it is complete and is added to a flat bucket; on the last micro-batch, full buckets are
//! reduced while the backward pass goes on. Called by the trainer and by programs that train a model of their own.

mod bucket;
mod flat;
mod gradients;
mod hook;
mod reducer;
mod replica_check;
mod sync;

mod wrapper;

pub use bucket::{BucketLayout, BucketSlot};
pub use gradients::{GradientEntry, ReducedGradients};
pub use hook::HookBackend;
pub use replica_check::check_replicas;
pub use sync::WeightSync;
pub use wrapper::{DataParallelConfig, DataParallelError, DistributedDataParallel, MicroBatch};
