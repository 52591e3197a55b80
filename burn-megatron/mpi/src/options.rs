//! [`WithMpi`]: the options of a group that may go over MPI.

use burn_megatron_comm::collectives::external::ConnectEngine;
use burn_megatron_comm::collectives::{EngineChoice, GroupOptions};

/// A choice of engines, MPI's among them: `WithMpi(EngineChoice::Mpi)` chooses it, and with
/// `WithMpi(EngineChoice::Auto)` `BURN_MEGATRON_ENGINE=mpi` does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WithMpi(pub EngineChoice);

impl GroupOptions for WithMpi {
    fn engine(&self) -> EngineChoice {
        self.0
    }

    fn mpi_engine(&self) -> Option<ConnectEngine> {
        Some(crate::connect)
    }
}
