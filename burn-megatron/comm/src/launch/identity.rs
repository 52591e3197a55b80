//! What tells one job from another: its id and its token.
//!
//! Made by the launcher (or by rank 0 under torchrun), used by the handshake of connections and by
//! [`World`](super::World).

use std::fmt;

use sha2::{Digest, Sha256};

use super::error::LaunchError;

/// Shortest token that is taken from the environment, in bytes.
pub(super) const MIN_TOKEN_BYTES: usize = 16;

/// The secret of a job. A process that knows it belongs to the job. Its `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct JobToken(Vec<u8>);

impl JobToken {
    /// Returns a new random token: 32 random bytes, written as 64 hexadecimal digits.
    pub fn random() -> Result<JobToken, LaunchError> {
        Ok(JobToken(random_hex::<32>()?.into_bytes()))
    }

    /// Returns the token that is this text, as the environment carries it.
    pub fn from_text(text: &str) -> JobToken {
        JobToken(text.as_bytes().to_vec())
    }

    /// Returns a token that every rank of a torchrun job can compute: `SHA-256(run id, port, restart count)`.
    ///
    /// Weak: it keeps jobs apart that meet at one port by accident, but whoever knows the run id (often `none`) can
    /// compute it, too. Set `BURN_MEGATRON_JOB_TOKEN` to a secret on networks with other users.
    pub fn derived(run_id: &str, master_port: u16, restart_count: &str) -> JobToken {
        let text = format!("burn-megatron job token\n{run_id}\n{master_port}\n{restart_count}");
        JobToken(hex(&Sha256::digest(text.as_bytes())).into_bytes())
    }

    /// Returns the token of a job that has been restarted that often: itself for never.
    pub(super) fn of_restart(&self, restarts: usize) -> JobToken {
        if restarts == 0 {
            return self.clone();
        }
        let mut hash = Sha256::new();
        hash.update(format!("burn-megatron job token\nrestart {restarts}\n"));
        hash.update(&self.0);
        JobToken(hex(&hash.finalize()).into_bytes())
    }

    /// Returns the token's bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the token as the environment carries it.
    pub(super) fn to_text(&self) -> String {
        String::from_utf8_lossy(&self.0).into_owned()
    }
}

impl fmt::Debug for JobToken {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JobToken(hidden)")
    }
}

/// Returns a new random job id: 16 hexadecimal digits, fit for file names.
pub(super) fn random_job_id() -> Result<String, LaunchError> {
    random_hex::<8>()
}

/// Returns whether `text` has the form of a job id.
pub(super) fn is_job_id(text: &str) -> bool {
    text.len() == 16 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn random_hex<const BYTES: usize>() -> Result<String, LaunchError> {
    let mut bytes = [0; BYTES];
    getrandom::fill(&mut bytes).map_err(|error| LaunchError::System {
        action: "cannot read the operating system's random numbers".into(),
        source: error.into(),
    })?;
    Ok(hex(&bytes))
}

/// Returns bytes as hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_ids_are_random_and_well_formed() {
        let (first, second) = (random_job_id().unwrap(), random_job_id().unwrap());
        assert!(is_job_id(&first) && is_job_id(&second));
        assert_ne!(first, second);
        for wrong in ["", "0123", "0123456789ABCDEF", "0123456789abcde/"] {
            assert!(!is_job_id(wrong), "{wrong}");
        }
    }

    #[test]
    fn tokens_survive_the_environment_and_stay_hidden() {
        let token = JobToken::random().unwrap();
        assert_eq!(token.as_bytes().len(), 64);
        assert_eq!(JobToken::from_text(&token.to_text()), token);
        assert_eq!(format!("{token:?}"), "JobToken(hidden)");
    }

    #[test]
    fn derived_tokens_tell_jobs_apart() {
        let token = JobToken::derived("run", 29500, "0");
        assert_eq!(token, JobToken::derived("run", 29500, "0"));
        assert_ne!(token, JobToken::derived("other", 29500, "0"));
        assert_ne!(token, JobToken::derived("run", 29501, "0"));
        assert_ne!(token, JobToken::derived("run", 29500, "1"));
    }
}
