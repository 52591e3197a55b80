//! CUDA's driver, NVRTC, NCCL and cuBLASLt without a GPU: one library that exports their functions under their names.
//!
//! A test puts it where the dynamic linker finds it in place of NVIDIA's ([`library_folder`], [`environment`]), and
//! starts itself, or another program, again. What then runs is the real `cubecl-cuda`, `burn-cuda` and whatever calls
//! NCCL:
//! - every stream is a thread with a queue of its own, so that operations that no event orders run in any order. With
//!   `CUDA_EMULATOR_JITTER_US` set to a number, each operation first waits pseudo-randomly up to that many microseconds
//!   (`CUDA_EMULATOR_SEED` is the seed).
//! - device memory is the host's, and not a number until it is written and after it is freed, in the order of streams.
//! - NVRTC keeps the CUDA C++ source, which a C++ compiler of the host compiles with headers of ours in place of
//!   CUDA's ([`Host`]). Kernels run one at a time on the CPU, every thread of a block as a fiber.
//! - NCCL's ranks are processes of one machine, or threads of one process. Sums are in the order of ranks: not in
//!   NCCL's. With `CUDA_EMULATOR_NCCL_US` set to a number, each operation takes that many microseconds more in its
//!   stream. While it runs, it holds a multiprocessor for each block that its kernel would have over NVLink, of the
//!   device's `CUDA_EMULATOR_MULTIPROCESSORS` (those of its GPU), and waits for those that others hold.
//! - loads of modules and allocations, other than those in the order of a stream, first wait for all that is in the
//!   device's streams, as CUDA may do: what runs there and waits for something that comes later never ends. After
//!   `CUDA_EMULATOR_WAIT_LIMIT_S` seconds (120) that ends the context, and is reported; at 0 they do not wait.
//! - cuBLASLt's matmuls are computed in `f32` or `f64`, and rounded once. The output and the workspace are filled with
//!   NaN before the operands are read. `CUBLASLT_LOG_LEVEL` above 0 logs why a call is refused. With
//!   `CUDA_EMULATOR_CUBLASLT_US` set to a number, each matmul takes that many microseconds more in its stream.
//!
//! `CUDA_EMULATOR_DEVICES` is the number of devices (1), with `CUDA_EMULATOR_MEMORY_MB` (1024) of memory each.
//! `CUDA_EMULATOR_GPUS` says which GPUs they are by their attributes, `A100,H100` for two; others are A100s.
//! `CUDA_VISIBLE_DEVICES` is honoured.
//!
//! While `CUDA_EMULATOR_CUBLASLT_FAILS` is set, every product of cuBLASLt fails; there are none for operands that are
//! aligned to fewer bytes than `CUDA_EMULATOR_CUBLASLT_ALIGNMENT` says. `CUDA_EMULATOR_NVRTC_VERSION` is the
//! version of NVRTC (`13.0`, as the driver's); the file that `CUDA_EMULATOR_COMPILATIONS` names gets a byte for each
//! kernel that it compiles.
//!
//! The folder that `CUDA_EMULATOR_JOURNAL` names gets the source of each kernel that is compiled, and a line for each
//! launch ([`journal`]). The real NVRTC and `ptxas`, where they are installed, make machine code of a source, and say
//! what it takes of a GPU ([`Toolkit`]).
//!
//! With `CUDA_EMULATOR_RECORDING=1` calls are counted and nothing is computed ([`recording`]):
//! - calls are checked as ever, and return at once: kernels and products do nothing, NVRTC compiles nothing, streams
//!   are always idle, and events have always happened;
//! - device memory is addresses only, and `CUDA_EMULATOR_MEMORY_MB` can be more than the host has; what the host reads
//!   of it is zero. Pinned memory is the host's;
//! - the other ranks of a communicator are simulated, so one process plays one rank of any layout;
//! - calls are counted by kind, name and thread, with their bytes, and allocated memory with its peak:
//!   [`recording::Recorded`] reads them. Questions that change nothing, such as whether an event has happened, are not
//!   counted: how often they are asked depends on chance.
//!
//! What differs from a GPU:
//! - a kernel's out-of-bounds access is found only if it writes just past an allocation, or ends the process;
//! - kernels of different streams do not overlap, and the order of a kernel's blocks is fixed;
//! - calls of a communicator that does not block are done when they return, except for its creation and
//!   `ncclCommFinalize`, unless `CUDA_EMULATOR_IN_PROGRESS` is 1: then operations and groups are in progress for a
//!   while, and the first one between ranks until these have reached it too;
//! - a communicator is ended only on a thread where its device is current; `ncclCommSplit` always waits; it goes
//!   unnoticed if only some ranks call `ncclCommDestroy`;
//! - cuBLASLt multiplies column-major matrices of `f16`, `bf16`, `f32` and `f64`, one by one or in batches, and adds a
//!   bias; all else is not supported;
//! - there are no graphs, no pools of memory, no tensor maps, no clusters, no 8-bit floats, and no windows of NCCL:
//!   kernels of an H100 that use what an A100 has not are only compiled.
//!
//! Tests call it; it is part of nothing that a user builds.

mod architecture;
mod cache;
#[cfg(target_os = "linux")]
mod canonical;
#[cfg(target_os = "linux")]
mod cublaslt;
#[cfg(target_os = "linux")]
mod driver;
#[cfg(target_os = "linux")]
mod exported;
mod folder;
#[cfg(target_os = "linux")]
mod handles;
pub mod host;
#[cfg(target_os = "linux")]
pub mod journal;
#[cfg(target_os = "linux")]
mod nccl;
#[cfg(target_os = "linux")]
mod nvrtc;
#[cfg(target_os = "linux")]
pub mod recording;
mod resources;
mod source;
pub mod toolkit;

pub use architecture::Architecture;
pub use folder::{environment, library_folder};
pub use host::Host;
pub use resources::Resources;
pub use toolkit::Toolkit;
