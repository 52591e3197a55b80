//! The targets of the connections between ranks; see [`crate::fuzzing`].

pub use super::host::tcp::fuzzing::{call_descriptor, call_descriptor_seeds};
