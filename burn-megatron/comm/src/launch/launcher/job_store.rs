//! [`JobStore`]: the store as a launcher sees it: its own, or that of the launcher on node 0.

use std::time::Duration;

use super::summary;
use crate::launch::error::LaunchError;
use crate::launch::host::own_host;
use crate::launch::identity::JobToken;
use crate::launch::liveness::FailureSignal;
use crate::launch::peer_failure::PeerFailure;
use crate::launch::server::StoreServer;
use crate::launch::store::Store;
use crate::launch::variables;
use crate::launch::world::Membership;

/// How much later than its time a silence is noticed.
const CAUSE_SLACK: Duration = Duration::from_secs(1);
/// How long the store stays for the ranks of other nodes when those of its own have succeeded.
const LINGER: Duration = Duration::from_secs(60);
/// The same when a rank has failed: enough for the news to reach the others.
const FAILED_LINGER: Duration = Duration::from_secs(1);

/// The key that says that a launcher was interrupted: its ranks will not be started again.
const INTERRUPTED: &str = "launcher/interrupted";

pub(super) enum JobStore {
    /// This launcher hosts it.
    Hosted(StoreServer),
    /// The launcher of node 0 hosts it.
    Remote {
        store: Store,
        failure: FailureSignal,
        membership: Membership,
        /// The silence after which node 0 counts as lost.
        limit: Duration,
    },
}

impl JobStore {
    /// Notes how a rank's process ended, for those that wait for it to register.
    pub(super) fn process_ended(&self, rank: usize, outcome: summary::RankOutcome) {
        let what = outcome.to_string();
        match self {
            JobStore::Hosted(server) => server.process_ended(rank, &what),
            JobStore::Remote { store, failure, .. } if !failure.is_raised() => {
                if let Err(error) = store.process_ended(rank, &own_host(), &what) {
                    tracing::debug!(%error, "could not tell the store of an end");
                }
            }
            JobStore::Remote { .. } => {}
        }
    }

    /// Reports a failure to every rank; the first one wins.
    pub(super) fn fail(&self, cause: PeerFailure) {
        match self {
            JobStore::Hosted(server) => server.fail(cause),
            JobStore::Remote { failure, .. } => failure.raise(cause),
        }
    }

    /// Waits for the job's first failure, when the ranks here have ended because of another: node 0 may be cut off, and
    /// its silence not be long enough yet.
    pub(super) fn wait_for_cause(&self) {
        if let JobStore::Remote { failure, limit, .. } = self {
            failure.wait_raised(*limit + CAUSE_SLACK);
        }
    }

    /// Returns the job's first failure.
    pub(super) fn first_failure(&self) -> Option<PeerFailure> {
        match self {
            JobStore::Hosted(server) => server.first_failure(),
            JobStore::Remote { failure, .. } => failure.cause(),
        }
    }

    /// Returns whether the launcher of another node has ended well before any failure: it will not start its ranks
    /// again.
    pub(super) fn has_lost_a_launcher(&self) -> bool {
        match self {
            JobStore::Hosted(server) => server.is_any_launcher_done(),
            JobStore::Remote { .. } => false,
        }
    }

    /// Lets the other launchers know that a signal has come to this one.
    pub(super) fn note_interrupt(&self) {
        let noted = match self {
            JobStore::Hosted(server) => server.leave_note(INTERRUPTED),
            JobStore::Remote { store, .. } => store.leave_note(INTERRUPTED, &[]).map_err(|error| error.to_string()),
        };
        if let Err(error) = noted {
            tracing::debug!(error, "could not tell the store of a signal");
        }
    }

    /// Returns whether a signal has come to a launcher, as far as the store can be asked.
    pub(super) fn was_any_interrupted(&self) -> bool {
        match self {
            JobStore::Hosted(server) => server.has_note(INTERRUPTED),
            JobStore::Remote { store, .. } => store.read_note(INTERRUPTED, Duration::ZERO).is_ok(),
        }
    }

    /// Says goodbye, or waits for a bounded time until the other nodes have.
    pub(super) fn leave(&self) {
        match self {
            JobStore::Hosted(server) if server.first_failure().is_some() => server.wait_until_empty(FAILED_LINGER),
            JobStore::Hosted(server) => server.wait_until_empty(LINGER),
            JobStore::Remote {
                failure, membership, ..
            } => membership.leave(failure),
        }
    }
}

/// Returns the secret that the launchers of several nodes share.
pub(super) fn common_token(nodes: usize) -> Result<JobToken, LaunchError> {
    use crate::launch::{environment::job_token, identity::MIN_TOKEN_BYTES};
    let value = std::env::var(variables::JOB_TOKEN).map_err(|_| LaunchError::NoCommonToken {
        variable: variables::JOB_TOKEN,
        nodes,
        min_bytes: MIN_TOKEN_BYTES,
    })?;
    job_token(value)
}
