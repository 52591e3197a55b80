//! [`blame`]: what a rank that suspects another one tells all ranks, and in which condition that other rank is.

use std::time::Duration;

use super::failure_signal::FailureSignal;
use super::suspicions::Suspicions;
use crate::launch::peer_failure::{DID_NOT_COME, PeerFailure, silence_text};
use crate::launch::store::Store;

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
    let mut culprit = match suspicions.first_cause(CAUSE_LIMIT) {
        Ok(culprit) => culprit?,
        Err(known) => return Some(known),
    };
    add_condition(suspicions.store(), &mut culprit);
    failure.raise(culprit);
    failure.cause()
}

/// Says of a rank whether its heartbeats have stopped, or come although the rank itself does not.
fn add_condition(store: &Store, culprit: &mut PeerFailure) {
    let Ok(Some(status)) = store.heartbeat_status(culprit.rank) else {
        return;
    };
    let what = &culprit.what;
    if status.silence > status.limit / SILENT_SHARE {
        culprit.what = format!("{}; {what}", silence_text(status.silence));
    } else if what.starts_with(DID_NOT_COME) {
        culprit.what = format!("is late: its heartbeats arrive, {}; {what}", status.progress);
    }
}
