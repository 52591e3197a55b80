//! What an engine that another crate makes needs of a group. For burn-megatron-mpi: no version promises that it stays.
//!
//! [`GroupOptions::mpi_engine`](super::GroupOptions::mpi_engine) gives a group the function that connects the engine.

use std::sync::Arc;

use super::engine::Engine;
use super::error::CollectiveError;
use crate::launch::World;

pub use super::health::{GroupHealth, WaitDeadline};
pub use super::reduce::reduce_in_place;
pub use super::rendezvous::Rendezvous;

/// Returns the engine of a group of two or more ranks, connected. Collective over the ranks, all of which have chosen
/// this engine. Fails where they cannot be connected.
pub type ConnectEngine = fn(&World, &Arc<GroupHealth>, &Rendezvous) -> Result<Arc<dyn Engine>, CollectiveError>;
