//! The control flow of a kernel: basic blocks, loops, and the best path through a loop.

mod graph;
mod loops;
mod path;

pub use graph::{Block, Graph};
pub use loops::{Loop, loops};
pub use path::{Route, best_path};
