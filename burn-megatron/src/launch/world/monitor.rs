//! The connection that stands for the life of a rank, or of a further node's launcher, and the thread that listens on it
//! for the first failure.

use std::sync::Mutex;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::Duration;

use crate::launch::error::LaunchError;
use crate::launch::failure::{FailureSignal, PeerFailure};
use crate::launch::lock;
use crate::launch::store::{Reply, Request, StoreConnection, StoreServer};

/// Longest time to send a goodbye, and to hear that it was understood.
const GOODBYE_LIMIT: Duration = Duration::from_secs(2);
/// How long a hosted store stays when a rank has failed: enough for the news to reach the others.
const FAILED_LINGER: Duration = Duration::from_secs(1);

/// This rank's place in the store's list of the living, until it leaves.
#[derive(Debug)]
pub(in crate::launch) struct Membership {
    state: Mutex<Option<Present>>,
    linger: Duration,
}

#[derive(Debug)]
struct Present {
    connection: StoreConnection,
    /// Disconnects when the monitor thread ends.
    monitor_ended: Receiver<()>,
    /// The store itself, when this rank hosts it.
    server: Option<StoreServer>,
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
        let listener = connection.try_clone()?;
        let (alive, monitor_ended) = mpsc::channel();
        thread::Builder::new()
            .name("failure-monitor".into())
            .spawn(move || {
                listen(listener, &failure, store_lost);
                drop(alive);
            })
            .map_err(|source| LaunchError::System {
                action: "cannot start the monitor thread".into(),
                source,
            })?;
        let present = Present {
            connection,
            monitor_ended,
            server,
        };
        Ok(Membership {
            state: Mutex::new(Some(present)),
            linger,
        })
    }

    /// Says goodbye, once; bounded.
    pub(in crate::launch) fn leave(&self, failure: &FailureSignal) {
        let Some(present) = lock(&self.state).take() else {
            return;
        };
        if present
            .connection
            .send(&Request::Goodbye, GOODBYE_LIMIT, "goodbye")
            .is_ok()
        {
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
    /// Ends the monitor thread also where nobody left: while unwinding.
    fn drop(&mut self) {
        if let Some(present) = lock(&self.state).take() {
            present.connection.shut_down();
        }
    }
}

/// Listens until the store has heard this rank's goodbye, ends, or is lost.
fn listen(mut connection: StoreConnection, failure: &FailureSignal, store_lost: PeerFailure) {
    loop {
        match connection.listen() {
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
