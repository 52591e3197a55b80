//! What can be tested without `mpirun`; the rest runs under it, in the workspace's tests.

use crate::WithMpi;
use burn_megatron_comm::collectives::tests::{SHORT_TIMEOUT, run_ranks};
use burn_megatron_comm::collectives::{EngineChoice, ProcessGroup};

#[test]
fn a_process_without_mpirun_gets_an_error() {
    run_ranks(2, SHORT_TIMEOUT, |world| {
        let error = ProcessGroup::connect(&world, "all", &[0, 1], &WithMpi(EngineChoice::Mpi)).unwrap_err();
        let expected = "group all [0, 1]: this process was not started by mpirun (none of OMPI_COMM_WORLD_RANK, \
                        PMIX_RANK, PMI_RANK is set), which the engine over MPI needs";
        assert_eq!(error.to_string(), expected);
    });
}
