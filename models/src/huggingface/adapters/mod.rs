//! Low-rank adapters of a model's linear layers, as peft has them: which layers have one, its files, and the weights
//! with what an adapter adds to them.
//!
//! An adapter belongs to a projection as Hugging Face's files have it. Several of these may be one matrix here, which
//! then has an adapter for each.

mod config;
mod keys;
mod merge;
mod peft;
mod sites;
#[cfg(test)]
mod tests;

pub use config::AdapterConfig;
pub use merge::add_adapters;
pub use peft::{AdapterFiles, export_adapters};
pub use sites::{AdapterSite, factors, linear_layers};
