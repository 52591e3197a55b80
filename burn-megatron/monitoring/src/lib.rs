//! What is seen of a training run, without burn.
//!
//! - [`tensorboard`]: event files that TensorBoard reads, and [`scalars`], what is in them, named as Megatron-LM does
//! - [`prometheus`]: the last step's metrics over HTTP
//! - [`timers`]: how long the parts of a step take, over all ranks
//! - [`peak`]: what a device can do at most, and the share of it that training reaches
//! - [`nvtx`] and [`profiler`]: ranges and the captured steps, for Nsight Systems
//! - [`progress`]: the time to the end
//!
//! Nothing here ends training: what fails later than at the start is one warning.
#![warn(missing_docs)]

pub mod nvtx;
pub mod peak;
pub mod profiler;
pub mod progress;
pub mod prometheus;
pub mod scalars;
pub mod tensorboard;
pub mod timers;
