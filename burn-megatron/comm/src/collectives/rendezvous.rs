//! How the ranks of a group find each other: keys in the job's store, waits that are bounded and
//! name the rank that is missing.

use super::error::CollectiveError;
use super::health::GroupHealth;
use crate::launch::{Absent, LaunchError, MAX_GATHERED_VALUE_BYTES, Runs, Saying, Store, World, hex};
use sha2::{Digest, Sha256};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// The longest single wait in the store, after which the failure signal is looked at.
const WAIT_SLICE: Duration = Duration::from_secs(1);
/// How long to look for what a rank said when it left; the connection to it is already gone.
pub const DISCONNECT_REASON_WAIT: Duration = Duration::from_millis(250);
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
    /// When a rank has failed.
    pub fn new(world: &World, health: &Arc<GroupHealth>) -> Result<Self, CollectiveError> {
        health.check(None)?;
        let label = &health.label;
        let ranks = Sha256::digest(format!("{:?}", label.ranks));
        let base = format!("{}-{}", label.name, hex(&ranks[..4]));
        // Every rank counts for itself: connecting is collective, so all arrive at the same count.
        let generation = world.count_group(&base);
        Ok(Self {
            store: world.store().clone(),
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

    /// Publishes why this rank gives the group up. Does what it can: the store may be gone too.
    pub fn send_disconnect_reason(&self, cause: &str) {
        let key = self.key(&format!("disconnect_reason/{}", self.health.label.rank));
        let _ = self.store.set_within(&key, cause.as_bytes(), DISCONNECT_REASON_LIMIT);
    }

    /// Returns what a rank said when it gave the group up, if it says anything within `limit`.
    pub fn disconnect_reason(&self, peer: usize, limit: Duration) -> Option<String> {
        let key = self.key(&format!("disconnect_reason/{peer}"));
        let cause = self.store.wait(&key, limit).ok()?;
        Some(String::from_utf8_lossy(&cause).into_owned())
    }

    fn key(&self, key: &str) -> String {
        format!("collectives/{}/{key}", self.identity)
    }

    fn failed(&self, source: LaunchError) -> CollectiveError {
        let group = self.health.label.to_string();
        match source {
            LaunchError::PeerFailed(failure) => CollectiveError::PeerFailed {
                group,
                call: "connect".to_owned(),
                failure,
            },
            source => CollectiveError::Store { group, source },
        }
    }
}

/// The error of one of the groups that are connected together.
#[derive(Debug)]
pub(in crate::collectives) struct OfGroup {
    /// Which of them.
    pub index: usize,
    pub error: CollectiveError,
}

impl OfGroup {
    /// Returns what makes an error that of a group.
    pub fn at(index: usize) -> impl FnOnce(CollectiveError) -> Self {
        move |error| Self { index, error }
    }

    /// Returns the same error, where the groups were those at `places` among others.
    pub fn among(self, places: &[usize]) -> Self {
        Self {
            index: places[self.index],
            ..self
        }
    }
}

/// Gives values to all ranks of some groups, of each what its rendezvous comes with, and returns those of all, in rank
/// order: one message to the store and one back, however many groups. `step` is for this once.
///
/// # Errors
/// When a rank does not come in time; when the store or a rank fails.
pub(in crate::collectives) fn gather_all<'a>(
    step: &str,
    values: impl IntoIterator<Item = (&'a Rendezvous, &'a [u8])>,
) -> Result<Vec<Runs>, OfGroup> {
    let (groups, sayings): (Vec<&Rendezvous>, Vec<Saying>) = values
        .into_iter()
        .map(|(rendezvous, value)| {
            let (index, size) = rendezvous.health.label.place();
            let saying = Saying {
                key: rendezvous.key(step),
                index,
                size,
                value: value.to_vec(),
            };
            (rendezvous, saying)
        })
        .unzip();
    let Some(first) = groups.first() else {
        return Ok(vec![]);
    };
    let mut deadlines: Vec<_> = groups.iter().map(|group| Some(group.health.deadline(None))).collect();
    loop {
        let slice = deadlines
            .iter()
            .flatten()
            .map(|deadline| deadline.slice(WAIT_SLICE))
            .min();
        match first.store.gather(&sayings, slice.unwrap_or_default()) {
            Ok(Ok(gathered)) => return Ok(gathered),
            Ok(Err(Absent { saying, members })) => {
                // The groups before are complete: no note shall say that they are waited for.
                deadlines[..saying].fill_with(|| None);
                if let Some(deadline) = &deadlines[saying] {
                    deadline.check(|| members).map_err(OfGroup::at(saying))?;
                }
            }
            Err(source) => {
                for (index, group) in groups.iter().enumerate() {
                    group.health.check(None).map_err(OfGroup::at(index))?;
                }
                return Err(OfGroup::at(0)(first.failed(source)));
            }
        }
    }
}

/// Compares a statement of every rank in each of some groups; all of a group must say the same. Returns to every rank,
/// of each group, either agreement or who says what. `step` is for this once.
///
/// # Errors
/// As [`gather_all`].
pub(in crate::collectives) fn agree_all<'a>(
    step: &str,
    statements: impl IntoIterator<Item = (&'a Rendezvous, &'a str)>,
) -> Result<Vec<Result<(), String>>, OfGroup> {
    let (groups, values): (Vec<&Rendezvous>, Vec<&[u8]>) = statements
        .into_iter()
        .map(|(group, statement)| {
            let length = statement.floor_char_boundary(MAX_GATHERED_VALUE_BYTES);
            (group, &statement.as_bytes()[..length])
        })
        .unzip();
    let gathered = gather_all(step, groups.iter().copied().zip(values))?;
    let agreements = groups.iter().zip(gathered).map(|(group, Runs(runs))| {
        let [first, other, ..] = &runs[..] else {
            return Ok(());
        };
        let ranks = &group.health.label.ranks;
        let [theirs, ours] = [other, first].map(|run| String::from_utf8_lossy(&run.value));
        Err(format!(
            "the ranks do not agree on {step}: rank {}: {theirs}; rank {}: {ours}",
            ranks[first.members], ranks[0]
        ))
    });
    Ok(agreements.collect())
}

impl fmt::Debug for Rendezvous {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Rendezvous({})", self.identity)
    }
}
