//! [`JobStore`]: the store as a launcher sees it: its own, or that of the launcher on node 0.

use std::sync::mpsc;
use std::time::Duration;

use super::event::Event;
use super::{Nodes, summary};
use crate::launch::error::LaunchError;
use crate::launch::host::own_host;
use crate::launch::identity::JobToken;
use crate::launch::liveness::{FailureSignal, HeartbeatOptions, Rhythm};
use crate::launch::peer_failure::PeerFailure;
use crate::launch::server::StoreServer;
use crate::launch::store::{PeerId, Reply, Request, Store, StoreAddress, StoreConnection};
use crate::launch::variables;
use crate::launch::world::Membership;
use crate::launch::world::rendezvous::{lost_contact, lost_store_of_node_zero};

/// Longest wait for the store's answer to a launcher that registers.
const REGISTER_LIMIT: Duration = Duration::from_secs(10);
/// How much later than its time a silence is noticed.
const CAUSE_SLACK: Duration = Duration::from_secs(1);
/// How long the store stays for the ranks of other nodes when those of its own have succeeded.
const LINGER: Duration = Duration::from_secs(60);
/// The same when a rank has failed: enough for the news to reach the others.
const FAILED_LINGER: Duration = Duration::from_secs(1);

/// The job's store.
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
    /// Registers at the store of node 0, which may start later; returns it and the job's id.
    pub(super) fn join(
        nodes: &Nodes,
        world_size: usize,
        token: &JobToken,
        timeout: Duration,
        rhythm: Rhythm,
        events: mpsc::Sender<Event>,
    ) -> Result<(JobStore, String), LaunchError> {
        let address = StoreAddress::new(&nodes.master_addr, nodes.master_port, token.clone());
        let mut connection = StoreConnection::connect(&address, timeout)?;
        let request = Request::Watch {
            node_rank: nodes.rank,
            world_size,
            host: own_host(),
            ranks: nodes.ranks(world_size),
        };
        let job_id = match connection.call(&request, REGISTER_LIMIT, "registering a launcher")? {
            Reply::Welcome { job_id } => job_id,
            Reply::Failed(failure) => return Err(LaunchError::PeerFailed(failure)),
            Reply::Rejected(reason) => {
                return Err(LaunchError::NodeRefused {
                    address: address.to_string(),
                    node_rank: nodes.rank,
                    reason,
                });
            }
            other => return Err(connection.unexpected("registering a launcher", &other)),
        };
        let store = Store::remote(address.clone(), timeout);
        let failure = FailureSignal::announced_to(&store);
        // The receiver may be gone already: then all ranks have ended.
        failure.on_raise(Box::new(move || drop(events.send(Event::FailureReported))));
        let of_node_zero = |what| PeerFailure {
            rank: 0,
            host: nodes.master_addr.clone(),
            what,
        };
        let store_lost = of_node_zero(lost_store_of_node_zero(&address));
        let membership = Membership::watch(connection, failure.clone(), store_lost, None, Duration::ZERO)?;
        let options = HeartbeatOptions {
            rhythm,
            progress: Box::new(String::new),
            out_of_reach: of_node_zero(lost_contact(&nodes.master_addr)),
            store: store.clone(),
            peer: PeerId::Launcher(nodes.rank),
        };
        membership.start_heartbeats(failure.clone(), options)?;
        let joined = JobStore::Remote {
            store,
            failure,
            membership,
            limit: rhythm.limit,
        };
        Ok((joined, job_id))
    }

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
