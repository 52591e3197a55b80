//! [`blame`]: what a rank that suspects another one tells all ranks, and in which condition that other rank is.

use std::time::Duration;

use super::failure_signal::FailureSignal;
use super::suspicions::Suspicions;
use crate::launch::peer_failure::{DID_NOT_COME, PeerFailure, Suspicion, UNKNOWN_HOST, silence_text};
use crate::launch::store::HeartbeatStatus;

/// How long a rank with an error looks whether another rank failed first.
///
/// A dead peer closes its connection to the store and its connections to this rank at the same moment; the store's
/// news takes one hop more.
pub(in crate::launch) const CAUSE_LIMIT: Duration = Duration::from_millis(300);

/// Heartbeats that a rank may miss before it is called silent instead of late: of those that fit into its limit, a
/// third.
const SILENT_SHARE: u32 = 3;

/// Returns who failed first, if this rank suspects another one, and tells every rank.
pub(crate) fn blame(failure: &FailureSignal, suspicions: &Suspicions) -> Option<PeerFailure> {
    let Suspicion { rank, mut what } = match suspicions.first_cause(CAUSE_LIMIT) {
        Ok(culprit) => culprit?,
        Err(known) => return Some(known),
    };
    let status = suspicions.store().rank_status(rank).ok();
    let host = status.as_ref().map_or(UNKNOWN_HOST, |status| &status.host).to_owned();
    if let Some(heartbeats) = status.and_then(|status| status.heartbeats) {
        what = with_condition(what, &heartbeats);
    }
    failure.raise(PeerFailure { rank, host, what });
    failure.cause()
}

/// Adds to what is held against a rank whether its heartbeats have stopped, or come although the rank itself does not.
fn with_condition(what: String, heartbeats: &HeartbeatStatus) -> String {
    if heartbeats.silence > heartbeats.limit / SILENT_SHARE {
        format!("{}; {what}", silence_text(heartbeats.silence))
    } else if what.starts_with(DID_NOT_COME) {
        format!("is late: its heartbeats arrive, {}; {what}", heartbeats.progress)
    } else {
        what
    }
}
