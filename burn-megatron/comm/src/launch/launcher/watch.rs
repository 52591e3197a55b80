//! [`Watch`]: the launcher's loop, from the last rank's start to the last rank's end.
//!
//! Whatever happens, it ends: each phase that begins when something went wrong has a time limit.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use super::Launcher;
use super::children::Children;
use super::event::Event;
use super::job_store::JobStore;
use super::summary::{Interrupt, RankEnd, signal_text};
use crate::launch::error::LaunchError;
use crate::launch::host::own_host;
use crate::launch::peer_failure::PeerFailure;
use crate::launch::store::deadline_after;

/// Time between SIGTERM and SIGKILL when a rank has failed.
const TERMINATE_LIMIT: Duration = Duration::from_secs(2);
/// Time for the kernel to end what got SIGKILL.
const KILL_LIMIT: Duration = Duration::from_secs(5);
/// Time for the last output, when ranks failed and no process reads it.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// What the loop waits for in addition to the ranks' ends.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Phase {
    /// All is well.
    Running,
    /// A rank has failed; the others may notice and report on their own until then.
    Grace(Instant),
    /// The ranks got SIGTERM, and SIGKILL follows then.
    Terminating(Instant),
    /// The ranks got SIGKILL; beyond this moment the launcher gives up.
    Killing(Instant),
}

/// The launcher's loop.
pub(super) struct Watch<'a> {
    children: Children,
    store: &'a JobStore,
    launcher: &'a Launcher,
    phase: Phase,
    ends: Vec<RankEnd>,
    interrupt: Interrupt,
}

impl<'a> Watch<'a> {
    pub(super) fn new(children: Children, store: &'a JobStore, launcher: &'a Launcher) -> Watch<'a> {
        Watch {
            children,
            store,
            launcher,
            phase: Phase::Running,
            ends: Vec::new(),
            interrupt: Interrupt::default(),
        }
    }

    /// Watches until every rank is reaped; returns their ends in the order of time, and what interrupted them.
    pub(super) fn run(mut self, inbox: &Receiver<Event>) -> Result<(Vec<RankEnd>, Interrupt), LaunchError> {
        while !self.children.running().is_empty() {
            match self.next_event(inbox) {
                Some(Event::Ended { rank }) => self.ended(rank),
                Some(Event::FailureReported) => self.begin_grace(),
                Some(Event::Interrupted(signal)) => self.interrupted(signal),
                None => self.time_is_up()?,
            }
        }
        let all_well = self.interrupt.here.is_none() && self.ends.iter().all(|end| end.outcome.is_success());
        self.children
            .drain_outputs(if all_well { None } else { Some(DRAIN_LIMIT) });
        Ok((self.ends, self.interrupt))
    }

    /// The next event, or `None` when the phase's time is up.
    fn next_event(&self, inbox: &Receiver<Event>) -> Option<Event> {
        let limit = match self.phase {
            Phase::Running => Duration::from_secs(3600),
            Phase::Grace(end) | Phase::Terminating(end) | Phase::Killing(end) => {
                end.saturating_duration_since(Instant::now())
            }
        };
        match inbox.recv_timeout(limit) {
            Ok(event) => Some(event),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => unreachable!("`children` holds a sender"),
        }
    }

    fn ended(&mut self, rank: usize) {
        let end = self.children.reap(rank);
        let another_was_first = self.store.first_failure().is_some_and(|first| first.rank != rank);
        self.store.process_ended(rank, end.outcome);
        // A rank that says it ends only because of another is no news to the store.
        if end.is_primary_failure() {
            self.store
                .fail(PeerFailure::new(rank, own_host(), end.outcome.to_string()));
        }
        // Ranks that were asked to end do so one after the other, and may take their time to save what they have.
        if !end.outcome.is_success() && end.outcome.asked_by().is_none() {
            let is_first = !another_was_first && !self.ends.iter().any(RankEnd::is_primary_failure);
            if is_first && end.is_primary_failure() {
                self.children.say(format!(
                    "[launcher] {end}; the others get {:?} to end on their own",
                    self.launcher.failure_grace
                ));
            }
            self.begin_grace();
        }
        self.ends.push(end);
    }

    fn begin_grace(&mut self) {
        if self.phase == Phase::Running {
            self.phase = Phase::Grace(deadline_after(self.launcher.failure_grace));
            // The store of a node that was interrupted does not stay for long.
            self.interrupt.elsewhere = self.launcher.asks_for_interrupts() && self.store.was_any_interrupted();
        }
    }

    fn interrupted(&mut self, signal: i32) {
        if self.phase == Phase::Running {
            self.children.say(format!(
                "[launcher] {}: the ranks have {:?} to end in good order; once more to kill them",
                signal_text(signal),
                self.launcher.interrupt_grace
            ));
            self.interrupt.here = Some(signal);
            self.store.note_interrupt();
            self.children.ask_to_end(signal);
            self.phase = Phase::Terminating(deadline_after(self.launcher.interrupt_grace));
        } else if !matches!(self.phase, Phase::Killing(_)) {
            self.store.note_interrupt();
            self.kill();
        }
    }

    fn time_is_up(&mut self) -> Result<(), LaunchError> {
        match self.phase {
            Phase::Running => {}
            Phase::Grace(_) => {
                self.children.ask_to_end(libc::SIGTERM);
                self.phase = Phase::Terminating(deadline_after(TERMINATE_LIMIT));
            }
            Phase::Terminating(_) => self.kill(),
            Phase::Killing(_) => {
                let (ranks, pids) = self.children.running().into_iter().unzip();
                return Err(LaunchError::RanksStuck {
                    ranks,
                    pids,
                    waited: KILL_LIMIT,
                });
            }
        }
        Ok(())
    }

    fn kill(&mut self) {
        self.children.kill();
        self.phase = Phase::Killing(deadline_after(KILL_LIMIT));
    }
}
