//! [`Job`]: what the server knows, shared by all its connections: the key table with those who wait for keys, and the
//! members of the job.
//!
//! Changed by `connection` (on behalf of ranks) and by the launcher (which sees processes end).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::{oneshot, watch};

use super::gatherings::{Answer, Gatherings};
use super::{FailureCallback, StoreTraffic};
use crate::launch::identity::JobToken;
use crate::launch::liveness::{Action, Event, Heartbeats, Members};
use crate::launch::peer_failure::PeerFailure;
use crate::launch::store::protocol::{PeerId, Reply, Saying};
use crate::launch::store::table::{MAX_STORE_BYTES, Table, TableError};

/// The server's state.
pub(in crate::launch) struct Job {
    pub(super) world_size: usize,
    pub(super) job_id: String,
    pub(in crate::launch) token: JobToken,
    /// The first failure, once there is one.
    pub(super) failure: watch::Sender<Option<PeerFailure>>,
    /// What every rank gets once all have registered: a frame that is made once.
    pub(super) roster: watch::Sender<Option<Arc<[u8]>>>,
    /// Whether the server is ending in good order.
    pub(super) closing: watch::Sender<bool>,
    /// What has gone over the connections.
    pub(super) traffic: Mutex<StoreTraffic>,
    on_failure: Option<FailureCallback>,
    state: Mutex<State>,
    /// Notified when the last rank or launcher has left or is lost.
    departure: Condvar,
}

struct State {
    table: Table,
    waiting: HashMap<String, Vec<oneshot::Sender<Arc<[u8]>>>>,
    gatherings: Gatherings,
    members: Members,
}

impl Job {
    pub(in crate::launch) fn new(
        world_size: usize,
        job_id: String,
        token: JobToken,
        on_failure: Option<FailureCallback>,
    ) -> Arc<Job> {
        Arc::new(Job {
            world_size,
            job_id,
            token,
            failure: watch::Sender::new(None),
            roster: watch::Sender::new(None),
            closing: watch::Sender::new(false),
            traffic: Mutex::default(),
            on_failure,
            state: Mutex::new(State {
                table: Table::new(MAX_STORE_BYTES),
                waiting: HashMap::new(),
                gatherings: Gatherings::default(),
                members: Members::new(world_size),
            }),
            departure: Condvar::new(),
        })
    }

    /// Sets a key and wakes those who wait for it.
    pub(super) fn set(&self, key: &str, value: Vec<u8>) -> Result<(), TableError> {
        let mut state = self.state.lock();
        state.table.set(key, value.into())?;
        state.wake(key);
        Ok(())
    }

    /// Adds to a counter, wakes those who wait for it, and returns its new value.
    pub(super) fn add(&self, key: &str, delta: i64) -> Result<i64, TableError> {
        let mut state = self.state.lock();
        let sum = state.table.add(key, delta)?;
        state.wake(key);
        Ok(sum)
    }

    /// Returns whether a key is set.
    pub(super) fn has_key(&self, key: &str) -> bool {
        self.state.lock().table.value(key).is_some()
    }

    /// Removes a key.
    pub(super) fn delete(&self, key: &str) {
        self.state.lock().table.delete(key);
    }

    /// Returns a key's value, or a receiver that gets it when it is set.
    pub(super) fn value_or_waiter(&self, key: &str) -> Result<Arc<[u8]>, oneshot::Receiver<Arc<[u8]>>> {
        let mut state = self.state.lock();
        if let Some(value) = state.table.value(key) {
            return Ok(value);
        }
        let (sender, receiver) = oneshot::channel();
        state.waiting.entry(key.to_string()).or_default().push(sender);
        Err(receiver)
    }

    /// Forgets the waiters for `key` whose receivers are dropped.
    pub(super) fn forget_waiters(&self, key: &str) {
        let mut state = self.state.lock();
        if let Some(waiters) = state.waiting.get_mut(key) {
            waiters.retain(|waiter| !waiter.is_closed());
            if waiters.is_empty() {
                state.waiting.remove(key);
            }
        }
    }

    /// Takes what a member of groups says to the others; returns where the answers come, or why one is refused.
    pub(super) fn say(&self, sayings: &[Saying]) -> Result<Vec<Answer>, String> {
        if let Some(Saying { key, size, .. }) = sayings.iter().find(|saying| saying.size > self.world_size) {
            let world_size = self.world_size;
            return Err(format!("{key:?}: a group of {size} in a job of {world_size} ranks"));
        }
        let mut state = self.state.lock();
        sayings.iter().map(|saying| state.gatherings.say(saying)).collect()
    }

    /// Returns the first members of a group that have said nothing.
    pub(super) fn absent(&self, key: &str) -> Vec<usize> {
        self.state.lock().gatherings.absent(key)
    }

    /// Notes that a member of groups has the answers.
    pub(super) fn answered(&self, sayings: &[Saying]) {
        let mut state = self.state.lock();
        for saying in sayings {
            state.gatherings.answered(&saying.key, saying.index);
        }
    }

    /// Asks or changes the members; tells every rank, and the launcher, of the first failure if that brings it.
    pub(super) fn members<R>(&self, access: impl FnOnce(&mut Members) -> R) -> R {
        let mut state = self.state.lock();
        let had_failed = state.members.first_failure().is_some();
        let result = access(&mut state.members);
        let first = state.members.first_failure().filter(|_| !had_failed).cloned();
        let is_empty = state.members.is_empty();
        drop(state);
        if is_empty {
            self.departure.notify_all();
        }
        if let Some(first) = first {
            self.failure.send_replace(Some(first.clone()));
            if let Some(callback) = &self.on_failure {
                callback(&first);
            }
        }
        result
    }

    /// Registers a rank; the error is the reply that refuses it.
    pub(super) fn register(&self, rank: usize, world_size: usize, host: &str) -> Result<(), Reply> {
        self.members(|members| {
            members.register(rank, world_size, host)?;
            if let Some((nodes, first_host)) = members.all_nodes() {
                let roster = Reply::Roster {
                    job_id: self.job_id.clone(),
                    nodes,
                    first_host,
                };
                self.roster.send_replace(Some(roster.to_frame().into()));
            }
            Ok(())
        })
    }

    /// Notes what has happened to a peer, and returns what follows for it.
    pub(super) fn on(&self, peer: PeerId, event: Event) -> Action {
        self.members(|members| members.on(peer, event))
    }

    /// Notes a heartbeat of a peer, which counts as lost after a silence of `limit`; returns whether it is present.
    pub(super) fn heard(&self, peer: PeerId, limit: Duration, progress: String) -> bool {
        let heartbeats = Heartbeats::new(Instant::now(), limit, progress);
        self.on(peer, Event::Heartbeat(heartbeats)) == Action::Accept
    }

    /// Notes a heartbeat that came over another connection than the one that stands for the peer; returns what
    /// the latter may have no way to say.
    pub(super) fn heard_elsewhere(&self, peer: PeerId, limit: Duration, progress: String) -> Reply {
        let is_present = self.heard(peer, limit, progress);
        match self.first_failure() {
            Some(first) => Reply::Failed(first),
            None if is_present => Reply::Heard,
            None => Reply::NotPresent,
        }
    }

    pub(in crate::launch) fn first_failure(&self) -> Option<PeerFailure> {
        self.state.lock().members.first_failure().cloned()
    }

    /// Returns whether no rank and no launcher is present and no client waits for a key.
    #[cfg(feature = "fuzzing")]
    pub(in crate::launch) fn is_idle(&self) -> bool {
        let state = self.state.lock();
        state.waiting.is_empty() && state.members.is_empty()
    }

    /// Waits until no rank and no launcher is present, at most for `limit`.
    pub(super) fn wait_until_empty(&self, limit: Duration) {
        let is_present = |state: &mut State| !state.members.is_empty();
        self.departure.wait_while_for(&mut self.state.lock(), is_present, limit);
    }
}

impl State {
    /// Hands a key's value to those who wait for it.
    fn wake(&mut self, key: &str) {
        let Some(waiters) = self.waiting.remove(key) else {
            return;
        };
        let Some(value) = self.table.value(key) else { return };
        for waiter in waiters {
            // A waiter whose time ran out has dropped its end.
            let _ = waiter.send(Arc::clone(&value));
        }
    }
}
