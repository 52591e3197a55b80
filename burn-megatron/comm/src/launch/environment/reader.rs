//! [`Reader`]: reads and checks variables; its errors name the variable, its value and the rule.
//!
//! Used for every dialect of this folder, and by the launcher for single values.

use std::net::IpAddr;
use std::str::FromStr;

use super::{Environment, names};
use crate::launch::error::LaunchError;
use crate::launch::identity::{JobToken, MIN_TOKEN_BYTES, is_job_id};
use crate::limits::MAX_WORLD_SIZE;

/// First port of those that are derived from a job's number: below those that Linux gives to clients.
const FIRST_DERIVED_PORT: u16 = 20000;
/// How many there are.
const DERIVED_PORTS: u64 = 10000;

/// The variables of one launcher.
pub(super) struct Reader<'a> {
    /// The environment.
    pub(super) lookup: &'a dyn Fn(&str) -> Option<String>,
    /// The variable by which the launcher was recognised.
    pub(super) sign: &'static str,
    /// All variables that this launcher sets together.
    pub(super) partners: &'a [&'static str],
}

/// Which rank a process is, checked.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) rank: usize,
    pub(super) world_size: usize,
    pub(super) local_rank: usize,
    pub(super) local_world_size: usize,
}

/// What a launcher says of the job.
pub(super) struct Job {
    pub(super) place: Place,
    pub(super) master_addr: String,
    pub(super) master_port: u16,
    pub(super) run_id: Option<String>,
    pub(super) restart_count: Option<String>,
}

impl Reader<'_> {
    /// Returns the value of a variable that may be absent.
    pub(super) fn optional(&self, name: &str) -> Option<String> {
        (self.lookup)(name)
    }

    /// Returns the value of a variable that goes with the sign.
    pub(super) fn required(&self, name: &'static str) -> Result<String, LaunchError> {
        self.optional(name).ok_or_else(|| LaunchError::MissingVariable {
            name,
            sign: self.sign,
            all: self.partners.join(", "),
        })
    }

    /// Returns a count of ranks, at least 1.
    pub(super) fn at_least_one(&self, name: &'static str) -> Result<usize, LaunchError> {
        let value = self.required(name)?;
        match number(name, &value, "1 or more")? {
            0 => Err(invalid(name, value, "must be at least 1; valid: 1 or more")),
            count if count > MAX_WORLD_SIZE => {
                let rule = format!("must be at most {MAX_WORLD_SIZE}; valid: 1 to {MAX_WORLD_SIZE}");
                Err(invalid(name, value, rule))
            }
            count => Ok(count),
        }
    }

    /// Returns a number from 0 to below `bound`, which is the value of `bound_name`.
    pub(super) fn index_below(
        &self,
        name: &'static str,
        (bound_name, bound): (&str, usize),
    ) -> Result<usize, LaunchError> {
        let value = self.required(name)?;
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

    /// Returns whether a job is this process alone, from the variables of rank and world size.
    pub(super) fn is_alone(&self, [rank, world_size]: [&'static str; 2]) -> Result<bool, LaunchError> {
        let count = self.at_least_one(world_size)?;
        self.index_below(rank, (world_size, count))?;
        Ok(count == 1)
    }

    /// Returns which rank this process is, from the variables of rank, world size, local rank and local world size.
    pub(super) fn place(&self, names: [&'static str; 4]) -> Result<Place, LaunchError> {
        let [rank, world_size_name, local_rank, local_world_size_name] = names;
        let world_size = self.at_least_one(world_size_name)?;
        let rank = self.index_below(rank, (world_size_name, world_size))?;
        let local_world_size = self.at_least_one(local_world_size_name)?;
        if local_world_size > world_size {
            let rule = format!("must be at most {world_size_name}={world_size}; valid: 1 to {world_size}");
            return Err(invalid(local_world_size_name, local_world_size, rule));
        }
        let local_rank = self.index_below(local_rank, (local_world_size_name, local_world_size))?;
        Ok(Place {
            rank,
            world_size,
            local_rank,
            local_world_size,
        })
    }

    /// Returns MASTER_PORT, or without it a port from 20000 to 29999: 20000 + `number` modulo 10000.
    pub(super) fn port_or_derived(&self, number: u64) -> Result<u16, LaunchError> {
        match self.optional(names::MASTER_PORT) {
            Some(value) => port(names::MASTER_PORT, value),
            None => Ok(FIRST_DERIVED_PORT + (number % DERIVED_PORTS) as u16),
        }
    }

    /// Returns the environment of `job`, with the variables of this crate that are the same under every launcher.
    pub(super) fn environment(&self, job: Job) -> Result<Environment, LaunchError> {
        let master_addr =
            host_alone(&job.master_addr).map_err(|rule| invalid(names::MASTER_ADDR, &job.master_addr, rule))?;
        let Place {
            rank,
            world_size,
            local_rank,
            local_world_size,
        } = job.place;
        let chosen_store_port = self
            .optional(names::STORE_PORT)
            .map(|value| port(names::STORE_PORT, value))
            .transpose()?;
        let environment = Environment {
            rank,
            world_size,
            local_rank,
            local_world_size,
            master_addr,
            master_port: job.master_port,
            job_id: self.optional(names::JOB_ID).map(job_id).transpose()?,
            job_token: self.optional(names::JOB_TOKEN).map(job_token).transpose()?,
            store_hosted_elsewhere: flag(names::STORE_HOSTED, self.optional(names::STORE_HOSTED))?,
            chosen_store_port,
            host: self.optional(names::HOST).map(host).transpose()?,
            run_id: job.run_id,
            restart_count: job.restart_count,
        };
        environment.store_port()?; // says at once that there is no port above 65535
        Ok(environment)
    }
}

/// Returns the first of two names that is set, or the first.
pub(super) fn present(lookup: &dyn Fn(&str) -> Option<String>, names: [&'static str; 2]) -> &'static str {
    let found = names.into_iter().find(|name| lookup(name).is_some());
    found.unwrap_or(names[0])
}

/// Returns the name or the address that `text` is, without the brackets of an IPv6 address.
///
/// # Errors
/// It is empty, or has more than that, such as a port: says what is to be written.
pub fn host_alone(text: &str) -> Result<String, String> {
    let text = text.trim();
    let unbracketed = |host: &str| {
        let inner = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        inner.unwrap_or(host).to_owned()
    };
    let host = unbracketed(text);
    // The address of a link has its interface after a percent sign.
    let is_address = host.split('%').next().is_some_and(|ip| ip.parse::<IpAddr>().is_ok());
    if is_address || !(host.is_empty() || host.contains([':', '/', '[', ']'])) {
        return Ok(host);
    }
    let rule = "must be the name or address of the host of rank 0";
    let of_url = text.split_once("://").map_or(text, |(_, rest)| rest);
    match of_url.rsplit_once(':') {
        Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
            let host = unbracketed(host);
            Err(format!(
                "{rule} alone; write {host} here and the port {port} in MASTER_PORT (--master-port)"
            ))
        }
        _ => Err(format!("{rule}; valid: node0, 10.0.0.1 or 2001:db8::7")),
    }
}

pub(in crate::launch) fn port(name: &'static str, value: String) -> Result<u16, LaunchError> {
    match value.parse::<u16>() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(invalid(name, value, "must be a port number; valid: 1 to 65535")),
    }
}

/// Returns the job's secret that `value` is.
pub(in crate::launch) fn job_token(value: String) -> Result<JobToken, LaunchError> {
    if value.len() >= MIN_TOKEN_BYTES {
        return Ok(JobToken::from_text(&value));
    }
    // The value is a secret: the message gives its length only.
    let shown = format!("({} bytes)", value.len());
    let rule = format!("must be a secret of at least {MIN_TOKEN_BYTES} bytes; valid: 64 random hexadecimal digits");
    Err(invalid(names::JOB_TOKEN, shown, rule))
}

/// The error of a value that breaks `rule`.
pub(super) fn invalid(name: &'static str, value: impl ToString, rule: impl Into<String>) -> LaunchError {
    LaunchError::InvalidVariable {
        name,
        value: value.to_string(),
        rule: rule.into(),
    }
}

/// Returns the whole number that `value` is.
pub(super) fn number<T: FromStr>(name: &'static str, value: &str, valid: &str) -> Result<T, LaunchError> {
    value
        .parse()
        .map_err(|_| invalid(name, value, format!("must be a whole number; valid: {valid}")))
}

fn flag(name: &'static str, value: Option<String>) -> Result<bool, LaunchError> {
    match value.as_deref() {
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
