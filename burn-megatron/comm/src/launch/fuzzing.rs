//! What must hold whatever the environment says, and the targets of the store; see [`crate::fuzzing`].

pub use super::handshake::MAGIC;
pub use super::handshake::fuzzing::{handshake, handshake_seeds};
pub use super::store::fuzzing::{store_protocol, store_protocol_seeds, store_server, store_server_seeds};

use super::environment::{Environment, fuzzing as lists};
use super::variables;
use crate::limits::MAX_WORLD_SIZE;

/// The variables that the environment's dialects read.
const NAMES: [&str; 42] = [
    variables::RANK,
    variables::WORLD_SIZE,
    variables::LOCAL_RANK,
    variables::LOCAL_WORLD_SIZE,
    variables::MASTER_ADDR,
    variables::MASTER_PORT,
    variables::JOB_ID,
    variables::JOB_TOKEN,
    variables::STORE_HOSTED,
    variables::STORE_PORT,
    variables::HOST,
    variables::RUN_ID,
    variables::RESTART_COUNT,
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "PMIX_NAMESPACE",
    "OMPI_MCA_ess_base_jobid",
    "SLURM_STEP_ID",
    "SLURM_JOB_ID",
    "SLURM_PROCID",
    "SLURM_LOCALID",
    "SLURM_NODEID",
    "SLURM_STEP_NODELIST",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_NTASKS",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_RESTART_COUNT",
    "BURN_MEGATRON_INTERFACE",
    variables::RUN,
    variables::RESTARTS,
    "LOCAL_SIZE",
    "PMI_RANK",
    "PMI_SIZE",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "PMI_LOCAL_RANK",
    "PMI_LOCAL_SIZE",
    "OTHER",
    "",
];

/// A place in the job is whole, or an error that gives nothing of the secret away. One line per variable: the byte of
/// its number in [`NAMES`], then its value.
pub fn environment(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let lookup = |name: &str| {
        text.lines().find_map(|line| {
            let (number, value) = line.split_at_checked(1)?;
            let index = usize::from(number.as_bytes()[0].wrapping_sub(b'A'));
            (NAMES.get(index) == Some(&name)).then(|| value.to_string())
        })
    };
    // A secret that stands nowhere else in the input, with a character that no message has of its own.
    let secret = lookup(variables::JOB_TOKEN).filter(|token| token.len() >= 4 && token.contains('~'));
    let secret = secret.filter(|token| text.matches(token.as_str()).count() == 1);
    let check_hidden = |shown: String| {
        let is_hidden = secret.as_ref().is_none_or(|secret| !shown.contains(secret.as_str()));
        assert!(is_hidden, "the secret is shown: {shown}");
    };
    match Environment::from_lookup(lookup) {
        Ok(None) => {}
        Ok(Some(found)) => {
            assert!(
                found.rank < found.world_size && found.world_size <= MAX_WORLD_SIZE,
                "{found:?}"
            );
            assert!(found.local_rank < found.local_world_size, "{found:?}");
            assert!(found.local_world_size <= found.world_size, "{found:?}");
            assert!(found.master_port > 0 && !found.master_addr.is_empty(), "{found:?}");
            assert!(found.store_port().is_ok_and(|port| port > 0), "{found:?}");
            assert!(!found.token().as_bytes().is_empty());
            check_hidden(format!("{found:?}"));
        }
        Err(error) => check_hidden(error.to_string()),
    }
    for line in text.lines().take(4) {
        lists::hosts_and_tasks(line, data.len());
        super::network::fuzz_selection(line);
    }
}

/// A process under each launcher.
pub fn environment_seeds() -> Vec<Vec<u8>> {
    let lines = |values: &[(&str, &str)]| {
        let line = |(name, value): &(&str, &str)| {
            let index = NAMES
                .iter()
                .position(|known| known == name)
                .expect("a name that is read");
            format!("{}{value}\n", char::from(b'A' + index as u8))
        };
        values.iter().map(line).collect::<String>().into_bytes()
    };
    vec![
        lines(&[
            ("RANK", "1"),
            ("WORLD_SIZE", "4"),
            ("LOCAL_RANK", "1"),
            ("LOCAL_WORLD_SIZE", "2"),
            ("MASTER_ADDR", "node0"),
            ("MASTER_PORT", "29500"),
            (variables::JOB_TOKEN, "a secret of enough bytes~"),
            (variables::JOB_ID, "0123456789abcdef"),
            (variables::STORE_HOSTED, "1"),
        ]),
        lines(&[
            ("OMPI_COMM_WORLD_RANK", "2"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "0"),
            ("OMPI_COMM_WORLD_LOCAL_SIZE", "4"),
            ("PMIX_NAMESPACE", "prterun-1"),
        ]),
        lines(&[
            ("PMI_RANK", "2"),
            ("PMI_SIZE", "4"),
            ("MPI_LOCALRANKID", "0"),
            ("MPI_LOCALNRANKS", "2"),
            ("MASTER_ADDR", "[::1]"),
            ("MASTER_PORT", "29500"),
        ]),
        lines(&[
            ("SLURM_STEP_NODELIST", "dgx[03-05,9],gpu7"),
            ("SLURM_STEP_TASKS_PER_NODE", "2(x3),1"),
            ("SLURM_STEP_ID", "3"),
            ("SLURM_JOB_ID", "4711"),
            ("SLURM_PROCID", "6"),
            ("SLURM_LOCALID", "0"),
            ("SLURM_NODEID", "3"),
            ("SLURM_STEP_NUM_TASKS", "7"),
        ]),
        b"10.0.0.0/8\nfe80::1%eth0\n::1\neth0".to_vec(),
    ]
}
