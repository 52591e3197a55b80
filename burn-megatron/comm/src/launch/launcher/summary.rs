//! [`LaunchSummary`]: how all ranks ended, which failed first, and with which code the launcher exits.

use std::fmt;
use std::ops::Range;

use signal_hook::low_level::signal_name;

use crate::launch::SECONDARY_FAILURE_EXIT_CODE;
use crate::launch::host::host_name;
use crate::launch::peer_failure::{CONNECTION_LOST, COULD_NOT_BE_STARTED, PeerFailure};
use crate::ranks::ranks_by_text;

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RankOutcome {
    /// It exited with this code.
    Exited(i32),
    /// This signal killed it.
    Killed(i32),
    /// Its status is lost: something else in the launcher's process reaped it.
    Unknown,
}

impl RankOutcome {
    /// Returns whether the process exited with code 0.
    pub fn is_success(&self) -> bool {
        *self == RankOutcome::Exited(0)
    }

    /// Returns the signal, SIGINT or SIGTERM, that the process ended in good order for: its code is 128 + the signal.
    pub fn asked_by(&self) -> Option<i32> {
        let asks = |signal: &i32| *self == RankOutcome::Exited(128 + signal);
        [libc::SIGINT, libc::SIGTERM].into_iter().find(asks)
    }

    /// Returns the code that a shell would give: 128 + signal for a killed process.
    pub fn exit_code(&self) -> i32 {
        match self {
            RankOutcome::Exited(code) => *code,
            RankOutcome::Killed(signal) => 128 + signal,
            RankOutcome::Unknown => 1,
        }
    }
}

impl fmt::Display for RankOutcome {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RankOutcome::Exited(SECONDARY_FAILURE_EXIT_CODE) => {
                write!(
                    formatter,
                    "exit code {SECONDARY_FAILURE_EXIT_CODE} (because another rank failed)"
                )
            }
            RankOutcome::Exited(code) => write!(formatter, "exit code {code}"),
            RankOutcome::Killed(signal) => write!(formatter, "killed by {}", signal_text(*signal)),
            RankOutcome::Unknown => write!(formatter, "exit status lost"),
        }
    }
}

/// The end of one rank's process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankEnd {
    /// The rank.
    pub rank: usize,
    /// Its process id.
    pub pid: u32,
    /// How it ended.
    pub outcome: RankOutcome,
    /// The last signal that the launcher sent to it.
    pub signal_sent: Option<i32>,
}

impl RankEnd {
    /// Returns whether this rank failed on its own: not because of another rank, nor at the launcher's hand, nor
    /// because it was asked to end.
    pub fn is_primary_failure(&self) -> bool {
        !self.outcome.is_success()
            && self.outcome.asked_by().is_none()
            && self.outcome != RankOutcome::Exited(SECONDARY_FAILURE_EXIT_CODE)
            && self.signal_sent.is_none()
    }

    fn is_killed_by_launcher(&self) -> bool {
        matches!(self.outcome, RankOutcome::Killed(signal) if self.signal_sent == Some(signal))
    }
}

impl fmt::Display for RankEnd {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "rank {} (pid {}): {}", self.rank, self.pid, self.outcome)
    }
}

/// How a job ended. Its `Display` is the line that the launcher prints.
#[derive(Clone, Debug)]
pub struct LaunchSummary {
    /// The ranks of this node.
    ranks: Range<usize>,
    ends: Vec<RankEnd>,
    reported: Option<PeerFailure>,
    /// Whether the rank that was reported has said why itself.
    is_said: bool,
    interrupt: Interrupt,
}

/// Which signal has come, and where.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Interrupt {
    /// To this launcher.
    pub(super) here: Option<i32>,
    /// True if one had come to the launcher of another node, which does not start its ranks again, when something
    /// failed here.
    pub(super) elsewhere: bool,
}

/// Stands for the reason of a failure that the rank itself has printed.
const SAID: &str = "its message is above";

impl LaunchSummary {
    /// `ends` in the order of time; `reported` is the first failure that the store learned of.
    pub(super) fn new(
        ranks: Range<usize>,
        ends: Vec<RankEnd>,
        reported: Option<PeerFailure>,
        interrupt: Interrupt,
    ) -> LaunchSummary {
        LaunchSummary {
            ranks,
            ends,
            reported,
            is_said: false,
            interrupt,
        }
    }

    /// The summary of a launcher that has nothing to start: a success.
    pub fn of_no_ranks() -> LaunchSummary {
        LaunchSummary::new(0..0, Vec::new(), None, Interrupt::default())
    }

    /// Leaves the reason of the first failure out of what is printed if its rank has printed it already.
    pub(super) fn leaving_out(self, has_said: impl FnOnce(&PeerFailure) -> bool) -> LaunchSummary {
        LaunchSummary {
            is_said: self.reported.as_ref().is_some_and(has_said),
            ..self
        }
    }

    /// Returns the end of each rank, in the order of time.
    pub fn ends(&self) -> &[RankEnd] {
        &self.ends
    }

    /// Returns the first failure that a rank, or the store, reported.
    pub fn reported_failure(&self) -> Option<&PeerFailure> {
        self.reported.as_ref()
    }

    /// Returns the first failure of the job if it was that of a rank on another node.
    pub fn failure_elsewhere(&self) -> Option<&PeerFailure> {
        self.reported
            .as_ref()
            .filter(|failure| !self.ranks.contains(&failure.rank))
    }

    /// Returns whether all ranks of this node exited with code 0 and were not interrupted, and no rank of another node
    /// is known to have failed.
    pub fn is_success(&self) -> bool {
        self.interrupt.here.is_none()
            && self.failure_elsewhere().is_none()
            && self.ends.iter().all(|end| end.outcome.is_success())
    }

    /// Returns the rank of this node that failed first.
    ///
    /// That is the one that was reported first, even if the launcher had to end it, as it must a hung one: those that
    /// waited for it may have ended with a failure of their own. Else it is the first that failed on its own. A rank
    /// that failed because of another is named only if there is no other.
    pub fn first_failure(&self) -> Option<&RankEnd> {
        let failed = || self.ends.iter().filter(|end| !end.outcome.is_success());
        let is_secondary = |end: &RankEnd| end.outcome == RankOutcome::Exited(SECONDARY_FAILURE_EXIT_CODE);
        let reported_rank = self.reported.as_ref().map(|failure| failure.rank);
        failed()
            .find(|end| Some(end.rank) == reported_rank && !is_secondary(end))
            .or_else(|| failed().find(|end| end.is_primary_failure()))
            .or_else(|| failed().find(|end| Some(end.rank) == reported_rank))
            .or_else(|| failed().next())
    }

    /// Returns the launcher's exit code: 128 + signal if interrupted, else that of the rank that failed first, or
    /// [`SECONDARY_FAILURE_EXIT_CODE`] if that was on another node, else 0.
    pub fn exit_code(&self) -> i32 {
        match self.interrupt.here {
            Some(signal) => 128 + signal,
            None if self.failure_elsewhere().is_some() => SECONDARY_FAILURE_EXIT_CODE,
            None => self.first_failure().map_or(0, |end| end.outcome.exit_code()),
        }
    }

    /// Returns whether a restart may help: a rank has failed that could be started, and no signal has asked the ranks
    /// to end.
    pub(super) fn asks_for_restart(&self) -> bool {
        let has_started = |failure: &PeerFailure| !failure.what.starts_with(COULD_NOT_BE_STARTED);
        let may_help = !self.interrupt.elsewhere && self.reported.as_ref().is_none_or(has_started);
        self.has_failed_unasked() && may_help
    }

    /// Returns the rank of this node that failed first, of a job that failed here and was not asked to end.
    pub(super) fn failure_here(&self) -> Option<&RankEnd> {
        let is_here = !self.was_asked_to_end() && self.failure_elsewhere().is_none();
        self.first_failure().filter(|_| is_here)
    }

    fn was_asked_to_end(&self) -> bool {
        self.interrupt.here.is_some() || self.asked_by().is_some()
    }

    /// Returns whether a failure is only that of ranks whose launcher was interrupted.
    pub(super) fn is_end_of_interrupted_node(&self) -> bool {
        self.interrupt.elsewhere && self.has_failed_unasked()
    }

    fn has_failed_unasked(&self) -> bool {
        !self.is_success() && !self.was_asked_to_end()
    }

    /// The summary of a job that a signal ends before it is restarted.
    pub(super) fn interrupted(self, signal: Option<i32>) -> LaunchSummary {
        let elsewhere = self.interrupt.elsewhere;
        let interrupt = Interrupt {
            here: signal,
            elsewhere,
        };
        LaunchSummary { interrupt, ..self }
    }

    /// Returns the signal for which all ranks ended in good order, though it did not come to the launcher.
    fn asked_by(&self) -> Option<i32> {
        let signal = self.ends.first()?.outcome.asked_by()?;
        let is_same = |end: &RankEnd| end.outcome.asked_by() == Some(signal);
        (self.reported.is_none() && self.ends.iter().all(is_same)).then_some(signal)
    }

    /// Writes how the failed ranks ended, except those that `left_out` names.
    fn write_failures(
        &self,
        formatter: &mut fmt::Formatter<'_>,
        beginning: &str,
        left_out: impl Fn(&RankEnd) -> bool,
    ) -> fmt::Result {
        let failures = self
            .ends
            .iter()
            .filter(|end| !end.outcome.is_success() && !left_out(end));
        let how = |end: &RankEnd| {
            let by_whom = if end.is_killed_by_launcher() {
                " by the launcher"
            } else {
                ""
            };
            format!("{}{by_whom}", end.outcome)
        };
        // Many ranks end alike.
        let alike = ranks_by_text(failures.map(|end| (end.rank, how(end))));
        for (index, (how, ranks)) in alike.iter().enumerate() {
            formatter.write_str(if index == 0 { beginning } else { ", " })?;
            write!(formatter, "{}: {how}", ranks.named())?;
        }
        Ok(())
    }
}

impl fmt::Display for LaunchSummary {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(signal) = self.interrupt.here {
            write!(
                formatter,
                "interrupted by {}; all {} ranks have ended",
                signal_text(signal),
                self.ranks.len()
            )?;
            let killed = self
                .ends
                .iter()
                .filter(|end| end.outcome == RankOutcome::Killed(libc::SIGKILL))
                .count();
            if killed > 0 {
                write!(formatter, ", {killed} of them killed")?;
            }
            let is_answer =
                |end: &RankEnd| end.is_killed_by_launcher() || end.outcome == RankOutcome::Exited(128 + signal);
            return self.write_failures(formatter, "; ", is_answer);
        }
        if let Some(failure) = self.failure_elsewhere() {
            write!(
                formatter,
                "rank {} on host {} (another node) failed first: {}",
                failure.rank,
                host_name(&failure.host),
                state(&failure.what)
            )?;
            return self.write_failures(formatter, "; here ", |_| false);
        }
        if let Some(signal) = self.asked_by() {
            let (ranks, signal) = (self.ranks.len(), signal_text(signal));
            return write!(formatter, "all {ranks} ranks stopped in good order, asked by {signal}");
        }
        let Some(first) = self.first_failure() else {
            return write!(formatter, "all {} ranks succeeded", self.ranks.len());
        };
        write!(
            formatter,
            "rank {} (pid {}) failed first: {}",
            first.rank, first.pid, first.outcome
        )?;
        if first.is_killed_by_launcher() {
            formatter.write_str(" by the launcher")?;
        }
        match &self.reported {
            Some(reported) if reported.rank != first.rank && self.is_said => {
                write!(formatter, " (reported before: rank {}, {SAID})", reported.rank)?;
            }
            Some(reported) if reported.rank != first.rank => write!(formatter, " (reported before: {reported})")?,
            Some(_) if self.is_said => write!(formatter, " ({SAID})")?,
            // What the launcher sees of a dead process says more than that its connection closed.
            Some(reported) if reported.what != CONNECTION_LOST && reported.what != first.outcome.to_string() => {
                write!(formatter, " ({})", state(&reported.what))?;
            }
            _ => {}
        }
        self.write_failures(formatter, "; then ", |end| end.rank == first.rank)
    }
}

/// What happened to a rank, without the verb of a state.
fn state(what: &str) -> &str {
    what.strip_prefix("is ").unwrap_or(what)
}

/// Returns `signal 9 (SIGKILL)`.
pub(super) fn signal_text(signal: i32) -> String {
    match signal_name(signal) {
        Some(name) => format!("signal {signal} ({name})"),
        None => format!("signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(rank: usize, outcome: RankOutcome, signal_sent: Option<i32>) -> RankEnd {
        RankEnd {
            rank,
            pid: 1000 + rank as u32,
            outcome,
            signal_sent,
        }
    }

    fn exited(rank: usize, code: i32) -> RankEnd {
        end(rank, RankOutcome::Exited(code), None)
    }

    fn killed(rank: usize, signal: i32) -> RankEnd {
        end(rank, RankOutcome::Killed(signal), None)
    }

    fn killed_by_launcher(rank: usize, signal: i32) -> RankEnd {
        end(rank, RankOutcome::Killed(signal), Some(signal))
    }

    /// Summary of ranks that were not interrupted, with the rank that was reported, and what of it.
    fn summary<const N: usize>(
        ranks: Range<usize>,
        ends: [RankEnd; N],
        reported: Option<(usize, &str)>,
    ) -> LaunchSummary {
        let reported = reported.map(|(rank, what)| PeerFailure::new(rank, "node/boot", what));
        LaunchSummary::new(ranks, ends.to_vec(), reported, Interrupt::default())
    }

    /// Checks what is printed, and the exit code.
    fn check(summary: &LaunchSummary, code: i32, line: &str) {
        assert_eq!((summary.exit_code(), summary.to_string().as_str()), (code, line));
    }

    #[test]
    fn killed_rank_is_first_and_others_follow() {
        let ends = [killed(2, 9), exited(0, 1), exited(3, 0), exited(1, 1)];
        check(
            &summary(0..4, ends, Some((2, CONNECTION_LOST))),
            137,
            "rank 2 (pid 1002) failed first: killed by signal 9 (SIGKILL); then ranks 0, 1: exit code 1",
        );
    }

    #[test]
    fn secondary_failure_is_never_the_first_cause() {
        let ends = [exited(0, SECONDARY_FAILURE_EXIT_CODE), exited(1, 3)];
        assert_eq!(summary(0..2, ends.clone(), None).exit_code(), 3);
        let summary = summary(0..2, ends, Some((1, "loss is not finite")));
        assert_eq!(summary.first_failure().unwrap().rank, 1);
        let then = "; then rank 0: exit code 75 (because another rank failed)";
        let first = "rank 1 (pid 1001) failed first: exit code 3";
        check(&summary, 3, &format!("{first} (loss is not finite){then}"));
        // A reason that the rank has printed is not printed again.
        let summary = summary.leaving_out(|failure| failure.what == "loss is not finite");
        check(&summary, 3, &format!("{first} (its message is above){then}"));
    }

    #[test]
    fn store_decides_between_ends_at_the_same_time() {
        let ends = [exited(0, 1), killed(1, 11)];
        for (reported, first) in [(Some((1, CONNECTION_LOST)), 1), (None, 0)] {
            let summary = summary(0..2, ends.clone(), reported);
            assert_eq!(summary.first_failure().unwrap().rank, first);
        }
    }

    #[test]
    fn ranks_ended_by_the_launcher_are_no_cause() {
        check(
            &summary(0..2, [killed_by_launcher(0, 15), exited(1, 3)], None),
            3,
            "rank 1 (pid 1001) failed first: exit code 3; then rank 0: killed by signal 15 (SIGTERM) by the launcher",
        );
    }

    #[test]
    fn failure_on_another_node_is_named_and_has_the_secondary_code() {
        let reported = Some((1, "loss is not finite"));
        let summary = |ends| summary(2..4, ends, reported);
        let here = summary([exited(3, SECONDARY_FAILURE_EXIT_CODE), exited(2, 0)]);
        check(
            &here,
            75,
            "rank 1 on host node (another node) failed first: loss is not finite; here rank 3: exit code 75 (because \
             another rank failed)",
        );
        assert!(!here.is_success());
        // Also where all ranks of this node had ended before.
        assert_eq!(summary([exited(2, 0), exited(3, 0)]).exit_code(), 75);
    }

    #[test]
    fn rank_that_the_others_report_is_first_though_the_launcher_killed_it() {
        let hung = [exited(0, SECONDARY_FAILURE_EXIT_CODE), killed_by_launcher(1, 9)];
        check(
            &summary(0..2, hung, Some((1, "did not come to barrier (call 0)"))),
            137,
            "rank 1 (pid 1001) failed first: killed by signal 9 (SIGKILL) by the launcher (did not come to barrier \
             (call 0)); then rank 0: exit code 75 (because another rank failed)",
        );
        // Though those that waited failed on their own.
        let absent = [exited(0, 1), killed_by_launcher(1, 15)];
        check(
            &summary(0..2, absent, Some((1, "did not register within 4s"))),
            143,
            "rank 1 (pid 1001) failed first: killed by signal 15 (SIGTERM) by the launcher (did not register within \
             4s); then rank 0: exit code 1",
        );
    }

    #[test]
    fn ranks_that_were_asked_to_end_have_not_failed() {
        let asked = summary(0..2, [exited(1, 143), exited(0, 143)], None);
        check(
            &asked,
            143,
            "all 2 ranks stopped in good order, asked by signal 15 (SIGTERM)",
        );
        assert!(!asked.is_success());
        // One that leaves the others alone has not been agreed with.
        check(
            &summary(0..2, [exited(1, 143), exited(0, 1)], None),
            1,
            "rank 0 (pid 1000) failed first: exit code 1; then rank 1: exit code 143",
        );
    }

    #[test]
    fn interruption_has_its_own_exit_code() {
        let all_well = summary(0..2, [exited(0, 0), exited(1, 0)], None);
        check(&all_well, 0, "all 2 ranks succeeded");
        let interrupted = all_well.interrupted(Some(2));
        check(
            &interrupted,
            130,
            "interrupted by signal 2 (SIGINT); all 2 ranks have ended",
        );
        assert!(!interrupted.is_success());
        let ends = [end(0, RankOutcome::Exited(1), Some(15)), killed_by_launcher(1, 15)];
        check(
            &summary(0..2, ends, None).interrupted(Some(15)),
            143,
            "interrupted by signal 15 (SIGTERM); all 2 ranks have ended; rank 0: exit code 1",
        );
    }
}
