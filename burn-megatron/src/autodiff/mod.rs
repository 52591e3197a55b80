//! Ends of graphs, and hooks on parameters: to take gradients out of burn's graphs, and to put gradients in.

mod ends;
mod gradient_sink;
mod hook;

pub use ends::{GradientSlot, enter, leave};
pub use gradient_sink::GradientSink;
pub use hook::{anchors, hook};
