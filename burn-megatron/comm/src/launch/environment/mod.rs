//! [`Environment`]: what a launcher says to this process about its place in the job.
//!
//! Called first thing by every program; its absence means that the program is to launch its ranks itself. Three
//! dialects are read, the first that is there: torchrun's names (which our own launcher speaks, too), those of
//! [`mpi`], and those of [`slurm`], whose lists of hosts [`slurm_lists`] takes apart; all through a [`reader`].

mod mpi;
mod reader;
mod slurm;
mod slurm_lists;

use std::env;

pub use self::reader::host_alone;
use self::reader::{Reader, present};
pub(super) use self::reader::{job_token, port};
use super::error::LaunchError;
use super::identity::JobToken;

use super::variables as names;

/// Reads the variables of a launcher, if it has started this process.
type Read = fn(&dyn Fn(&str) -> Option<String>) -> Result<Option<Environment>, LaunchError>;

/// The first that finds a place counts.
const DIALECTS: [Read; 3] = [from_torchrun, mpi::read, slurm::read];

/// This process's place in the job, as its launcher gave it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Environment {
    /// This process's rank, below `world_size`.
    pub rank: usize,
    /// Number of ranks, at least 1.
    pub world_size: usize,
    /// This process's rank among those of its host, below `local_world_size`.
    pub local_rank: usize,
    /// Number of ranks on this host, at least 1 and at most `world_size`.
    pub local_world_size: usize,
    /// Name or address of the host of rank 0.
    pub master_addr: String,
    /// The launcher's port, at least 1.
    pub master_port: u16,
    /// The job's id, if the launcher gave one; else rank 0 makes one up and the store hands it out.
    pub job_id: Option<String>,
    /// The job's secret, if the launcher gave one; see [`Environment::token`].
    pub job_token: Option<JobToken>,
    /// Whether the launcher hosts this crate's store at `master_port`; else rank 0 hosts it at
    /// [`Environment::store_port`].
    pub store_hosted_elsewhere: bool,
    /// The port at which rank 0 hosts the store, if chosen by hand.
    pub chosen_store_port: Option<u16>,
    /// The host identity to use instead of this host's own.
    pub host: Option<String>,
    /// The launcher's id of the run, also after a restart: ours, torchrun's, or one made of the ids of Open MPI's or
    /// Slurm's job.
    pub run_id: Option<String>,
    /// How many times our launcher or torchrun has restarted the ranks, or Slurm has queued the job again.
    pub restart_count: Option<String>,
}

impl Environment {
    /// Returns this process's place in the job, or `None` when no launcher started this process.
    ///
    /// RANK is the sign of torchrun and of our own launcher, OMPI_COMM_WORLD_RANK that of Open MPI, PMI_RANK that of
    /// MPICH and Intel MPI, a SLURM_STEP_ID of `srun` that of Slurm, in this order: `mpirun` in a Slurm job sets the
    /// variables of both. An MPI job or a Slurm step of one process counts as no launcher, and so does a RANK of
    /// WORLD_SIZE 1 without LOCAL_WORLD_SIZE, as of a pod: such a process may start its ranks itself.
    ///
    /// # Errors
    /// A sign is there, and a variable that goes with it is missing or a value breaks a rule.
    pub fn detect() -> Result<Option<Environment>, LaunchError> {
        Environment::from_lookup(environment_variable)
    }

    /// Like [`Environment::detect`], with `lookup` in place of the process's environment.
    ///
    /// # Errors
    /// The same.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Environment>, LaunchError> {
        DIALECTS.iter().find_map(|read| read(&lookup).transpose()).transpose()
    }

    /// Returns the port of this crate's store.
    ///
    /// MASTER_PORT when the launcher hosts the store there. Else rank 0 hosts it, and torchrun's agent may already
    /// have its own store at MASTER_PORT, so it is BURN_MEGATRON_STORE_PORT, or MASTER_PORT + 1 when that is not set.
    ///
    /// # Errors
    /// MASTER_PORT is 65535 and BURN_MEGATRON_STORE_PORT is not set.
    pub fn store_port(&self) -> Result<u16, LaunchError> {
        if self.store_hosted_elsewhere {
            return Ok(self.master_port);
        }
        self.chosen_store_port
            .or_else(|| self.master_port.checked_add(1))
            .ok_or_else(|| {
                reader::invalid(
                    names::MASTER_PORT,
                    self.master_port,
                    "the store's port, MASTER_PORT + 1, would be above 65535; valid: at most 65534, \
                 or set BURN_MEGATRON_STORE_PORT",
                )
            })
    }

    /// Returns how many times the ranks have been started before.
    pub fn restarts(&self) -> u64 {
        let count = self.restart_count.as_deref();
        count.and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// Returns what tells this run from others, also after a restart; none if torchrun was not given an id.
    pub fn run(&self) -> Option<&str> {
        self.run_id.as_deref().filter(|id| *id != "none")
    }

    /// Returns whether torchrun or our own launcher has started this process: a pod or a node may have a RANK as well,
    /// but no LOCAL_WORLD_SIZE.
    pub fn has_rank() -> bool {
        let is_set = |name| environment_variable(name).is_some();
        is_set(names::RANK) && LOCAL_WORLD_SIZES.into_iter().any(is_set)
    }

    /// Returns the job's secret: BURN_MEGATRON_JOB_TOKEN, or else [`JobToken::derived`] from what the launcher gave.
    pub fn token(&self) -> JobToken {
        self.job_token.clone().unwrap_or_else(|| {
            let text = |value: &Option<String>| value.clone().unwrap_or_default();
            JobToken::derived(&text(&self.run_id), self.master_port, &text(&self.restart_count))
        })
    }
}

fn environment_variable(name: &str) -> Option<String> {
    env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// The ranks of this host, by torchrun and by DeepSpeed's launcher.
const LOCAL_WORLD_SIZES: [&str; 2] = [names::LOCAL_WORLD_SIZE, "LOCAL_SIZE"];

fn from_torchrun(lookup: &dyn Fn(&str) -> Option<String>) -> Result<Option<Environment>, LaunchError> {
    let reader = Reader {
        lookup,
        sign: names::RANK,
        partners: &[
            names::RANK,
            names::WORLD_SIZE,
            names::LOCAL_RANK,
            names::LOCAL_WORLD_SIZE,
            names::MASTER_ADDR,
            names::MASTER_PORT,
        ],
    };
    if reader.optional(names::RANK).is_none() {
        return Ok(None);
    }
    let local_world_size = present(lookup, LOCAL_WORLD_SIZES);
    let is_alone = reader.is_alone([names::RANK, names::WORLD_SIZE])?;
    if lookup(local_world_size).is_none() {
        return if is_alone {
            Ok(None)
        } else {
            Err(LaunchError::PodOrRank)
        };
    }
    let place = reader.place([names::RANK, names::WORLD_SIZE, names::LOCAL_RANK, local_world_size])?;
    let master_addr = reader.required(names::MASTER_ADDR)?;
    let master_port = port(names::MASTER_PORT, reader.required(names::MASTER_PORT)?)?;
    reader
        .environment(reader::Job {
            place,
            master_addr,
            master_port,
            run_id: reader.optional(names::RUN).or_else(|| reader.optional(names::RUN_ID)),
            restart_count: reader
                .optional(names::RESTARTS)
                .or_else(|| reader.optional(names::RESTART_COUNT)),
        })
        .map(Some)
}

/// What fuzzers call in addition to [`Environment::from_lookup`].
#[cfg(feature = "fuzzing")]
pub(super) mod fuzzing {
    use super::slurm_lists::{first_host, tasks_per_node};

    /// Reads both of Slurm's short forms from any text.
    pub fn hosts_and_tasks(text: &str, node: usize) {
        if let Ok(host) = first_host(text) {
            assert!(
                !host.is_empty() && host.len() <= text.len(),
                "{text:?} begins with host {host:?}"
            );
        }
        if let Ok((here, total)) = tasks_per_node(text, node) {
            assert!(
                0 < here && here <= total,
                "{text:?} has {here} of {total} tasks on node {node}"
            );
        }
    }
}

#[cfg(test)]
mod tests;
