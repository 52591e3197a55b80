//! The engine over MPI for the process groups of burn-megatron-comm: for clusters where MPI knows the fast network.
//!
//! [burn-megatron](https://docs.rs/burn-megatron) offers it to its groups under its feature `mpi`. A program without
//! burn connects groups with `WithMpi` for options, or with options of its own whose `mpi_engine` returns `connect`.
//! Every rank is a process of one `mpirun`, and results have the bits of those of every other engine.
//!
//! | feature | default | what it adds |
//! |---|---|---|
//! | `mpi` | no | all of it; a build needs an MPI library with `mpicc`, and libclang |

#[cfg(feature = "mpi")]
mod engine;
#[cfg(feature = "mpi")]
mod options;

#[cfg(feature = "mpi")]
pub use engine::connect;
#[cfg(feature = "mpi")]
pub use options::WithMpi;

/// The example of the package's README, compiled with the documentation's.
#[cfg(all(doctest, feature = "mpi"))]
#[doc = include_str!("../README.md")]
struct Readme;
