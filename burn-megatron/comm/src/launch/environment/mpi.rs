//! The dialects of MPI's launchers: they say which rank a process is, but not where rank 0 is.

use std::net::Ipv4Addr;

use sha2::{Digest, Sha256};

use super::reader::{Job, Reader, invalid, present};
use super::{Environment, names, slurm};
use crate::launch::error::LaunchError;

/// The variables of an MPI's `mpirun`.
struct Dialect {
    /// The sign of it.
    rank: &'static str,
    world_size: &'static str,
    /// By either of two names.
    local_rank: [&'static str; 2],
    local_world_size: [&'static str; 2],
    /// The job's id, one per `mpirun`.
    job_ids: &'static [&'static str],
    /// The command and flag that set a variable of the ranks, as `mpirun -x`.
    passing: &'static str,
    /// The launcher's name in the id of a run.
    name: &'static str,
}

/// Open MPI 4 and 5, whose id is the first; the second is that of older ones.
const OPEN_MPI: Dialect = Dialect {
    rank: "OMPI_COMM_WORLD_RANK",
    world_size: "OMPI_COMM_WORLD_SIZE",
    local_rank: ["OMPI_COMM_WORLD_LOCAL_RANK"; 2],
    local_world_size: ["OMPI_COMM_WORLD_LOCAL_SIZE"; 2],
    job_ids: &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
    passing: "mpirun -x",
    name: "open-mpi",
};

/// Hydra, which is the `mpiexec` of MPICH, Intel MPI and MVAPICH, and PALS of HPE, whose names are the second ones. No
/// variable is the id of the job.
const HYDRA: Dialect = Dialect {
    rank: "PMI_RANK",
    world_size: "PMI_SIZE",
    local_rank: ["MPI_LOCALRANKID", "PMI_LOCAL_RANK"],
    local_world_size: ["MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"],
    job_ids: &[],
    passing: "mpiexec -genv",
    name: "hydra",
};

/// Returns this process's place in its `mpirun`, if it is one of several that `mpirun` started.
///
/// MASTER_ADDR is that of the environment (`mpirun -x MASTER_ADDR=...`), or the loopback address when all ranks are on
/// this host. MASTER_PORT likewise, or 20000 + (the first 8 bytes of the SHA-256 of the job's id, big endian) modulo
/// 10000.
pub(super) fn read(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Option<Environment>, LaunchError> {
    let mut dialects = [OPEN_MPI, HYDRA].into_iter();
    dialects
        .find_map(|dialect| read_dialect(&dialect, lookup).transpose())
        .transpose()
}

fn read_dialect(
    dialect: &Dialect,
    lookup: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Environment>, LaunchError> {
    let (rank, world_size) = (dialect.rank, dialect.world_size);
    let [local_rank, local_world_size] = [dialect.local_rank, dialect.local_world_size].map(|two| present(lookup, two));
    let place = [rank, world_size, local_rank, local_world_size];
    let reader = Reader {
        lookup,
        sign: rank,
        partners: &place,
    };
    // Slurm's own PMI has rank and size, too.
    let is_of_slurm = lookup(slurm::STEP_ID).is_some() && lookup(local_rank).is_none();
    if lookup(rank).is_none() || is_of_slurm || reader.is_alone([rank, world_size])? {
        return Ok(None);
    }
    let place = reader.place(place)?;
    let passing = dialect.passing;
    let master_addr = match reader.optional(names::MASTER_ADDR) {
        Some(address) => address,
        None if place.local_world_size == place.world_size => Ipv4Addr::LOCALHOST.to_string(),
        None => {
            return Err(invalid(
                local_world_size,
                place.local_world_size,
                format!(
                    "is below {world_size}={}, so the ranks are on several hosts, and mpirun does not say where rank 0 \
                     is; set MASTER_ADDR to the name or address of its host ({passing} MASTER_ADDR ...)",
                    place.world_size
                ),
            ));
        }
    };
    let run_id = dialect.job_ids.iter().find_map(|name| reader.optional(name));
    if run_id.is_none() && reader.optional(names::MASTER_PORT).is_none() {
        let ids = match dialect.job_ids {
            [] => String::new(),
            ids => format!(" ({})", ids.join(" or ")),
        };
        return Err(invalid(
            rank,
            place.rank,
            format!("a port cannot be derived without the job's id{ids}; set MASTER_PORT ({passing} MASTER_PORT ...)"),
        ));
    }
    let master_port = reader.port_or_derived(hash(run_id.as_deref().unwrap_or_default()))?;
    reader
        .environment(Job {
            place,
            master_addr,
            master_port,
            run_id: run_id.map(|id| format!("{}/{id}", dialect.name)),
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

    const LOCAL_RANK: &str = OPEN_MPI.local_rank[0];
    const LOCAL_WORLD_SIZE: &str = OPEN_MPI.local_world_size[0];

    /// Rank 2 of 4 on two hosts, with changes.
    fn parse(changes: &[(&str, Option<&str>)]) -> Result<Option<Environment>, String> {
        let variables = [
            (OPEN_MPI.rank, "2"),
            (OPEN_MPI.world_size, "4"),
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
            (OPEN_MPI.rank, Some("0")),
            (OPEN_MPI.world_size, Some("1")),
            (LOCAL_RANK, Some("0")),
            (LOCAL_WORLD_SIZE, Some("1")),
            ("SLURM_STEP_ID", None),
        ];
        assert_eq!(parse(&alone), Ok(None));
    }

    #[test]
    fn what_is_missing_or_wrong_is_named() {
        let cases = [
            (
                OPEN_MPI.rank,
                Some("4"),
                "must be below OMPI_COMM_WORLD_SIZE=4; valid: 0 to 3",
            ),
            (OPEN_MPI.world_size, None, ""),
            ("MASTER_PORT", Some("x"), "must be a port number; valid: 1 to 65535"),
        ];
        for case in cases {
            check_refusal(parse(&[(case.0, case.1)]), OPEN_MPI.rank, case);
        }
        let message = parse(&[("PMIX_NAMESPACE", None)]).unwrap_err();
        let expected = "OMPI_COMM_WORLD_RANK=\"2\": a port cannot be derived";
        assert!(message.contains(expected), "{message}");
    }

    /// Rank 2 of 4 under Hydra on one host, with changes.
    fn parse_hydra(changes: &[(&str, Option<&str>)]) -> Result<Option<Environment>, String> {
        let variables = [
            (HYDRA.rank, "2"),
            (HYDRA.world_size, "4"),
            ("MPI_LOCALRANKID", "2"),
            ("MPI_LOCALNRANKS", "4"),
            ("MASTER_PORT", "4000"),
        ];
        parse_changed(&variables, changes)
    }

    #[test]
    fn ranks_of_hydra_are_found() {
        let environment = parse_hydra(&[]).unwrap().unwrap();
        assert_eq!((environment.rank, environment.world_size), (2, 4));
        assert_eq!((environment.local_rank, environment.local_world_size), (2, 4));
        assert_eq!(
            (environment.master_addr.as_str(), environment.master_port),
            ("127.0.0.1", 4000)
        );
        let renamed = [
            ("MPI_LOCALRANKID", None),
            ("MPI_LOCALNRANKS", None),
            ("PMI_LOCAL_RANK", Some("2")),
            ("PMI_LOCAL_SIZE", Some("4")),
        ];
        assert_eq!(parse_hydra(&renamed).unwrap().unwrap(), environment);
        // Ranks of Slurm's own PMI are those of the step, here one of a single task.
        let slurm = [("MPI_LOCALRANKID", None), ("SLURM_STEP_ID", Some("0"))];
        let one_task = [slurm[0], slurm[1], ("SLURM_NTASKS", Some("1"))];
        assert_eq!(parse_hydra(&one_task), Ok(None));
        for one_process in [
            &[(HYDRA.rank, Some("0")), (HYDRA.world_size, Some("1"))][..],
            &[(HYDRA.rank, None)],
        ] {
            assert_eq!(parse_hydra(one_process), Ok(None));
        }
    }

    #[test]
    fn what_hydra_does_not_say_is_asked_for() {
        let message = parse_hydra(&[("MASTER_PORT", None)]).unwrap_err();
        let expected = "PMI_RANK=\"2\": a port cannot be derived without the job's id; set MASTER_PORT (mpiexec -genv \
                        MASTER_PORT ...)";
        assert!(message.contains(expected), "{message}");
        let message = parse_hydra(&[("MPI_LOCALNRANKS", None)]).unwrap_err();
        assert!(
            message.contains("MPI_LOCALNRANKS is not set although PMI_RANK is"),
            "{message}"
        );
        let message = parse_hydra(&[("MPI_LOCALNRANKS", Some("3"))]).unwrap_err();
        assert!(message.contains("(mpiexec -genv MASTER_ADDR ...)"), "{message}");
    }
}
