//! Parts that the programs share: flags, and a training session on one rank.

mod adapting;
pub mod arguments;
pub mod carried_tokenizer;
pub mod checkpointing;
pub mod comparing;
pub mod deepspeed;
pub mod device;
pub mod evaluating;
pub mod figures;
pub mod generating;
pub mod json_lines;
pub mod launching;
pub mod layout;
mod loading;
pub mod measured_run;
pub mod memory_plan;
pub mod monitoring;
pub mod pretraining;
pub mod progress;
pub mod run_tokenizer;
pub mod saved_state;
pub mod serving;
pub mod session;
pub mod spots;
pub mod step_observer;
pub mod svg;
mod terminal;
pub mod timeline;

/// The README's examples, compiled with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;
