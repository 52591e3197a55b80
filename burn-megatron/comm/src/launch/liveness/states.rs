//! The rules of liveness as transition tables, without clocks, sockets or locks: [`PeerState`] is what the store makes
//! of a peer, [`StoreState`] what a peer makes of the store, and [`accuse`] which failure counts.

use std::time::{Duration, Instant};

use super::silence::Heartbeats;
use crate::launch::peer_failure::{CONNECTION_LOST, PeerFailure, silence_text};

/// What is reported of a rank that ended before it registered, up to how.
pub(super) const NEVER_CAME: &str = "ended without joining the job";
/// What is reported of a rank whose connection carries nothing any more and never carried a heartbeat.
const NEVER_HEARD: &str = "is silent: its connection to the store broke before the first heartbeat";
/// How long to listen to a peer that has sent no heartbeat yet.
const IDLE: Duration = Duration::from_secs(1);
/// Heartbeats without an answer before a new connection is tried, and before it is tried again.
const PATIENCE: u32 = 3;

/// A rank, or the launcher of a further node, as the store sees it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum PeerState {
    /// Has not registered.
    #[default]
    Absent,
    /// Registered and not gone; with its heartbeats, once it has sent one.
    Present(Option<Heartbeats>),
    /// Said goodbye.
    Left,
    /// Went without a goodbye, or fell silent.
    Lost,
    /// Its process, or its launcher, ended before it registered.
    NeverCame,
}

/// What happens to a peer.
#[derive(Clone, Debug)]
pub(in crate::launch) enum Event {
    /// It asks to be let in.
    Register,
    /// It is heard, over whichever connection.
    Heartbeat(Heartbeats),
    /// It was listened to in vain for the [`listening_time`](PeerState::listening_time).
    NothingHeard,
    /// It says that it leaves.
    Goodbye,
    /// Its connection closes without a goodbye.
    Closed,
    /// Its connection carries nothing any more, though it was never closed; seen at this moment.
    Unreachable(Instant),
    /// Its process, or its launcher, has ended.
    Ended,
}

/// What follows from an event.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::launch) enum Action {
    /// Nothing.
    Ignore,
    /// It is let in, or heard, or it leaves: in good order.
    Accept,
    /// It is not let in.
    Refuse,
    /// It counts as silent: its connection is given up.
    GiveUp,
    /// It is lost: what every rank is to read of it, unless another one failed first.
    Report(String),
}

impl PeerState {
    /// Returns what the peer is after `event`, and what follows.
    pub(super) fn on(self, event: Event) -> (PeerState, Action) {
        use PeerState::{Absent, Left, Lost, NeverCame, Present};
        match (self, event) {
            (Absent, Event::Register) => (Present(None), Action::Accept),
            (state, Event::Register) => (state, Action::Refuse),
            // One that has come speaks for itself.
            (Absent, Event::Ended) => (NeverCame, Action::Report(NEVER_CAME.into())),
            (Present(_), Event::Heartbeat(heartbeats)) => (Present(Some(heartbeats)), Action::Accept),
            (Present(Some(heartbeats)), Event::NothingHeard) => {
                let heartbeats = heartbeats.nothing_heard();
                let action = if heartbeats.is_silent() {
                    Action::GiveUp
                } else {
                    Action::Ignore
                };
                (Present(Some(heartbeats)), action)
            }
            (Present(_), Event::Goodbye) => (Left, Action::Accept),
            (Present(_), Event::Closed) => (Lost, Action::Report(CONNECTION_LOST.into())),
            (Present(heartbeats), Event::Unreachable(now)) => {
                let silence = heartbeats.map_or(NEVER_HEARD.into(), |known| silence_text(known.status(now).silence));
                (
                    Lost,
                    Action::Report(format!("{silence} (stopped, or cut off from the store?)")),
                )
            }
            // Who has gone stays gone, and who has not come has nothing to lose.
            (state, _) => (state, Action::Ignore),
        }
    }

    /// Returns whether it has never registered.
    pub(super) fn is_missing(&self) -> bool {
        matches!(self, PeerState::Absent | PeerState::NeverCame)
    }

    /// Returns how long to listen before [`Event::NothingHeard`].
    pub(super) fn listening_time(&self) -> Duration {
        self.heartbeats().map_or(IDLE, Heartbeats::listening_time)
    }

    /// Returns the heartbeats of a peer that is present and has sent one.
    pub(super) fn heartbeats(&self) -> Option<&Heartbeats> {
        match self {
            PeerState::Present(heartbeats) => heartbeats.as_ref(),
            _ => None,
        }
    }
}

/// The store, as a peer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreState {
    /// It is asked; with the number of heartbeats sent since its last answer.
    Asked(u32),
    /// Too many were not answered: it is not asked any more.
    OutOfReach,
}

/// What happens between a peer and the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StoreEvent {
    /// A heartbeat is due; with the number that may go unanswered.
    BeatDue(u32),
    /// The store answers.
    Answer,
    /// It answers over a second connection, which is used until the first one carries its answers again.
    RelayedAnswer,
}

impl Default for StoreState {
    fn default() -> StoreState {
        StoreState::Asked(0)
    }
}

impl StoreState {
    /// Returns what the store is after `event`.
    pub(super) fn on(self, event: StoreEvent) -> StoreState {
        use StoreState::{Asked, OutOfReach};
        match (self, event) {
            (OutOfReach, _) => OutOfReach,
            (Asked(unanswered), StoreEvent::BeatDue(limit)) if unanswered >= limit => OutOfReach,
            (Asked(unanswered), StoreEvent::BeatDue(_)) => Asked(unanswered + 1),
            (Asked(_), StoreEvent::Answer) => Asked(0),
            (Asked(unanswered), StoreEvent::RelayedAnswer) => Asked(unanswered.min(PATIENCE - 1)),
        }
    }

    /// Returns whether an answer is so late that a second connection is worth a try.
    pub(super) fn is_late(self) -> bool {
        matches!(self, StoreState::Asked(PATIENCE..))
    }

    /// Returns whether it is time to make a second connection where there is none: not with every heartbeat, for all
    /// ranks of a job try when the store's host has too much to do.
    pub(super) fn is_worth_connecting(self) -> bool {
        matches!(self, StoreState::Asked(unanswered) if unanswered >= PATIENCE && unanswered % PATIENCE == 0)
    }
}

/// Makes `cause` the `first` failure unless there is one already; returns whether it is.
pub(super) fn accuse(first: &mut Option<PeerFailure>, cause: &PeerFailure) -> bool {
    let is_first = first.is_none();
    first.get_or_insert_with(|| cause.clone());
    is_first
}
