//! Tensor, sequence and data parallelism for the [burn](https://burn.dev) deep-learning framework.
//!
//! One process per rank. A program describes the layout ([`topology`]), joins the job ([`launch`]), connects its
//! groups ([`context`]), builds its model from parallel layers ([`tensor_parallel`]) or wraps any burn module
//! ([`data_parallel`]), trains ([`training`], [`data`]), and saves ([`checkpoint`]). Every layout starts from the same bits and trains to the
//! same loss.

pub mod checkpoint;
pub mod collectives;
pub mod context;
#[cfg(feature = "cuda")]
pub mod cuda;
pub mod data;
pub mod data_parallel;
pub mod flight_recorder;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod launch;
#[cfg(feature = "train")]
pub mod learner;
pub mod mappings;
#[doc(hidden)]
pub mod mutants;
pub mod optimizer;
pub mod parameters;
pub mod parity;
pub mod pipeline_parallel;
pub mod precision;
pub mod prelude;
pub mod random;
pub mod tensor_parallel;
pub mod topology;
pub mod training;

pub use launch::run;

/// The README's examples, compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
