//! The engine for CUDA memory: NCCL, loaded at run time.
//!
//! A group keeps its engine for host memory, for small data and for the agreement of the ranks; this one handles data
//! on the GPU in place. A call queues NCCL's work on a stream of its own, after what the backend has queued, and
//! returns: no host waits, and nothing is copied. The backend's stream waits for the result before it is used, either
//! at once or when a handle is waited for.
//!
//! - `library`: NCCL's functions.
//! - `order`: streams and events, and the stream that CubeCL computes on.
//! - `place`: where on the device a call takes place, asked of CubeCL's server.
//! - `pauses`: how a thread waits for what is mostly done at once.
//! - `ctas`: how many thread blocks the kernels of each may have.
//! - `communicator`: one communicator with its stream, of all ranks or of a sender and its receiver.
//! - `engine`: the operations, and which communicator takes them; `engine::connecting`: how its ranks come together.
//! - `traffic`: how much a group has sent.
//! - `watchdog`: waits for what is on its way, keeps the memory of sends, and ends what
//!   hangs.
//!
//! Collectives of a group are in order among themselves, and so are transfers from one rank to another: each of these
//! has a communicator and a stream, so that none waits for another.
//!
//! # How long a call keeps its memory
//!
//! Until the backend's stream waits for the call ([`Started::before_use`]): what is launched later, and gets the same
//! memory or writes to it in place, runs after the call. Nothing of this depends on when the host sees the end of the
//! call. However far the host runs ahead, the memory in use is the same, and no buffer is copied because a call still
//! holds it. No work on the device waits for a send, or for a call that was given up: the watchdog keeps the memory of
//! such a call until the host sees its end.
//!
//! # Why the first step waits
//!
//! A kernel is loaded when it is first launched, and memory that the host shares with the GPU is allocated when it is
//! first needed. For both, CUDA may wait until everything that runs on the device has ended. A receive that is posted
//! ahead runs until its message comes; if the sender makes that message only after this rank's next one, the load waits
//! forever. Two rules exclude it:
//!
//! - In the first step of a wrapped module, and in a pipeline's first evaluation, the host waits for each call
//!   ([`wait_for_gpu_calls`]), and receives are posted in their places in the list. No call of NCCL runs while a kernel
//!   is loaded, whether for the model, the reduction, the norm or the optimizer. Such a step cannot hang: a schedule is
//!   checked as if every message blocked its sender and its receiver, and collectives come in the same order on all
//!   ranks. A pass without communication before the first step would need samples, a second way through every layer
//!   with collectives, and would still not load the kernels of the reduction and the optimizer, nor NCCL's own.
//! - After it, a receive is posted one task ahead at most.
//!
//! # Why no order of launches can hang
//!
//! The calls of one communicator come in the same order on all ranks. Between communicators there is no such order: the
//! reduction of a bucket is called by the thread that the last gradient comes to, a transfer by its lane, and where on
//! the GPU each begins depends on what it waits for there. So on one rank the kernel of one communicator may run, and
//! wait for a rank where the kernel of another runs and waits for this one. Neither hangs as long as both have room on
//! the GPU: a kernel of a backend ends by itself, a communicator has one kernel at a time there, and the kernels of all
//! communicators together have no more thread blocks than the GPU has multiprocessors; where they may have, by
//! `NCCL_MAX_CTAS` or on a small GPU, a warning says so (`ctas`). Ranks that share a GPU count each for itself. Each
//! communicator has a stream, and the GPU the number of queues that `CUDA_DEVICE_MAX_CONNECTIONS` says: with fewer
//! queues than streams a kernel that has room may come after one that waits.
//!
//! # Where there are group calls
//!
//! A pipeline's exchange sends and receives at once. NCCL's `ncclGroupStart` and `ncclGroupEnd` are for such transfers
//! that share a communicator: queued one after the other in a stream, two ranks that both send first would wait for
//! each other forever. Here each direction of each pair of ranks has a communicator, a stream, and a lane with a thread
//! that makes its calls: a send waits for earlier sends to the same rank, and for nothing else. Group calls would lose
//! that: a receive is posted long before its time, when its send has not been made yet. In return, the GPU must have
//! room for the kernels of both directions, which have four blocks each, on streams that have priority over the
//! backend's. For collectives that follow each other a group would save NCCL a thread, but in a layer there is a matmul
//! between any two.
//!
//! The exception is an all-gather of a chunk of rows, whose parts are not adjacent in the result. `ncclAllGather` has
//! no form for it, so each rank's part is a broadcast, and the broadcasts are one group.
//!
//! NCCL adds in an order of its own choice: sums differ from those of the host engines in the last bits, and are the
//! same on all ranks.

mod communicator;
mod ctas;
mod engine;
mod library;
mod order;
mod pauses;
mod place;
mod traffic;
mod watchdog;

pub(crate) use engine::{Nccl, Started, attach, connect_all, of, of_core, wait_for_gpu_calls};
pub(crate) use place::{Buffers, Prepared};
pub use traffic::NcclTraffic;

/// Returns whether NCCL is there and takes ranks that share a GPU: from 2.30 on, where `NCCL_MULTI_RANK_GPU_ENABLE` is
/// 1. By itself it takes two on each, with few thread blocks: `NCCL_MAX_CTAS`.
pub fn takes_shared_gpus() -> bool {
    library::Library::find().is_ok_and(library::Library::takes_shared_gpus)
}
