//! Open MPI's dialect, 4 and 5: `mpirun` says which rank a process is, but not where rank 0 is.

use std::net::Ipv4Addr;

use sha2::{Digest, Sha256};

use super::reader::{Job, Reader, invalid};
use super::{Environment, names};
use crate::launch::error::LaunchError;

const RANK: &str = "OMPI_COMM_WORLD_RANK";
const WORLD_SIZE: &str = "OMPI_COMM_WORLD_SIZE";
const LOCAL_RANK: &str = "OMPI_COMM_WORLD_LOCAL_RANK";
const LOCAL_WORLD_SIZE: &str = "OMPI_COMM_WORLD_LOCAL_SIZE";
const PLACE: [&str; 4] = [RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE];
/// The job's id, one per `mpirun`: of Open MPI 4 and 5, and of older ones.
const JOB_IDS: [&str; 2] = ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"];

/// Returns this process's place in its `mpirun`, if it is one of several that `mpirun` started.
///
/// MASTER_ADDR is that of the environment (`mpirun -x MASTER_ADDR=...`), or the loopback address when all ranks are on
/// this host. MASTER_PORT likewise, or 20000 + (the first 8 bytes of the SHA-256 of the job's id, big endian) modulo
/// 10000.
pub(super) fn read(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Option<Environment>, LaunchError> {
    let reader = Reader {
        lookup,
        sign: RANK,
        partners: &PLACE,
    };
    if reader.optional(RANK).is_none() {
        return Ok(None);
    }
    let place = reader.place(PLACE)?;
    if place.world_size == 1 {
        return Ok(None);
    }
    let master_addr = match reader.optional(names::MASTER_ADDR) {
        Some(address) => address,
        None if place.local_world_size == place.world_size => Ipv4Addr::LOCALHOST.to_string(),
        None => {
            return Err(invalid(
                LOCAL_WORLD_SIZE,
                place.local_world_size,
                format!(
                    "is below {WORLD_SIZE}={}, so the ranks are on several hosts, and mpirun does not say where rank 0 \
                     is; set MASTER_ADDR to the name or address of its host (mpirun -x MASTER_ADDR=...)",
                    place.world_size
                ),
            ));
        }
    };
    let run_id = JOB_IDS.into_iter().find_map(|name| reader.optional(name));
    let has_port = reader.optional(names::MASTER_PORT).is_some();
    if run_id.is_none() && !has_port {
        return Err(invalid(
            RANK,
            place.rank,
            format!(
                "a port cannot be derived without the job's id ({}); set MASTER_PORT (mpirun -x MASTER_PORT=...)",
                JOB_IDS.join(" or ")
            ),
        ));
    }
    let master_port = reader.port_or_derived(hash(run_id.as_deref().unwrap_or_default()))?;
    reader
        .environment(Job {
            place,
            master_addr,
            master_port,
            run_id: run_id.map(|id| format!("open-mpi/{id}")),
            restart_count: None,
        })
        .map(Some)
}

fn hash(text: &str) -> u64 {
    let digest = Sha256::digest(text.as_bytes());
    digest[..8].iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{check_refusal, parse_changed};
    use super::*;

    /// Rank 2 of 4 on two hosts, with changes.
    fn parse(changes: &[(&str, Option<&str>)]) -> Result<Option<Environment>, String> {
        let variables = [
            (RANK, "2"),
            (WORLD_SIZE, "4"),
            (LOCAL_RANK, "0"),
            (LOCAL_WORLD_SIZE, "2"),
            ("PMIX_NAMESPACE", "1234567"),
            ("MASTER_ADDR", "node7"),
            // mpirun within a Slurm job: Open MPI wins.
            ("SLURM_STEP_ID", "0"),
            ("SLURM_PROCID", "1"),
        ];
        parse_changed(&variables, changes)
    }

    #[test]
    fn place_address_and_port_are_found() {
        let environment = parse(&[]).unwrap().unwrap();
        assert_eq!((environment.rank, environment.world_size), (2, 4));
        assert_eq!((environment.local_rank, environment.local_world_size), (0, 2));
        assert_eq!(environment.master_addr, "node7");
        assert!((20000..30000).contains(&environment.master_port));
        assert_eq!(environment.run_id.as_deref(), Some("open-mpi/1234567"));
        let other_job = parse(&[("PMIX_NAMESPACE", Some("prterun-node7-99@1"))])
            .unwrap()
            .unwrap();
        assert_ne!(environment.master_port, other_job.master_port);
        assert_ne!(environment.token(), other_job.token());
        let chosen = parse(&[("MASTER_PORT", Some("4000"))]).unwrap().unwrap();
        assert_eq!((chosen.master_port, chosen.store_port().unwrap()), (4000, 4001));
        let older = parse(&[("PMIX_NAMESPACE", None), ("OMPI_MCA_ess_base_jobid", Some("1234567"))]);
        assert_eq!(older.unwrap().unwrap(), environment);
    }

    #[test]
    fn address_is_loopback_on_one_host_and_asked_for_on_several() {
        let one_host = [
            (LOCAL_WORLD_SIZE, Some("4")),
            (LOCAL_RANK, Some("2")),
            ("MASTER_ADDR", None),
        ];
        assert_eq!(parse(&one_host).unwrap().unwrap().master_addr, "127.0.0.1");
        let message = parse(&[("MASTER_ADDR", None)]).unwrap_err();
        assert!(
            message
                .starts_with("environment variable OMPI_COMM_WORLD_LOCAL_SIZE=\"2\": is below OMPI_COMM_WORLD_SIZE=4")
                && message.contains("set MASTER_ADDR to the name or address of its host"),
            "{message}"
        );
    }

    #[test]
    fn torchrun_names_win() {
        let changes = [
            ("RANK", Some("0")),
            ("WORLD_SIZE", Some("8")),
            ("LOCAL_RANK", Some("0")),
            ("LOCAL_WORLD_SIZE", Some("8")),
            ("MASTER_PORT", Some("29500")),
        ];
        assert_eq!(parse(&changes).unwrap().unwrap().world_size, 8);
    }

    #[test]
    fn one_process_is_no_rank() {
        let alone = [
            (RANK, Some("0")),
            (WORLD_SIZE, Some("1")),
            (LOCAL_RANK, Some("0")),
            (LOCAL_WORLD_SIZE, Some("1")),
            ("SLURM_STEP_ID", None),
        ];
        assert_eq!(parse(&alone), Ok(None));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let cases = [
            (RANK, Some("4"), "must be below OMPI_COMM_WORLD_SIZE=4; valid: 0 to 3"),
            (WORLD_SIZE, None, ""),
            ("MASTER_PORT", Some("x"), "must be a port number; valid: 1 to 65535"),
        ];
        for case in cases {
            check_refusal(parse(&[(case.0, case.1)]), RANK, case);
        }
        let message = parse(&[("PMIX_NAMESPACE", None)]).unwrap_err();
        let expected = "OMPI_COMM_WORLD_RANK=\"2\": a port cannot be derived";
        assert!(message.contains(expected), "{message}");
    }
}
