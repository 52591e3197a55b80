//! [`Mpi`]: the options of a group that goes over MPI.

use burn_megatron_comm::collectives::external::ConnectEngine;
use burn_megatron_comm::collectives::{EngineChoice, GroupOptions};

/// The options of a group that goes over MPI.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mpi;

impl GroupOptions for Mpi {
    fn engine(&self) -> EngineChoice {
        EngineChoice::Mpi
    }

    fn mpi_engine(&self) -> Option<ConnectEngine> {
        Some(crate::connect)
    }
}
