//! How the ranks of a group find each other: keys in the job's store, waits that are bounded and
//! name the rank that is missing.

use super::error::CollectiveError;
use super::health::GroupHealth;
use crate::launch::{LaunchError, Store, World};
use sha2::{Digest, Sha256};
use std::fmt::{self, Write};
use std::sync::Arc;
use std::time::Duration;

/// The longest single wait in the store, after which the failure signal is looked at.
const WAIT_SLICE: Duration = Duration::from_secs(1);
/// How long to look for what a rank said when it left; the connection to it is already gone.
const DISCONNECT_REASON_WAIT: Duration = Duration::from_millis(250);
/// How long the words of a rank that leaves may take to reach the store, which may be cut off.
const DISCONNECT_REASON_LIMIT: Duration = Duration::from_secs(1);

/// The keys of one group in the store.
#[derive(Clone)]
pub struct Rendezvous {
    store: Store,
    health: Arc<GroupHealth>,
    /// Names this group and no other of the job: name, ranks, and how many groups of that name and
    /// those ranks there were.
    identity: String,
    job_id: String,
}

impl Rendezvous {
    /// Returns the rendezvous of a new group.
    ///
    /// # Errors
    /// When the store fails; when a rank has failed.
    pub fn new(world: &World, health: &Arc<GroupHealth>) -> Result<Self, CollectiveError> {
        health.check(None)?;
        let label = &health.label;
        let ranks = Sha256::digest(format!("{:?}", label.ranks));
        let base = format!("{}-{}", label.name, hex(&ranks[..4]));
        // Every rank counts for itself: connecting is collective, so all arrive at the same count.
        let counter = format!("collectives/{base}/count/{}", label.rank);
        let store = world.store().clone();
        let generation = store.add(&counter, 1).map_err(|source| CollectiveError::Store {
            group: label.to_string(),
            source,
        })?;
        Ok(Self {
            store,
            health: health.clone(),
            identity: format!("{base}-{generation}"),
            job_id: world.job_id().to_string(),
        })
    }

    /// Returns a name for the group that no other group of any job has, fit for a file name.
    pub fn unique_name(&self) -> String {
        let group: String = self
            .identity
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '-' })
            .collect();
        format!("burn-megatron-{}-{group}", self.job_id)
    }

    /// Returns a digest that identifies the group, the job included.
    pub fn digest(&self) -> [u8; 32] {
        Sha256::digest(format!("{}/{}", self.job_id, self.identity)).into()
    }

    /// Publishes a value to the other ranks.
    ///
    /// # Errors
    /// When the store fails.
    pub fn publish(&self, key: &str, value: &[u8]) -> Result<(), CollectiveError> {
        self.store
            .set(&self.key(key), value)
            .map_err(|source| self.store_failed(source))
    }

    /// Waits for a value that the rank with group index `from` publishes.
    ///
    /// # Errors
    /// When it does not come in time; when the store or a rank fails.
    pub fn wait(&self, key: &str, from: usize) -> Result<Vec<u8>, CollectiveError> {
        let deadline = self.health.deadline(None);
        loop {
            let slice = deadline.slice(WAIT_SLICE);
            match self.store.wait(&self.key(key), slice) {
                Ok(value) => return Ok(value),
                Err(source) => {
                    deadline.check(|| vec![from])?;
                    match source {
                        // The slice is over, the patience is not.
                        LaunchError::WaitTimeout { .. } => {}
                        LaunchError::PeerFailed(failure) => {
                            return Err(CollectiveError::PeerFailed {
                                group: self.health.label.to_string(),
                                call: "connect".to_owned(),
                                failure,
                            });
                        }
                        source => return Err(self.store_failed(source)),
                    }
                }
            }
        }
    }

    /// Compares a statement of every rank; all must say the same. Returns to every rank either
    /// agreement or who says what.
    ///
    /// # Errors
    /// When a rank does not come in time; when the store or a rank fails.
    pub fn agree(&self, step: &str, statement: &str) -> Result<Result<(), String>, CollectiveError> {
        let label = &self.health.label;
        let verdict_key = format!("{step}/verdict");
        if label.rank > 0 {
            self.publish(&format!("{step}/{}", label.rank), statement.as_bytes())?;
            let verdict = self.wait(&verdict_key, 0)?;
            let verdict = String::from_utf8_lossy(&verdict).into_owned();
            return Ok(if verdict.is_empty() { Ok(()) } else { Err(verdict) });
        }
        let mut verdict = Ok(());
        for peer in label.peers() {
            let key = format!("{step}/{peer}");
            let theirs = self.wait(&key, peer)?;
            // No other rank reads it; a key that stays is only untidy.
            let _ = self.store.delete(&self.key(&key));
            if theirs != statement.as_bytes() && verdict.is_ok() {
                let (rank, first) = (label.ranks[peer], label.ranks[0]);
                let theirs = String::from_utf8_lossy(&theirs);
                verdict = Err(format!(
                    "the ranks do not agree on {step}: rank {rank}: {theirs}; rank {first}: {statement}"
                ));
            }
        }
        let text = verdict.as_ref().err().map_or("", String::as_str);
        self.publish(&verdict_key, text.as_bytes())?;
        Ok(verdict)
    }

    /// Publishes why this rank gives the group up. Does what it can: the store may be gone too.
    pub fn send_disconnect_reason(&self, cause: &str) {
        let key = self.key(&format!("disconnect_reason/{}", self.health.label.rank));
        let _ = self.store.set_within(&key, cause.as_bytes(), DISCONNECT_REASON_LIMIT);
    }

    /// Returns what a rank said when it gave the group up, if it said anything.
    pub fn disconnect_reason(&self, peer: usize) -> Option<String> {
        let key = self.key(&format!("disconnect_reason/{peer}"));
        let cause = self.store.wait(&key, DISCONNECT_REASON_WAIT).ok()?;
        Some(String::from_utf8_lossy(&cause).into_owned())
    }

    fn key(&self, key: &str) -> String {
        format!("collectives/{}/{key}", self.identity)
    }

    fn store_failed(&self, source: crate::launch::LaunchError) -> CollectiveError {
        CollectiveError::Store {
            group: self.health.label.to_string(),
            source,
        }
    }
}

impl fmt::Debug for Rendezvous {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Rendezvous({})", self.identity)
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
