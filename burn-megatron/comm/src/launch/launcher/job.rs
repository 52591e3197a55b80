//! [`Job`]: the ranks of this node, as often as they are started.
//!
//! Each start has a store, a job id and a token of its own, so that what is left of the one before cannot meddle. Node
//! 0 counts the starts; the others find out by the token that its store accepts.

use std::fs;
use std::ops::Range;
use std::sync::mpsc::{self, Receiver};

use super::children::Children;
use super::event::Event;
use super::interrupts::Interrupts;
use super::job_store::{JobStore, common_token};
use super::joining::Joining;
use super::meeting::Meeting;
use super::output::{self, LastWords};
use super::watch::Watch;
use super::{LaunchSummary, Launcher, RankEnd, RankOutcome};
use crate::launch::error::LaunchError;
use crate::launch::host::own_host;
use crate::launch::identity::{JobToken, random_job_id};
use crate::launch::liveness::Rhythm;
use crate::launch::peer_failure::{COULD_NOT_BE_STARTED, PeerFailure};
use crate::launch::{SECONDARY_FAILURE_EXIT_CODE, log_stderr};

/// Lines that are printed of a rank that failed first and whose output was not.
const LAST_LINES: usize = 20;

/// What all starts of the ranks have in common.
pub(super) struct Job<'a> {
    launcher: &'a Launcher,
    ranks: Range<usize>,
    rhythm: Rhythm,
    token: JobToken,
}

impl<'a> Job<'a> {
    /// Prepares the ranks of this node.
    ///
    /// # Errors
    /// The nodes' numbers do not fit, or they have no common secret.
    pub(super) fn new(launcher: &'a Launcher) -> Result<Job<'a>, LaunchError> {
        Ok(Job {
            launcher,
            ranks: launcher.local_ranks()?,
            rhythm: Rhythm::new(launcher.heartbeat_limit, launcher.timeout)?,
            token: match &launcher.nodes {
                Some(nodes) => common_token(nodes.count)?,
                None => JobToken::random()?,
            },
        })
    }

    /// Starts the store, or joins that of node 0, once the ranks have been started `restarts` times; `None` if a signal
    /// comes first.
    ///
    /// # Errors
    /// The store's port is taken, or there is no such interface; node 0's store cannot be reached or refuses this node.
    pub(super) fn meet(
        &self,
        restarts: usize,
        events: &mpsc::Sender<Event>,
        interrupts: Option<&Interrupts>,
    ) -> Result<Option<Meeting>, LaunchError> {
        let launcher = self.launcher;
        let is_interrupted = || interrupts.is_some_and(|interrupts| interrupts.signal().is_some());
        if is_interrupted() {
            return Ok(None);
        }
        if let Some(nodes) = launcher.nodes.as_ref().filter(|nodes| nodes.rank > 0) {
            let starts = restarts..=launcher.max_restarts.max(restarts);
            let tokens: Vec<_> = starts.map(|count| (count, self.token.of_restart(count))).collect();
            let joining = Joining {
                nodes,
                world_size: launcher.world_size,
                rhythm: self.rhythm,
                events,
            };
            return joining.join(&tokens, launcher.rendezvous_timeout, is_interrupted);
        }
        let (job_id, token) = (random_job_id()?, self.token.of_restart(restarts));
        let server = launcher.start_store(&job_id, &token, events.clone())?;
        let address = server.address();
        let nodes = launcher.nodes.as_ref();
        let host = nodes.map_or(address.ip().to_string(), |nodes| nodes.master_addr.clone());
        Ok(Some(Meeting {
            store: JobStore::Hosted(server),
            master: (host, address.port()),
            job_id,
            token,
            restarts,
        }))
    }

    /// Starts the ranks and watches until all have ended. Prints to stderr which failed first, if one did. `run` is the
    /// id of the first start.
    ///
    /// # Errors
    /// A rank cannot be started (those that were are killed), or survives SIGKILL.
    pub(super) fn play(
        &self,
        meeting: &Meeting,
        run: &str,
        events: mpsc::Sender<Event>,
        inbox: &Receiver<Event>,
    ) -> Result<LaunchSummary, LaunchError> {
        let (launcher, ranks, store) = (self.launcher, &self.ranks, &meeting.store);
        let environment = launcher.rank_environment(meeting, run, ranks.len());
        let mut children = Children::new(launcher.output.clone(), ranks.clone(), events)?;
        let spawned = children.spawn_all(launcher.world_size, &launcher.arguments, &environment);
        if let Err(LaunchError::Spawn { rank, source, .. }) = &spawned {
            // Before its own ranks go, or other nodes would name those, or wait for them.
            let what = format!("{COULD_NOT_BE_STARTED}: {source}");
            store.fail(PeerFailure::new(*rank, own_host(), what));
        }
        let last_words = children.last_words();
        let spans_nodes = launcher.nodes.is_some();
        let ended = match spawned {
            Ok(()) => Watch::new(children, store, launcher).run(inbox),
            Err(error) => {
                children.end();
                Err(error)
            }
        };
        remove_shared_memory(&meeting.job_id);

        let (ends, mut interrupt) = match ended {
            Ok(ended) => ended,
            Err(error) => {
                if spans_nodes {
                    store.leave();
                }
                return Err(error);
            }
        };
        // The signal may have come after the failure.
        let has_failed = ends.iter().any(|end| !end.outcome.is_success());
        interrupt.elsewhere |= launcher.asks_for_interrupts() && has_failed && store.was_any_interrupted();
        if spans_nodes {
            let blames_others = |end: &RankEnd| end.outcome == RankOutcome::Exited(SECONDARY_FAILURE_EXIT_CODE);
            if ends.iter().any(blames_others) && !ends.iter().any(RankEnd::is_primary_failure) {
                store.wait_for_cause();
            }
            store.leave();
        }
        let has_said = |failure: &PeerFailure| last_words.contain(failure.rank, failure.own_text());
        let summary = LaunchSummary::new(ranks.clone(), ends, store.first_failure(), interrupt).leaving_out(has_said);
        if !summary.is_success() {
            self.print_last_words(&summary, &last_words);
            log_stderr(format_args!("[launcher] {summary}"));
        }
        Ok(summary)
    }

    /// Prints the last lines of the rank that failed first, if its output was not printed.
    fn print_last_words(&self, summary: &LaunchSummary, last_words: &LastWords) {
        if let Some(end) = summary.failure_here()
            && !self.launcher.output.logs(end.rank)
        {
            let said = summary.reported_failure().filter(|failure| failure.rank == end.rank);
            let said = said.map_or("", PeerFailure::own_text);
            for line in output::prefixed(end.rank, last_words.last_lines(end.rank, said, LAST_LINES)) {
                log_stderr(format_args!("{line}"));
            }
        }
    }
}

/// Removes what killed ranks may have left in shared memory: files named after this job.
fn remove_shared_memory(job_id: &str) {
    let Ok(files) = fs::read_dir("/dev/shm") else { return };
    for file in files.flatten() {
        if file.file_name().to_string_lossy().contains(job_id) {
            tracing::debug!(path = ?file.path(), "removing shared memory that a rank left");
            let _ = fs::remove_file(file.path());
        }
    }
}
