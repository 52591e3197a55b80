//! The thread that listens on the connection that stands for this process: for the first failure, and for the
//! answers to heartbeats.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver};
use std::thread;

use super::failure_signal::FailureSignal;
use super::heartbeat_sender::Beats;
use crate::launch::error::LaunchError;
use crate::launch::peer_failure::PeerFailure;
use crate::launch::store::{Reply, StoreConnection};

/// Starts the thread on a connection whose rank or launcher is registered; what is returned disconnects when it ends.
///
/// `store_lost` is the failure to raise when the store itself goes.
///
/// # Errors
/// The operating system gives no thread.
pub(in crate::launch) fn start_monitor(
    connection: StoreConnection,
    failure: FailureSignal,
    store_lost: PeerFailure,
    beats: Arc<Beats>,
) -> Result<Receiver<()>, LaunchError> {
    let (alive, monitor_ended) = mpsc::channel();
    let monitor = thread::Builder::new().name("failure-monitor".into()).spawn(move || {
        listen(connection, &failure, store_lost, &beats);
        drop(alive);
    });
    monitor.map_err(|source| LaunchError::System {
        action: "cannot start the monitor thread".into(),
        source,
    })?;
    Ok(monitor_ended)
}

/// Listens until the store has heard this rank's goodbye, ends, or is lost.
fn listen(mut connection: StoreConnection, failure: &FailureSignal, store_lost: PeerFailure, beats: &Beats) {
    loop {
        match connection.listen() {
            Ok(Reply::Heard) => beats.answered(),
            Ok(Reply::Failed(first)) => failure.raise_from_store(first),
            Ok(Reply::Done | Reply::Closing) => return,
            Ok(reply) => {
                tracing::error!(?reply, "unexpected message from the store");
                return failure.raise_from_store(store_lost);
            }
            Err(error) => {
                tracing::debug!(%error, "monitor");
                return failure.raise_from_store(store_lost);
            }
        }
    }
}
