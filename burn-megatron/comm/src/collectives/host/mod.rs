//! Engines for host memory: shared memory inside a node, TCP between nodes, and both together.
//!
//! `engine_choice` chooses one, and `connecting` connects it.

pub(super) mod hierarchical;
pub(super) mod nodes;
mod parts;
pub(super) mod shared_memory;
pub(super) mod tcp;
