//! Ranks in processes, and collectives between them: what `torch.distributed` is for PyTorch, for any Rust program.
//!
//! A rank is an operating-system process. A program calls [`run`], which starts it once per rank, unless torchrun,
//! Slurm or Open MPI have started it. Each rank gets its [`World`](launch::World), with which ranks connect
//! [`ProcessGroup`](collectives::ProcessGroup)s.
//!
//! ```no_run
//! use burn_megatron_comm::collectives::{EngineChoice, ProcessGroup, ReduceOp};
//! use burn_megatron_comm::launch::World;
//!
//! fn main() -> std::process::ExitCode {
//!     burn_megatron_comm::run(4, work)
//! }
//!
//! fn work(world: &World) -> Result<(), Box<dyn std::error::Error>> {
//!     let ranks: Vec<usize> = (0..world.world_size()).collect();
//!     let group = ProcessGroup::connect(world, "all", &ranks, &EngineChoice::Auto)?;
//!     let mut values = [world.rank() as f64, 1.0];
//!     group.all_reduce(&mut values, ReduceOp::Sum)?;
//!     println!("rank {}: {values:?}", world.rank()); // [6.0, 4.0]
//!     Ok(())
//! }
//! ```
//!
//! | module | what is in it |
//! |---|---|
//! | [`launch`] | how a job comes together, notices that a rank is gone, and ends |
//! | [`collectives`] | process groups, and the engines that move their bytes |
//! | [`flight_recorder`] | the last calls of each rank, for when one hangs |
//!
//! The features `rank-threads` and `fuzzing` are for this library's own tests.
#![warn(missing_docs)]

pub mod collectives;
pub mod flight_recorder;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod launch;
mod limits;
#[cfg(any(test, feature = "rank-threads"))]
#[doc(hidden)]
pub mod rank_threads;
mod ranks;

pub use launch::run;

/// The example of the package's README, compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
