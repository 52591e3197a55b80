//! [`Environment`]: what a launcher told this process about its place in the job, in torchrun's variables.
//!
//! Called first thing by every program; its absence means that the program is to launch its ranks itself.

use std::env;
use std::str::FromStr;

use super::error::LaunchError;
use super::identity::{JobToken, MIN_TOKEN_BYTES, is_job_id};

/// Names of the environment variables that this module reads; the local launcher sets all of them but the last four.
pub mod variables {
    /// This process's rank in the job.
    pub const RANK: &str = "RANK";
    /// Number of ranks in the job.
    pub const WORLD_SIZE: &str = "WORLD_SIZE";
    /// This process's rank among those of its host.
    pub const LOCAL_RANK: &str = "LOCAL_RANK";
    /// Number of ranks on this host.
    pub const LOCAL_WORLD_SIZE: &str = "LOCAL_WORLD_SIZE";
    /// Name or address of the host of rank 0.
    pub const MASTER_ADDR: &str = "MASTER_ADDR";
    /// Port of the launcher's store; see [`Environment::store_port`](super::Environment::store_port).
    pub const MASTER_PORT: &str = "MASTER_PORT";
    /// The job's id: 16 hexadecimal digits, lower case.
    pub const JOB_ID: &str = "BURN_MEGATRON_JOB_ID";
    /// The job's secret: any text of 16 bytes or more.
    pub const JOB_TOKEN: &str = "BURN_MEGATRON_JOB_TOKEN";
    /// `1` when the launcher hosts this crate's store at MASTER_PORT, so that rank 0 need not.
    pub const STORE_HOSTED: &str = "BURN_MEGATRON_STORE_HOSTED";
    /// Port at which rank 0 hosts the store; MASTER_PORT + 1 unless set.
    pub const STORE_PORT: &str = "BURN_MEGATRON_STORE_PORT";
    /// This host's identity, instead of host name and boot id: lets a test pretend that ranks are on several hosts.
    pub const HOST: &str = "BURN_MEGATRON_HOST";
    /// torchrun's id of the run.
    pub const RUN_ID: &str = "TORCHELASTIC_RUN_ID";
    /// How many times torchrun has restarted the ranks.
    pub const RESTART_COUNT: &str = "TORCHELASTIC_RESTART_COUNT";
}

use variables as names;

/// Variables that a launcher sets together.
const PARTNERS: [&str; 6] = [
    names::RANK,
    names::WORLD_SIZE,
    names::LOCAL_RANK,
    names::LOCAL_WORLD_SIZE,
    names::MASTER_ADDR,
    names::MASTER_PORT,
];

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
    /// torchrun's id of the run.
    pub run_id: Option<String>,
    /// torchrun's count of restarts.
    pub restart_count: Option<String>,
}

impl Environment {
    /// Returns this process's place in the job, or `None` when RANK is not set: no launcher started this process.
    ///
    /// # Errors
    /// RANK is set, and a partner variable is missing or a value breaks a rule.
    pub fn detect() -> Result<Option<Environment>, LaunchError> {
        Environment::from_lookup(|name| env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    /// Like [`Environment::detect`], with `lookup` in place of the process's environment.
    ///
    /// # Errors
    /// The same.
    pub fn from_lookup(lookup: impl Fn(&str) -> Option<String>) -> Result<Option<Environment>, LaunchError> {
        if lookup(names::RANK).is_none() {
            return Ok(None);
        }
        let world_size = at_least_one(names::WORLD_SIZE, &lookup)?;
        let rank = index_below(names::RANK, (names::WORLD_SIZE, world_size), &lookup)?;
        let local_world_size = at_least_one(names::LOCAL_WORLD_SIZE, &lookup)?;
        if local_world_size > world_size {
            return Err(invalid(
                names::LOCAL_WORLD_SIZE,
                local_world_size,
                format!("must be at most WORLD_SIZE={world_size}; valid: 1 to {world_size}"),
            ));
        }
        let local_rank = index_below(names::LOCAL_RANK, (names::LOCAL_WORLD_SIZE, local_world_size), &lookup)?;
        let master_addr = required(names::MASTER_ADDR, &lookup)?;
        if master_addr.is_empty() {
            return Err(invalid(
                names::MASTER_ADDR,
                "",
                "must be the name or address of the host of rank 0",
            ));
        }
        let master_port = port(names::MASTER_PORT, required(names::MASTER_PORT, &lookup)?)?;
        let chosen_store_port = lookup(names::STORE_PORT)
            .map(|value| port(names::STORE_PORT, value))
            .transpose()?;
        let environment = Environment {
            rank,
            world_size,
            local_rank,
            local_world_size,
            master_addr,
            master_port,
            job_id: lookup(names::JOB_ID).map(job_id).transpose()?,
            job_token: lookup(names::JOB_TOKEN).map(job_token).transpose()?,
            store_hosted_elsewhere: flag(names::STORE_HOSTED, &lookup)?,
            chosen_store_port,
            host: lookup(names::HOST).map(host).transpose()?,
            run_id: lookup(names::RUN_ID),
            restart_count: lookup(names::RESTART_COUNT),
        };
        environment.store_port()?; // says at once that there is no port above 65535
        Ok(Some(environment))
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
                invalid(
                    names::MASTER_PORT,
                    self.master_port,
                    "the store's port, MASTER_PORT + 1, would be above 65535; valid: at most 65534, \
                 or set BURN_MEGATRON_STORE_PORT",
                )
            })
    }

    /// Returns the job's secret: BURN_MEGATRON_JOB_TOKEN, or else [`JobToken::derived`] from torchrun's variables.
    pub fn token(&self) -> JobToken {
        self.job_token.clone().unwrap_or_else(|| {
            let text = |value: &Option<String>| value.clone().unwrap_or_default();
            JobToken::derived(&text(&self.run_id), self.master_port, &text(&self.restart_count))
        })
    }
}

/// Returns the port that `value` names; also used by the launcher, for a MASTER_PORT set by hand.
pub(super) fn port(name: &'static str, value: String) -> Result<u16, LaunchError> {
    match value.parse::<u16>() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(invalid(name, value, "must be a port number; valid: 1 to 65535")),
    }
}

fn invalid(name: &'static str, value: impl ToString, rule: impl Into<String>) -> LaunchError {
    LaunchError::InvalidVariable {
        name,
        value: value.to_string(),
        rule: rule.into(),
    }
}

fn required(name: &'static str, lookup: impl Fn(&str) -> Option<String>) -> Result<String, LaunchError> {
    lookup(name).ok_or_else(|| LaunchError::MissingVariable {
        name,
        all: PARTNERS.join(", "),
    })
}

fn number<T: FromStr>(name: &'static str, value: &str, valid: &str) -> Result<T, LaunchError> {
    value
        .parse()
        .map_err(|_| invalid(name, value, format!("must be a whole number; valid: {valid}")))
}

fn at_least_one(name: &'static str, lookup: impl Fn(&str) -> Option<String>) -> Result<usize, LaunchError> {
    let value = required(name, lookup)?;
    match number(name, &value, "1 or more")? {
        0 => Err(invalid(name, value, "must be at least 1; valid: 1 or more")),
        count => Ok(count),
    }
}

fn index_below(
    name: &'static str,
    (bound_name, bound): (&str, usize),
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<usize, LaunchError> {
    let value = required(name, lookup)?;
    let valid = format!("0 to {}", bound - 1);
    let index: usize = number(name, &value, &valid)?;
    if index >= bound {
        return Err(invalid(
            name,
            value,
            format!("must be below {bound_name}={bound}; valid: {valid}"),
        ));
    }
    Ok(index)
}

fn flag(name: &'static str, lookup: impl Fn(&str) -> Option<String>) -> Result<bool, LaunchError> {
    match lookup(name).as_deref() {
        None | Some("" | "0") => Ok(false),
        Some("1") => Ok(true),
        Some(value) => Err(invalid(name, value, "must be a switch; valid: 0 or 1")),
    }
}

fn job_id(value: String) -> Result<String, LaunchError> {
    if is_job_id(&value) {
        return Ok(value);
    }
    Err(invalid(
        names::JOB_ID,
        value,
        "must be 16 hexadecimal digits in lower case; valid: 0123456789abcdef",
    ))
}

fn job_token(value: String) -> Result<JobToken, LaunchError> {
    if value.len() >= MIN_TOKEN_BYTES {
        return Ok(JobToken::from_text(&value));
    }
    // The value is a secret: the message gives its length only.
    let shown = format!("({} bytes)", value.len());
    let rule = format!("must be a secret of at least {MIN_TOKEN_BYTES} bytes; valid: 64 random hexadecimal digits");
    Err(invalid(names::JOB_TOKEN, shown, rule))
}

fn host(value: String) -> Result<String, LaunchError> {
    if value.is_empty() || value.len() > 255 {
        return Err(invalid(
            names::HOST,
            value,
            "must be a host identity; valid: 1 to 255 bytes",
        ));
    }
    Ok(value)
}

#[cfg(test)]
mod tests;
