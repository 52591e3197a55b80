//! How each parameter is laid out over the ranks: its logical shape, and which part of it is here; patterns of names.

mod layout;
mod name_pattern;

pub use layout::{Distribution, Placement, Run};
pub(crate) use name_pattern::NamePattern;
