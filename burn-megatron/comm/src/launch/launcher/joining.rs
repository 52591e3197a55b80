//! [`Joining`]: how a launcher of another node finds node 0's store, whichever start of the ranks that is for.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use super::Nodes;
use super::event::Event;
use super::job_store::JobStore;
use super::meeting::Meeting;
use crate::launch::error::LaunchError;
use crate::launch::host::own_host;
use crate::launch::identity::JobToken;
use crate::launch::liveness::{FailureSignal, HeartbeatOptions, Rhythm};
use crate::launch::peer_failure::PeerFailure;
use crate::launch::store::{PeerId, Reply, Request, Store, StoreAddress, StoreConnection};
use crate::launch::world::Membership;
use crate::launch::world::rendezvous::{lost_contact, lost_store_of_node_zero};

/// Longest wait for the store's answer to a launcher that registers.
const REGISTER_LIMIT: Duration = Duration::from_secs(10);
/// Longest wait for the store before other things are looked at, where the job may be restarted: enough to look up a
/// name and to try several addresses.
const SLICE: Duration = Duration::from_secs(6);
/// When it says for what it waits.
const WARNED_AFTER: Duration = Duration::from_secs(10);
/// Time between attempts to join a start that may not have begun.
const PAUSE: Duration = Duration::from_millis(300);

/// A launcher that joins.
pub(super) struct Joining<'a> {
    pub(super) nodes: &'a Nodes,
    pub(super) world_size: usize,
    pub(super) rhythm: Rhythm,
    pub(super) events: &'a mpsc::Sender<Event>,
}

impl Joining<'_> {
    /// Registers at the store of node 0, which may start later. `tokens` are those of the starts that node 0 may be at,
    /// with how many came before each; `None` if `is_interrupted` first.
    ///
    /// # Errors
    /// The store cannot be reached within `timeout`, or refuses this node.
    pub(super) fn join(
        &self,
        tokens: &[(usize, JobToken)],
        timeout: Duration,
        is_interrupted: impl Fn() -> bool,
    ) -> Result<Option<Meeting>, LaunchError> {
        let last = tokens.last().map(|(restarts, _)| restarts);
        if let [(0, token)] = tokens {
            return self.register(0, token, [timeout; 2]).map(Some);
        }
        let begun = Instant::now();
        let mut has_warned = false;
        loop {
            // What is wrong with the start that is under way, as far as it is known.
            let mut refusal = None;
            for (restarts, token) in tokens {
                match self.register(*restarts, token, [SLICE, timeout]) {
                    Ok(meeting) => return Ok(Some(meeting)),
                    // That of a start that is over, or is about to begin.
                    Err(error @ LaunchError::TokenRefused { .. }) => refusal = Some(error),
                    // That of a start that has failed already: if there may be no other, for good.
                    Err(error @ LaunchError::PeerFailed(_)) if Some(restarts) == last => return Err(error),
                    Err(
                        error @ (LaunchError::PeerFailed(_)
                        | LaunchError::Unreachable { .. }
                        | LaunchError::StoreLost { .. }),
                    ) => {
                        refusal = Some(error);
                        break;
                    }
                    Err(error) => return Err(error),
                }
            }
            if is_interrupted() {
                return Ok(None);
            }
            let waited = begun.elapsed();
            match refusal {
                Some(LaunchError::Unreachable { address, reason, .. }) if waited >= timeout => {
                    return Err(LaunchError::Unreachable {
                        address,
                        waited,
                        reason,
                    });
                }
                Some(error) if waited >= timeout => return Err(error),
                Some(error) if waited >= WARNED_AFTER && !has_warned => {
                    has_warned = true;
                    tracing::warn!("waiting for the next start of the ranks: {error}");
                }
                _ => {}
            }
            thread::sleep(PAUSE);
        }
    }

    /// Connects within `limit`; later waits for the store have `timeout`.
    fn register(
        &self,
        restarts: usize,
        token: &JobToken,
        [limit, timeout]: [Duration; 2],
    ) -> Result<Meeting, LaunchError> {
        let &Joining {
            nodes,
            world_size,
            rhythm,
            events,
        } = self;
        let address = StoreAddress::new(&nodes.master_addr, nodes.master_port, token.clone());
        let mut connection = StoreConnection::connect(&address, limit)?;
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
        let events = events.clone();
        // The receiver may be gone already: then all ranks have ended.
        failure.on_raise(Box::new(move || drop(events.send(Event::FailureReported))));
        let of_node_zero = |what: String| PeerFailure::new(0, nodes.master_addr.clone(), what);
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
        Ok(Meeting {
            store: JobStore::Remote {
                store,
                failure,
                membership,
                limit: rhythm.limit,
            },
            master: (nodes.master_addr.clone(), nodes.master_port),
            job_id,
            token: token.clone(),
            restarts,
        })
    }
}
