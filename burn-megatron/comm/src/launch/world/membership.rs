//! [`Membership`]: the connection that stands for a rank, or for a further node's launcher, until it leaves.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use parking_lot::Mutex;

use crate::launch::error::LaunchError;
use crate::launch::liveness::{Beats, FailureSignal, HeartbeatOptions, HeartbeatSender, start_monitor};
use crate::launch::peer_failure::PeerFailure;
use crate::launch::server::StoreServer;
use crate::launch::store::StoreConnection;

/// Longest time to send a goodbye, and to hear that it was understood.
const GOODBYE_LIMIT: Duration = Duration::from_secs(2);
/// How long a hosted store stays when a rank has failed: enough for the news to reach the others.
const FAILED_LINGER: Duration = Duration::from_secs(1);

/// This rank's place in the store's list of the living, until it leaves.
#[derive(Debug)]
pub(in crate::launch) struct Membership {
    state: Mutex<Option<Present>>,
    linger: Duration,
    beats: Arc<Beats>,
}

#[derive(Debug)]
struct Present {
    connection: StoreConnection,
    /// Disconnects when the monitor thread ends.
    monitor_ended: Receiver<()>,
    /// The store itself, when this rank hosts it.
    server: Option<StoreServer>,
    /// Beats as long as the process is a member.
    heartbeats: Option<HeartbeatSender>,
}

impl Membership {
    /// Starts the monitor thread on a connection whose rank is registered.
    ///
    /// `store_lost` is the failure to raise when the store itself goes.
    pub(in crate::launch) fn watch(
        connection: StoreConnection,
        failure: FailureSignal,
        store_lost: PeerFailure,
        server: Option<StoreServer>,
        linger: Duration,
    ) -> Result<Membership, LaunchError> {
        let beats = Arc::new(Beats::default());
        let monitor_ended = start_monitor(connection.try_clone()?, failure, store_lost, Arc::clone(&beats))?;
        let present = Present {
            connection,
            monitor_ended,
            server,
            heartbeats: None,
        };
        Ok(Membership {
            state: Mutex::new(Some(present)),
            linger,
            beats,
        })
    }

    /// Starts to send heartbeats; from now on the store, and this process, notice when the other falls silent.
    pub(in crate::launch) fn start_heartbeats(
        &self,
        failure: FailureSignal,
        options: HeartbeatOptions,
    ) -> Result<(), LaunchError> {
        if let Some(present) = &mut *self.state.lock() {
            let connection = present.connection.try_clone()?;
            present.heartbeats = Some(HeartbeatSender::start(
                connection,
                Arc::clone(&self.beats),
                failure,
                options,
            )?);
        }
        Ok(())
    }

    /// Says goodbye, once; bounded.
    pub(in crate::launch) fn leave(&self, failure: &FailureSignal) {
        let Some(present) = self.state.lock().take() else {
            return;
        };
        drop(present.heartbeats);
        let goodbye = self.beats.send_goodbye(&present.connection, GOODBYE_LIMIT);
        if goodbye.is_ok() && !self.beats.is_out_of_reach() {
            // Ends when the store has answered the monitor; nothing is ever sent.
            let _ = present.monitor_ended.recv_timeout(GOODBYE_LIMIT);
        }
        present.connection.shut_down();
        if let Some(server) = present.server {
            let linger = if failure.is_raised() {
                self.linger.min(FAILED_LINGER)
            } else {
                self.linger
            };
            server.wait_until_empty(linger);
        }
    }
}

impl Drop for Membership {
    /// Ends the monitor thread even if this rank has not left: while unwinding.
    fn drop(&mut self) {
        if let Some(present) = self.state.lock().take() {
            present.connection.shut_down();
        }
    }
}
