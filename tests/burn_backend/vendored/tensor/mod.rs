pub use super::*; // re-export test types

mod clone_invariance;
#[cfg(feature = "distributed")]
mod distributed;
mod extract_inplace;
#[cfg(feature = "std")]
mod multi_threads;

// Data types
mod bool;
mod float;
mod int;
