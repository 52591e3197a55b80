//! Data, tensor, sequence and pipeline parallelism for the [burn](https://burn.dev) deep-learning framework, in the
//! manner of Megatron-LM.
//!
//! A rank is an operating-system process; a program starts itself once per rank, or is started by torchrun, Slurm or
//! Open MPI. Every layout of ranks starts from the same bits and trains to the same loss as one rank.
//!
//! | You have | Use |
//! |---|---|
//! | a program that trains on one device | [`run`] around its training, which gives each rank its [`World`](launch::World) |
//! | any burn module, and samples for several ranks | [`DistributedDataParallel`](data_parallel::DistributedDataParallel): gradients are averaged during the backward pass |
//! | an optimizer whose state is too large | [`ShardedOptimizer`](optimizer::ShardedOptimizer): each rank holds and updates a part |
//! | any burn model, and a plan of which parameters are cut | [`sharded`] |
//! | a model of burn's `TransformerEncoder`, `TransformerDecoder` or their parts | [`ParallelTransformerEncoder`](tensor_parallel::ParallelTransformerEncoder) and its like, made of burn's by `from_encoder` |
//! | matrices that are too large | [`ColumnParallelLinear`](tensor_parallel::ColumnParallelLinear) and [`RowParallelLinear`](tensor_parallel::RowParallelLinear), new or made of burn's `Linear`; the other layers of [`tensor_parallel`] |
//! | more layers than fit | [`PipelineStage`](pipeline_parallel::PipelineStage) for parts of the model, run by a [`PipelineExecutor`](pipeline_parallel::PipelineExecutor) |
//! | dropout that must be the same in every layout | [`Dropout`](random::Dropout), drawn by coordinates instead of by a process-wide generator |
//! | a run that stops and resumes, with other ranks | [`CheckpointWriter`](checkpoint::CheckpointWriter), [`snapshot`](training::snapshot) and [`restore`](training::restore) |
//! | a training loop with collectives of its own | the [`ProcessGroup`](collectives::ProcessGroup)s of a [`ParallelContext`](context::ParallelContext), and [`mappings`] for activations |
//! | a program with burn-train's `Learner` | [`ParallelLearner`](learner::ParallelLearner), with loaders from [`shard_loader`](data::shard_loader()) |
//! | a loop of your own with `GradientsParams` | [`average_gradients`](data_parallel::average_gradients) |
//! | a language model | [`Trainer`](training::Trainer): schedules, micro-batches, clipping, mixed precision and metrics |
//! | doubts whether a layout computes what one rank does | [`sharded::compare`](sharded::compare()) for a program of one's own; [`parity`] |
//!
//! The sizes of the axes are given by [`ParallelConfig`](topology::ParallelConfig). Which data-parallel ranks there are
//! follows from them and from the number of ranks.
//!
//! # Example
//!
//! ```
//! use burn::nn::{Linear, LinearConfig};
//! use burn::optim::AdamWConfig;
//! use burn::prelude::*;
//! use burn_megatron::prelude::*;
//!
//! const BATCH: usize = 8;
//!
//! fn main() -> std::process::ExitCode {
//!     // The number of ranks: 2, 4 or 8 train to the same losses.
//!     burn_megatron::run(1, train)
//! }
//!
//! fn train(world: &World) -> Result<(), Box<dyn std::error::Error>> {
//!     let context = ParallelConfig::new().init(world)?;
//!     let device = Device::flex().autodiff();
//!     device.seed(1);
//!     let model = LinearConfig::new(2, 1).init(&device);
//!     let mut model = DistributedDataParallel::new(model, &context, DataParallelConfig::new())?;
//!     let mut optimizer = AdamWConfig::new().init();
//!     let mut losses = Vec::new();
//!     for step in 0..40 {
//!         // This rank's samples of the batch. What is to be learned is 2x - y.
//!         let samples = context.data_shard(step * BATCH..(step + 1) * BATCH)?;
//!         let [x, y] = [0.7, 1.3].map(|frequency| {
//!             let values: Vec<f32> = samples.clone().map(|sample| (sample as f32 * frequency).sin()).collect();
//!             Tensor::<2>::from_data(TensorData::new(values, [samples.len(), 1]), &device)
//!         });
//!         let input = Tensor::cat(vec![x.clone(), y.clone()], 1);
//!
//!         // Forward, backward and update; the gradients, and the loss, are means over all ranks.
//!         let loss = model.train_step(0.1, &mut optimizer, |model: Linear| {
//!             (model.forward(input) - (x * 2.0 - y)).powi_scalar(2).mean()
//!         })?;
//!         losses.push(loss.into_scalar::<f32>());
//!     }
//!     assert!(losses[39] < 0.1 * losses[0], "from {} to {}", losses[0], losses[39]);
//!     Ok(())
//! }
//! ```
//!
//! # Devices
//!
//! Layers, wrappers and collectives run on burn's `Device::flex()`, and on `Device::cuda(index)` with the feature
//! `cuda`, or `Device::wgpu` and `Device::vulkan` with theirs: a model is where its device is.
//!
//! # Features
//!
//! | Feature | On by default | What it adds |
//! |---|---|---|
//! | `checkpoint` | yes | checkpoints that any layout reads, in safetensors files |
//! | `tcp` | yes | several ranks: the launcher, the store where ranks meet (tokio), and TCP between hosts |
//! | `slot` | no | [`sharded`]: models that know nothing of parallelism, by a plan; a program's `Cargo.toml` needs a line in `[patch.crates-io]` |
//! | `dataset` | no | burn's data loaders by rank |
//! | `learner` | no | burn-train's `Learner` on many ranks |
//! | `trainer` | no | the training loop for language models, with data sets and the byte tokenizer |
//! | `parity` | no | recordings of two runs, to compare them |
//! | `x86-v4` | no | AVX-512 in products and fused operations, chosen at run time where the processor has it; without it AVX2 |
//! | `cuda` | no | ranks on NVIDIA's GPUs, with matrix products by cuBLASLt and over NCCL; a build needs neither CUDA nor a GPU |
//! | `wgpu`, `vulkan` | no | ranks on GPUs through wgpu, or on what speaks Vulkan, through host memory |
//! | `kernel-cache` | no | compiled kernels are kept from one start of a program to the next; a build needs libclang |
#![warn(missing_docs)]
// The documentation names what every feature adds.
#![cfg_attr(
    not(all(
        feature = "checkpoint",
        feature = "parity",
        feature = "learner",
        feature = "slot",
        feature = "trainer"
    )),
    allow(rustdoc::broken_intra_doc_links)
)]
// Placed models share much with the layers, which alone do not need all of it.
#![cfg_attr(not(feature = "slot"), allow(dead_code, unused_imports))]

pub mod autodiff;
#[cfg(feature = "checkpoint")]
pub mod checkpoint;
pub mod collectives;
pub mod context;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod data;
pub mod data_parallel;
mod device_memory;
pub mod launch;
#[cfg(feature = "learner")]
pub mod learner;
pub mod mappings;
pub mod offload;
pub mod optimizer;
pub mod parameters;
pub mod parity;
pub mod pipeline_parallel;
#[doc(hidden)]
pub mod precision;
pub mod prelude;
pub mod random;
#[cfg(feature = "slot")]
pub mod sharded;
pub mod tensor_parallel;
pub mod topology;
pub mod training;

// Where what burn derives for `RecordState` looks for them.
use burn::optim::{RecordState, StateSink, StateSource, join_path};

pub use burn_megatron_comm::flight_recorder;
pub use launch::run;
pub use parameters::initialize;

/// The examples of the package's README, compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// The programs of the guide, likewise.
#[cfg(doctest)]
#[doc = include_str!("../docs/guide.md")]
struct Guide;
