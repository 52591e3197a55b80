//! [`Job`]: what the server knows, shared by all its connections: the key table with those who wait for keys, the
//! members of the job, and the first failure.
//!
//! Changed by `connection` (on behalf of ranks) and by the launcher (which sees processes end).

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use tokio::sync::{oneshot, watch};

use super::FailureCallback;
use crate::launch::host::host_name;
use crate::launch::identity::JobToken;
use crate::launch::liveness::Heartbeats;
use crate::launch::peer_failure::{CONNECTION_LOST, PeerFailure, silence_text};
use crate::launch::store::protocol::{HeartbeatStatus, PeerState, Reply};
use crate::launch::store::table::{MAX_STORE_BYTES, Table, TableError};
use crate::launch::{list_ranks, lock};

/// How long to listen to a rank that has sent no heartbeat yet.
const IDLE: Duration = Duration::from_secs(1);

/// The server's state.
pub(in crate::launch) struct Job {
    pub(super) world_size: usize,
    pub(super) job_id: String,
    pub(in crate::launch) token: JobToken,
    /// The first failure, once there is one.
    pub(super) failure: watch::Sender<Option<PeerFailure>>,
    /// The host of each rank, once all have registered.
    pub(super) roster: watch::Sender<Option<Arc<Vec<String>>>>,
    /// Whether the server is ending in good order.
    pub(super) closing: watch::Sender<bool>,
    on_failure: Option<FailureCallback>,
    state: Mutex<State>,
    /// Notified whenever a rank or a launcher leaves or is lost.
    departure: Condvar,
}

struct State {
    table: Table,
    waiting: HashMap<String, Vec<oneshot::Sender<Arc<[u8]>>>>,
    members: Vec<Member>,
    /// Those of each rank, once it has sent one.
    heartbeats: Vec<Option<Heartbeats>>,
    /// The launcher of each further node, by the node's number, while it is there.
    launchers: HashMap<usize, NodeLauncher>,
}

/// The launcher of a further node, as the store sees it.
#[derive(Debug)]
struct NodeLauncher {
    host: String,
    /// The ranks that it starts.
    ranks: Range<usize>,
    /// Once it has sent one.
    heartbeats: Option<Heartbeats>,
}

/// A rank, as the store sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Member {
    /// Has not registered yet.
    Absent,
    /// Registered, and its connection is open.
    Present { host: String },
    /// Said goodbye, or its connection closed.
    Gone { host: String },
    /// Its process ended without ever registering, or its launcher did before.
    NeverCame { host: String, what: String },
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
            on_failure,
            state: Mutex::new(State {
                table: Table::new(MAX_STORE_BYTES),
                waiting: HashMap::new(),
                members: vec![Member::Absent; world_size],
                heartbeats: vec![None; world_size],
                launchers: HashMap::new(),
            }),
            departure: Condvar::new(),
        })
    }

    /// Sets a key and wakes those who wait for it.
    pub(super) fn set(&self, key: &str, value: Vec<u8>) -> Result<(), TableError> {
        let mut state = lock(&self.state);
        state.table.set(key, value.into())?;
        state.wake(key);
        Ok(())
    }

    /// Adds to a counter, wakes those who wait for it, and returns its new value.
    pub(super) fn add(&self, key: &str, delta: i64) -> Result<i64, TableError> {
        let mut state = lock(&self.state);
        let sum = state.table.add(key, delta)?;
        state.wake(key);
        Ok(sum)
    }

    /// Removes a key.
    pub(super) fn delete(&self, key: &str) {
        lock(&self.state).table.delete(key);
    }

    /// Returns a key's value, or a receiver that gets it when it is set.
    pub(super) fn value_or_waiter(&self, key: &str) -> Result<Arc<[u8]>, oneshot::Receiver<Arc<[u8]>>> {
        let mut state = lock(&self.state);
        if let Some(value) = state.table.value(key) {
            return Ok(value);
        }
        let (sender, receiver) = oneshot::channel();
        state.waiting.entry(key.to_string()).or_default().push(sender);
        Err(receiver)
    }

    /// Forgets the waiters for `key` whose receivers are dropped.
    pub(super) fn forget_waiters(&self, key: &str) {
        let mut state = lock(&self.state);
        if let Some(waiters) = state.waiting.get_mut(key) {
            waiters.retain(|waiter| !waiter.is_closed());
            if waiters.is_empty() {
                state.waiting.remove(key);
            }
        }
    }

    /// Registers a rank; the error is the reply that refuses it.
    pub(super) fn register(&self, rank: usize, world_size: usize, host: &str) -> Result<(), Reply> {
        let here = host_name(host);
        if world_size != self.world_size {
            return Err(Reply::Rejected(format!(
                "rank {rank} on host {here} has world size {world_size}, but the job has world size {}",
                self.world_size
            )));
        }
        if rank >= world_size {
            return Err(Reply::Rejected(format!(
                "rank {rank} on host {here} is not below world size {world_size}"
            )));
        }
        if let Some(failure) = self.first_failure() {
            return Err(Reply::Failed(failure));
        }
        let mut state = lock(&self.state);
        match &state.members[rank] {
            Member::Absent => {}
            Member::Present { host: first } => {
                return Err(Reply::Rejected(format!(
                    "two processes are rank {rank}: one on host {}, and one on host {here}",
                    host_name(first)
                )));
            }
            Member::Gone { host: first } => {
                return Err(Reply::Rejected(format!(
                    "rank {rank} on host {here} comes too late: rank {rank} on host {} has already left the job",
                    host_name(first)
                )));
            }
            Member::NeverCame { what, .. } => {
                return Err(Reply::Rejected(format!(
                    "the process of rank {rank} has already ended: {what}"
                )));
            }
        }
        state.members[rank] = Member::Present { host: host.to_string() };
        if let Some(hosts) = state.all_hosts() {
            self.roster.send_replace(Some(Arc::new(hosts)));
        }
        let never_came = state.never_came();
        drop(state);
        if let Some(failure) = never_came {
            self.fail(failure);
        }
        Ok(())
    }

    /// Returns the ranks that have not registered.
    pub(super) fn missing(&self) -> Vec<usize> {
        let state = lock(&self.state);
        let is_missing = |member: &Member| matches!(member, Member::Absent | Member::NeverCame { .. });
        (0..self.world_size)
            .filter(|&rank| is_missing(&state.members[rank]))
            .collect()
    }

    /// Notes that the rendezvous has run out of time, and returns the ranks that have not registered.
    pub(super) fn rendezvous_timed_out(&self, timeout: Duration) -> Vec<usize> {
        let missing = self.missing();
        if let Some(&rank) = missing.first() {
            let what = format!(
                "did not register within {timeout:?}; waiting for rank(s) {} of {}",
                list_ranks(&missing),
                self.world_size
            );
            self.fail(PeerFailure {
                rank,
                host: "unknown".into(),
                what,
            });
        }
        missing
    }

    /// Notes that a rank said goodbye.
    pub(super) fn left(&self, rank: usize) {
        let mut state = lock(&self.state);
        if let Member::Present { host } = &state.members[rank] {
            state.members[rank] = Member::Gone { host: host.clone() };
        }
        state.heartbeats[rank] = None;
        self.departure.notify_all();
    }

    /// Notes that a rank's connection closed without a goodbye: the rank has died.
    pub(super) fn lost(&self, rank: usize) {
        self.leaves_by_failing(rank, CONNECTION_LOST.into());
    }

    /// Notes that nothing comes from a rank any more although its connection was never closed.
    pub(super) fn fell_silent(&self, rank: usize) {
        let silence = match &lock(&self.state).heartbeats[rank] {
            Some(heartbeats) => silence_text(heartbeats.pulse().silence),
            None => "is silent: its connection to the store broke before the first heartbeat".into(),
        };
        self.leaves_by_failing(rank, format!("{silence} (stopped, or cut off from the store?)"));
    }

    fn leaves_by_failing(&self, rank: usize, what: String) {
        let host = match &lock(&self.state).members[rank] {
            Member::Present { host } => host.clone(),
            _ => return,
        };
        self.left(rank);
        self.fail(PeerFailure { rank, host, what });
    }

    /// Notes a heartbeat of somebody present, who counts as lost after a silence of `limit`.
    pub(super) fn heard(&self, life: PeerState, limit: Duration, progress: String) {
        if let Some(heartbeats) = lock(&self.state).heartbeats_of(life) {
            *heartbeats = Some(Heartbeats::new(limit, progress));
        }
    }

    /// Notes a heartbeat that came over another connection than the one that stands for the life; returns what the
    /// latter may have no way to say.
    pub(super) fn heard_beside(&self, life: PeerState, limit: Duration, progress: String) -> Reply {
        let is_present = lock(&self.state).heartbeats_of(life).is_some();
        self.heard(life, limit, progress);
        match self.first_failure() {
            Some(first) => Reply::Failed(first),
            None if is_present => Reply::Heard,
            None => Reply::NoPulse,
        }
    }

    /// Returns how long to listen to somebody before [`nothing_heard`](Self::nothing_heard).
    pub(super) fn listening_time(&self, life: PeerState) -> Duration {
        match lock(&self.state).heartbeats_of(life) {
            Some(Some(heartbeats)) => heartbeats.listening_time(),
            _ => IDLE,
        }
    }

    /// Notes that somebody was listened to in vain for the [`listening_time`](Self::listening_time); returns whether
    /// this one now counts as lost.
    pub(super) fn nothing_heard(&self, life: PeerState) -> bool {
        match lock(&self.state).heartbeats_of(life) {
            Some(Some(heartbeats)) => heartbeats.nothing_heard(),
            _ => false,
        }
    }

    /// Returns what is known of a rank's heartbeats, if it has sent any and is there.
    pub(super) fn pulse(&self, rank: usize) -> Option<HeartbeatStatus> {
        let state = lock(&self.state);
        state.heartbeats.get(rank)?.as_ref().map(Heartbeats::pulse)
    }

    /// Notes that a rank's process ended, which only the launcher can see.
    ///
    /// A rank that ends without having registered leaves the others waiting for it in vain.
    pub(super) fn process_ended(&self, rank: usize, host: &str, what: &str) {
        let mut state = lock(&self.state);
        if let Some(member @ Member::Absent) = state.members.get_mut(rank) {
            *member = Member::NeverCame {
                host: host.to_string(),
                what: what.to_string(),
            };
        }
        let never_came = state.never_came();
        drop(state);
        if let Some(failure) = never_came {
            self.fail(failure);
        }
    }

    /// Reports a failure; the first one wins and reaches every rank.
    pub(super) fn fail(&self, failure: PeerFailure) {
        let is_first = self.failure.send_if_modified(|first| {
            let is_first = first.is_none();
            first.get_or_insert_with(|| failure.clone());
            is_first
        });
        if is_first && let Some(callback) = &self.on_failure {
            callback(&failure);
        }
    }

    /// Returns the first failure.
    pub(in crate::launch) fn first_failure(&self) -> Option<PeerFailure> {
        self.failure.borrow().clone()
    }

    /// Registers the launcher of a further node; the error is the reply that refuses it.
    pub(super) fn launcher_came(
        &self,
        node_rank: usize,
        world_size: usize,
        host: &str,
        ranks: Range<usize>,
    ) -> Result<(), Reply> {
        let here = host_name(host);
        if world_size != self.world_size {
            return Err(Reply::Rejected(format!(
                "the launcher of node {node_rank} on host {here} has world size {world_size}, but the job has world \
                 size {}",
                self.world_size
            )));
        }
        // A job has no more nodes than ranks.
        if node_rank == 0 || node_rank >= world_size {
            return Err(Reply::Rejected(format!(
                "node {node_rank} is no further node of a job of {world_size} ranks"
            )));
        }
        if ranks.is_empty() || ranks.end > world_size {
            return Err(Reply::Rejected(format!(
                "the launcher of node {node_rank} on host {here} starts ranks {ranks:?}, which are none of a job of \
                 {world_size} ranks"
            )));
        }
        if let Some(failure) = self.first_failure() {
            return Err(Reply::Failed(failure));
        }
        let mut state = lock(&self.state);
        if let Some(first) = state.launchers.get(&node_rank) {
            return Err(Reply::Rejected(format!(
                "two launchers are node {node_rank}: one on host {}, and one on host {here}",
                host_name(&first.host)
            )));
        }
        let launcher = NodeLauncher {
            host: host.to_string(),
            ranks,
            heartbeats: None,
        };
        state.launchers.insert(node_rank, launcher);
        Ok(())
    }

    /// Notes that a launcher has left in good order: it has said how each of its ranks ended.
    pub(super) fn launcher_left(&self, node_rank: usize) {
        lock(&self.state).launchers.remove(&node_rank);
        self.departure.notify_all();
    }

    /// Notes that a launcher's connection closed without a goodbye: it has died, and its ranks with it. Those that have
    /// registered tell so by their own connections.
    pub(super) fn launcher_lost(&self, node_rank: usize) {
        self.lose_ranks_of(node_rank, CONNECTION_LOST);
        self.launcher_left(node_rank);
    }

    /// Notes that nothing comes from a launcher any more although its connection was never closed: its ranks that have
    /// not registered are not waited for.
    pub(super) fn launcher_fell_silent(&self, node_rank: usize) {
        let silence = match lock(&self.state).heartbeats_of(PeerState::Launcher(node_rank)) {
            Some(Some(heartbeats)) => silence_text(heartbeats.pulse().silence),
            _ => return,
        };
        self.lose_ranks_of(node_rank, &silence);
    }

    fn lose_ranks_of(&self, node_rank: usize, how: &str) {
        let mut state = lock(&self.state);
        let Some(NodeLauncher { host, ranks, .. }) = state.launchers.get(&node_rank) else {
            return;
        };
        let (host, ranks) = (host.clone(), ranks.clone());
        let what = format!(
            "the launcher of node {node_rank} on host {}, which starts ranks {} to {}, {how}",
            host_name(&host),
            ranks.start,
            ranks.end - 1
        );
        let mut first = None;
        for rank in ranks {
            if state.members[rank] == Member::Absent {
                let (host, what) = (host.clone(), what.clone());
                state.members[rank] = Member::NeverCame { host, what };
                first.get_or_insert(rank);
            }
        }
        drop(state);
        if let Some(rank) = first {
            self.fail(never_came(rank, &host, &what));
        }
    }

    /// Returns whether no rank and no launcher is present and no client waits for a key.
    #[cfg(feature = "fuzzing")]
    pub(in crate::launch) fn is_idle(&self) -> bool {
        let state = lock(&self.state);
        let is_present = |member: &Member| matches!(member, Member::Present { .. });
        state.waiting.is_empty() && state.launchers.is_empty() && !state.members.iter().any(is_present)
    }

    /// Waits until no rank and no launcher is present, at most for `limit`.
    pub(super) fn wait_until_empty(&self, limit: Duration) {
        let is_present = |member: &Member| matches!(member, Member::Present { .. });
        let state = lock(&self.state);
        let present = |state: &mut State| !state.launchers.is_empty() || state.members.iter().any(is_present);
        let _ = self.departure.wait_timeout_while(state, limit, present);
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

    /// The host of each rank, if all have registered.
    fn all_hosts(&self) -> Option<Vec<String>> {
        let host = |member: &Member| match member {
            Member::Present { host } | Member::Gone { host } => Some(host.clone()),
            Member::Absent | Member::NeverCame { .. } => None,
        };
        self.members.iter().map(host).collect()
    }

    /// The failure that it is when some ranks have registered and another one cannot any more.
    fn never_came(&self) -> Option<PeerFailure> {
        if !self
            .members
            .iter()
            .any(|member| matches!(member, Member::Present { .. }))
        {
            return None;
        }
        self.members.iter().enumerate().find_map(|(rank, member)| match member {
            Member::NeverCame { host, what } => Some(never_came(rank, host, what)),
            _ => None,
        })
    }

    /// The heartbeats of somebody present.
    fn heartbeats_of(&mut self, life: PeerState) -> Option<&mut Option<Heartbeats>> {
        match life {
            PeerState::Rank(rank) => match self.members.get(rank)? {
                Member::Present { .. } => Some(&mut self.heartbeats[rank]),
                _ => None,
            },
            PeerState::Launcher(node_rank) => Some(&mut self.launchers.get_mut(&node_rank)?.heartbeats),
        }
    }
}

/// The failure of a rank that others wait for in vain.
fn never_came(rank: usize, host: &str, what: &str) -> PeerFailure {
    PeerFailure {
        rank,
        host: host.to_string(),
        what: format!("ended without joining the job: {what}"),
    }
}
