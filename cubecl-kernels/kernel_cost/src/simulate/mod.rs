//! A cycle model of one multiprocessor that runs a kernel's hot path, from its machine code alone.
//!
//! Every warp of the resident blocks runs the path in order. Each sub-partition issues at most one instruction per
//! cycle. A warp's next instruction waits for the stall count that `ptxas` wrote into the previous one, for the
//! scoreboards of its wait mask, and for its pipe. Shared memory is one port of a wavefront per cycle; sums in memory
//! pass another, as wide as the multiprocessor's part of the L2 cache. A barrier waits for the block's warps.
//!
//! Not modelled: misses in the caches of instructions, bank conflicts, the waits of copies that were issued an
//! iteration before, clocks below the nominal one. Latencies are assumed: see [`latency`].

mod latency;
mod multiprocessor;
mod phases;
mod plan;
#[cfg(test)]
mod tests;

pub use latency::latency;
pub use multiprocessor::Policy;
pub use phases::{PHASES, Residency, Utilisation, matrix_utilisation};
