//! [`Heart`]: the thread that tells the store, again and again, that this process is there, and notices when the store
//! does not answer any more. Started by [`Membership`](super::Membership).
//!
//! A thread of its own, which computes nothing: however busy the rank is, the heart beats. What counts is the number of
//! heartbeats without an answer, not the clock: a process that was stopped and goes on blames nobody for the time that
//! it missed itself.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::launch::error::LaunchError;
use crate::launch::failure::{FailureSignal, PeerFailure};
use crate::launch::heartbeat::Rhythm;
use crate::launch::lock;
use crate::launch::store::{Request, Store, StoreConnection};

/// What a heart needs besides the connection.
pub(in crate::launch) struct HeartOptions {
    /// How often, and for how long without an answer.
    pub(in crate::launch) rhythm: Rhythm,
    /// How far this process has come, for others to read.
    pub(in crate::launch) progress: Box<dyn Fn() -> String + Send>,
    /// What this process says when the store does not answer, up to the store's address.
    pub(in crate::launch) out_of_reach: PeerFailure,
    /// The store's clients of this process: they give up with the heart.
    pub(in crate::launch) store: Store,
}

/// A heart that beats until it is dropped.
#[derive(Debug)]
pub(super) struct Heart {
    _stop: mpsc::Sender<()>,
}

/// What the heart shares with the thread that listens, and with the one that says goodbye.
#[derive(Debug, Default)]
pub(super) struct Beats {
    /// Heartbeats sent since the last answer.
    unanswered: AtomicU32,
    /// Whether too many were: nobody waits for this store any more.
    is_out_of_reach: AtomicBool,
    /// Whether goodbye is said; held while a message is sent, so that none is cut in two by another.
    has_left: Mutex<bool>,
}

impl Beats {
    /// Notes an answer of the store.
    pub(super) fn answered(&self) {
        self.unanswered.store(0, Ordering::Relaxed);
    }

    /// Returns whether the store has left too many heartbeats unanswered.
    pub(super) fn is_out_of_reach(&self) -> bool {
        self.is_out_of_reach.load(Ordering::Relaxed)
    }

    /// Sends the last message of this connection.
    pub(super) fn send_last(&self, send: impl FnOnce() -> Result<(), LaunchError>) -> Result<(), LaunchError> {
        let mut has_left = lock(&self.has_left);
        *has_left = true;
        send()
    }
}

impl Heart {
    /// Starts to beat on a connection whose rank is registered.
    pub(super) fn start(
        connection: StoreConnection,
        beats: Arc<Beats>,
        failure: FailureSignal,
        options: HeartOptions,
    ) -> Result<Heart, LaunchError> {
        let (stop, stopped) = mpsc::channel::<()>();
        let interval = options.rhythm.interval;
        // The first one before anything else happens: the store cannot miss what it has never heard.
        if !beat(&connection, &beats, &failure, &options) {
            return Ok(Heart { _stop: stop });
        }
        thread::Builder::new()
            .name("heartbeat".into())
            .spawn(move || {
                while stopped.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
                    if !beat(&connection, &beats, &failure, &options) {
                        return;
                    }
                }
            })
            .map_err(|source| LaunchError::System {
                action: "cannot start the heartbeat's thread".into(),
                source,
            })?;
        Ok(Heart { _stop: stop })
    }
}

/// Sends a heartbeat; returns whether another one is to follow.
fn beat(connection: &StoreConnection, beats: &Beats, failure: &FailureSignal, options: &HeartOptions) -> bool {
    let HeartOptions { rhythm, progress, .. } = options;
    if beats.unanswered.fetch_add(1, Ordering::Relaxed) >= rhythm.beats() {
        options.store.give_up();
        beats.is_out_of_reach.store(true, Ordering::Relaxed);
        failure.raise_from_store(out_of_reach(options, connection));
        return false;
    }
    let heartbeat = Request::Heartbeat {
        limit: rhythm.limit,
        progress: progress(),
    };
    let has_left = lock(&beats.has_left);
    if *has_left {
        return false;
    }
    // A connection that is closed is the monitor's to notice.
    if let Err(error) = connection.send(&heartbeat, rhythm.interval, "heartbeat") {
        tracing::debug!(%error, "heartbeat");
    }
    true
}

/// What this process says when the store does not answer.
fn out_of_reach(options: &HeartOptions, connection: &StoreConnection) -> PeerFailure {
    let PeerFailure { rank, host, what } = options.out_of_reach.clone();
    let limit = options.rhythm.limit.as_secs_f64();
    let address = connection.address();
    PeerFailure {
        rank,
        host,
        what: format!("{what}: the store at {address} has answered no heartbeat for {limit:.1} s"),
    }
}
