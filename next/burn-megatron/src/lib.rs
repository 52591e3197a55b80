//! Data, tensor, sequence and pipeline parallelism for the [burn](https://burn.dev) deep-learning framework, in the
//! manner of Megatron-LM.
//!
//! A rank is an operating-system process; a program starts itself once per rank, or is started by torchrun, Slurm or
//! Open MPI. Every layout of ranks starts from the same bits and trains to the same loss as one rank.
//!
//! | You have | Use |
//! |---|---|
//! | a program that trains on one device | [`run`] around its training, which gives each rank its [`World`](launch::World) |
//! | any burn model, and a plan of which parameters are cut | [`sharded`] |
//! | dropout that must be the same in every layout | [`Dropout`](random::Dropout), drawn by coordinates instead of by a process-wide generator |
//! | a training loop with collectives of its own | the [`ProcessGroup`](collectives::ProcessGroup)s of a [`ParallelContext`](context::ParallelContext), and [`mappings`] for activations |
//! | doubts whether a layout computes what one rank does | [`parity`] |
//!
//! The sizes of the axes are given by [`ParallelConfig`](topology::ParallelConfig). Which data-parallel ranks there are
//! follows from them and from the number of ranks.
//!
//! # Devices
//!
//! Layers, wrappers and collectives run on burn's `Device::flex()`, and on `Device::cuda(index)` with the feature
//! `cuda`, over NCCL with `nccl`: a model is where its device is.
//!
//! # Features
//!
//! | Feature | On by default | What it adds |
//! |---|---|---|
//! | `checkpoint` | yes | checkpoints that any layout reads, in safetensors files |
//! | `tcp` | yes | several ranks: the launcher, the store where ranks meet (tokio), and TCP between hosts |
//! | `dataset` | no | burn's data loaders by rank |
//! | `learner` | no | burn-train's `Learner` on many ranks |
//! | `trainer` | no | the training loop for language models, with data sets and the byte tokenizer |
//! | `parity` | no | recordings of two runs, to compare them |
//! | `x86-v4` | no | AVX-512 in products and fused operations, chosen at run time where the processor has it; without it AVX2 |
//! | `cuda` | no | ranks on NVIDIA's GPUs, with matrix products by cuBLASLt; a build needs neither CUDA nor a GPU |
//! | `nccl` | no | the same over NCCL, which is loaded at run time |
#![warn(missing_docs)]
#![allow(dead_code, unused_imports, reason = "the modules that use them are not here yet")]

pub mod autodiff;
#[cfg(feature = "checkpoint")]
pub mod checkpoint;
pub mod collectives;
pub mod context;
pub mod data;
pub mod launch;
pub mod mappings;
pub mod offload;
pub mod parameters;
pub mod parity;
pub mod pipeline_parallel;
#[doc(hidden)]
pub mod precision;
pub mod prelude;
pub mod random;
pub mod sharded;
pub mod tensor_parallel;
pub mod topology;

pub use burn_megatron_comm::flight_recorder;
pub use launch::run;
pub use parameters::initialize;
