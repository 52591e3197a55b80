//! The launcher by itself, and the programs that it runs.

pub mod adapters;
pub mod families;
pub mod from_text;
pub mod generation;
pub mod imported;
pub mod launcher;
pub mod launchers;
pub mod serving;
