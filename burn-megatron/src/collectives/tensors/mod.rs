//! The collectives on burn tensors, backend by backend.

mod backend;
mod call;
mod chunks;
#[cfg(feature = "cuda")]
mod cube;
mod entry;
mod exit;
mod movement;
#[cfg(feature = "cuda")]
mod nccl;
mod overlap;
mod pending;
mod regions;
mod same_input;
mod staging;
mod unwind;

pub use backend::CollectiveBackend;
pub use call::{CallMode, TensorCall};
pub use chunks::{CHUNK_ROWS, RowChunks};
pub use entry::linear_into_region;
pub use exit::linear_out_of_region;
pub use movement::{Movement, RegionEntry};
pub use pending::PendingTensor;
pub(crate) use regions::as_constant;
pub use regions::{
    connect, has_device_memory, move_data, move_differentiable, recv_start, run, send_start, start, tensor_engine,
};
#[cfg(feature = "trainer")]
pub(crate) use same_input::compare_hash;
pub use same_input::{InputError, InputsDiffer};
pub(crate) use same_input::{compare_input, compare_values, show_input, watch_input};
pub use unwind::{catch_collective_error, unwrap_or_unwind};
