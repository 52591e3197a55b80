//! [`Members`]: the ranks of a job and the launchers of its further nodes, as the store sees them, and the first
//! failure.
//!
//! What becomes of one peer is in [`states`](super::states). Here is what follows for the others.

use std::collections::HashMap;
use std::mem;
use std::ops::Range;
use std::time::{Duration, Instant};

use super::states::{Action, Event, NEVER_CAME, PeerState, accuse};
use crate::launch::host::host_name;
use crate::launch::peer_failure::{PeerFailure, UNKNOWN_HOST, silence_text};
use crate::launch::store::{NodeTable, PeerId, RankStatus, Reply};
use crate::ranks::RankSet;

/// All peers of the store.
#[derive(Debug)]
pub(in crate::launch) struct Members {
    ranks: Vec<Rank>,
    /// The launcher of each further node, by the node's number, while it is there.
    launchers: HashMap<usize, Launcher>,
    /// Whether a launcher has left before any failure: its ranks were done.
    is_any_launcher_done: bool,
    first_failure: Option<PeerFailure>,
}

#[derive(Clone, Debug, Default)]
struct Rank {
    state: PeerState,
    /// Known from its registration or from its end.
    host: String,
    /// How it ended if it never came.
    end: String,
}

#[derive(Debug)]
struct Launcher {
    state: PeerState,
    host: String,
    /// The ranks that it starts.
    ranks: Range<usize>,
}

impl Members {
    /// Returns those of a job of `world_size` ranks of which none has come.
    pub(in crate::launch) fn new(world_size: usize) -> Members {
        Members {
            ranks: vec![Rank::default(); world_size],
            launchers: HashMap::new(),
            is_any_launcher_done: false,
            first_failure: None,
        }
    }

    /// Registers a rank; the error is the reply that refuses it.
    pub(in crate::launch) fn register(&mut self, rank: usize, world_size: usize, host: &str) -> Result<(), Reply> {
        let here = host_name(host);
        self.check_world_size(|| format!("rank {rank} on host {here}"), world_size)?;
        if rank >= world_size {
            return rejected(format!(
                "rank {rank} on host {here} is not below world size {world_size}"
            ));
        }
        self.check_failure()?;
        if self.on(PeerId::Rank(rank), Event::Register) == Action::Refuse {
            let Rank { state, host, end } = &self.ranks[rank];
            let first = host_name(host);
            return rejected(match state {
                PeerState::NeverCame => format!("the process of rank {rank} has already ended: {end}"),
                PeerState::Absent | PeerState::Present(_) => {
                    format!("two processes are rank {rank}: one on host {first}, and one on host {here}")
                }
                PeerState::Left | PeerState::Lost => format!(
                    "rank {rank} on host {here} comes too late: rank {rank} on host {first} has already left the job"
                ),
            });
        }
        self.ranks[rank].host = host.into();
        self.accuse_never_came();
        Ok(())
    }

    /// Registers the launcher of a further node; the error is the reply that refuses it.
    pub(in crate::launch) fn register_launcher(
        &mut self,
        node_rank: usize,
        world_size: usize,
        host: &str,
        ranks: Range<usize>,
    ) -> Result<(), Reply> {
        let here = host_name(host);
        self.check_world_size(
            || format!("the launcher of node {node_rank} on host {here}"),
            world_size,
        )?;
        // A job has no more nodes than ranks.
        if node_rank == 0 || node_rank >= world_size {
            return rejected(format!(
                "node {node_rank} is no further node of a job of {world_size} ranks"
            ));
        }
        if ranks.is_empty() || ranks.end > world_size {
            return rejected(format!(
                "the launcher of node {node_rank} on host {here} starts ranks {ranks:?}, which are none of a job of \
                 {world_size} ranks"
            ));
        }
        self.check_failure()?;
        if let Some(Launcher { host: first, .. }) = self.launchers.get(&node_rank) {
            let first = host_name(first);
            return rejected(format!(
                "two launchers are node {node_rank}: one on host {first}, and one on host {here}"
            ));
        }
        let (state, _) = PeerState::Absent.on(Event::Register);
        let host = host.into();
        self.launchers.insert(node_rank, Launcher { state, host, ranks });
        Ok(())
    }

    fn check_world_size(&self, who: impl FnOnce() -> String, world_size: usize) -> Result<(), Reply> {
        if world_size == self.ranks.len() {
            return Ok(());
        }
        let (who, expected) = (who(), self.ranks.len());
        rejected(format!(
            "{who} has world size {world_size}, but the job has world size {expected}"
        ))
    }

    fn check_failure(&self) -> Result<(), Reply> {
        self.first_failure
            .clone()
            .map_or(Ok(()), |first| Err(Reply::Failed(first)))
    }

    /// Notes what has happened to a peer, and returns what follows for it.
    pub(in crate::launch) fn on(&mut self, peer: PeerId, event: Event) -> Action {
        let Some(state) = self.state_mut(peer) else {
            return Action::Ignore;
        };
        let (next, action) = mem::take(state).on(event);
        *state = next;
        let has_gone = matches!(state, PeerState::Left | PeerState::Lost);
        match (peer, &action) {
            (PeerId::Rank(rank), Action::Report(what)) if has_gone => {
                let (host, what) = (self.ranks[rank].host.clone(), what.clone());
                self.accuse(&PeerFailure { rank, host, what });
            }
            // It has died, and its ranks with it. Those that have registered tell so by their own connections.
            (PeerId::Launcher(node_rank), Action::Report(how)) => self.lose_ranks_of(node_rank, how),
            _ => {}
        }
        // Another one may come in the place of a launcher.
        if let (PeerId::Launcher(node_rank), true) = (peer, has_gone) {
            self.launchers.remove(&node_rank);
            self.is_any_launcher_done |= self.first_failure.is_none();
        }
        action
    }

    /// Notes that a rank's process ended, which only the launcher can see.
    ///
    /// A rank that ends without having registered leaves the others waiting for it in vain.
    pub(in crate::launch) fn process_ended(&mut self, rank: usize, host: &str, what: &str) {
        self.never_comes(rank, host, what);
        self.accuse_never_came();
    }

    /// Notes that nothing comes from a launcher any more although its connection was never closed: its ranks that have
    /// not registered are not waited for. It may continue and end them, so it stays.
    pub(in crate::launch) fn launcher_fell_silent(&mut self, node_rank: usize, now: Instant) {
        let launcher = self.launchers.get(&node_rank);
        if let Some(heartbeats) = launcher.and_then(|launcher| launcher.state.heartbeats()) {
            let how = silence_text(heartbeats.status(now).silence);
            self.lose_ranks_of(node_rank, &how);
        }
    }

    fn lose_ranks_of(&mut self, node_rank: usize, how: &str) {
        let Some(Launcher { host, ranks, .. }) = self.launchers.get(&node_rank) else {
            return;
        };
        let (host, ranks) = (host.clone(), ranks.clone());
        let what = format!(
            "the launcher of node {node_rank} on host {}, which starts ranks {} to {}, {how}",
            host_name(&host),
            ranks.start,
            ranks.end - 1
        );
        let lost: Vec<usize> = ranks.filter(|&rank| self.never_comes(rank, &host, &what)).collect();
        if let Some(&first) = lost.first() {
            self.accuse(&self.ranks[first].never_came(first));
        }
    }

    /// Notes that a rank cannot register any more, and how it ended; returns whether that is so.
    fn never_comes(&mut self, rank: usize, host: &str, what: &str) -> bool {
        let never_comes = matches!(self.on(PeerId::Rank(rank), Event::Ended), Action::Report(_));
        if never_comes {
            let known = &mut self.ranks[rank];
            (known.host, known.end) = (host.into(), what.into());
        }
        never_comes
    }

    /// Accuses a rank that never came if others wait for it.
    fn accuse_never_came(&mut self) {
        let mut ranks = self.ranks.iter().enumerate();
        let lost = ranks.find(|(_, rank)| rank.state == PeerState::NeverCame);
        if let (Some((number, rank)), true) = (lost, self.is_any_present()) {
            self.accuse(&rank.never_came(number));
        }
    }

    /// Notes that the rendezvous has run out of time, and returns the ranks that have not registered.
    pub(in crate::launch) fn rendezvous_timed_out(&mut self, timeout: Duration) -> Vec<usize> {
        let missing = self.missing();
        if let Some(&rank) = missing.first() {
            let (host, ranks, all) = (
                UNKNOWN_HOST.into(),
                missing.iter().collect::<RankSet>(),
                self.ranks.len(),
            );
            let what = format!(
                "did not register within {timeout:?}; waiting for {} of {all}",
                ranks.named()
            );
            self.accuse(&PeerFailure { rank, host, what });
        }
        missing
    }

    /// Takes a failure for the job's unless another one was first.
    pub(in crate::launch) fn accuse(&mut self, failure: &PeerFailure) {
        accuse(&mut self.first_failure, failure);
    }

    /// Returns whether a launcher has left before any failure.
    pub(in crate::launch) fn is_any_launcher_done(&self) -> bool {
        self.is_any_launcher_done
    }

    /// Returns the job's first failure.
    pub(in crate::launch) fn first_failure(&self) -> Option<&PeerFailure> {
        self.first_failure.as_ref()
    }

    /// Returns the ranks that have not registered.
    pub(in crate::launch) fn missing(&self) -> Vec<usize> {
        let ranks = self.ranks.iter().enumerate();
        let missing = ranks.filter(|(_, rank)| rank.state.is_missing());
        missing.map(|(rank, _)| rank).collect()
    }

    /// Returns the node of each rank, and the host of rank 0, if all have registered.
    pub(in crate::launch) fn all_nodes(&self) -> Option<(NodeTable, String)> {
        let first = self.ranks.first()?;
        let has_registered = |rank: &Rank| !rank.state.is_missing();
        let nodes = || NodeTable::of_hosts(self.ranks.iter().map(|rank| rank.host.as_str()));
        let are_all = self.ranks.iter().all(has_registered);
        are_all.then(|| (nodes(), first.host.clone()))
    }

    /// Returns what is known of a rank; `None` if there is no such rank.
    pub(in crate::launch) fn status_of(&self, rank: usize, now: Instant) -> Option<RankStatus> {
        let Rank { host, state, .. } = self.ranks.get(rank)?;
        Some(RankStatus {
            host: host.clone(),
            heartbeats: state.heartbeats().map(|heartbeats| heartbeats.status(now)),
        })
    }

    /// Returns how long to listen to a peer before [`Event::NothingHeard`].
    pub(in crate::launch) fn listening_time(&mut self, peer: PeerId) -> Duration {
        self.state_mut(peer)
            .map_or(PeerState::Absent.listening_time(), |state| state.listening_time())
    }

    /// Returns whether no rank and no launcher is present.
    pub(in crate::launch) fn is_empty(&self) -> bool {
        self.launchers.is_empty() && !self.is_any_present()
    }

    fn is_any_present(&self) -> bool {
        self.ranks
            .iter()
            .any(|rank| matches!(rank.state, PeerState::Present(_)))
    }

    fn state_mut(&mut self, peer: PeerId) -> Option<&mut PeerState> {
        Some(match peer {
            PeerId::Rank(rank) => &mut self.ranks.get_mut(rank)?.state,
            PeerId::Launcher(node_rank) => &mut self.launchers.get_mut(&node_rank)?.state,
        })
    }
}

impl Rank {
    /// The failure that it is if others wait for this rank.
    fn never_came(&self, rank: usize) -> PeerFailure {
        PeerFailure::new(rank, self.host.clone(), format!("{}: {}", NEVER_CAME, self.end))
    }
}

fn rejected(why: String) -> Result<(), Reply> {
    Err(Reply::Rejected(why))
}
