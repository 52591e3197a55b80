//! [`HeartbeatSender`]: the thread that tells the store, again and again, that this process is there, and notices when
//! the store does not answer any more.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::failure_signal::FailureSignal;
use super::heartbeat::Rhythm;
use super::states::{StoreEvent, StoreState};
use crate::launch::error::LaunchError;
use crate::launch::peer_failure::PeerFailure;
use crate::launch::store::{PeerId, Reply, Request, Store, StoreAddress, StoreConnection, deadline_after};

/// What a [`HeartbeatSender`] needs in addition to the connection.
pub(in crate::launch) struct HeartbeatOptions {
    /// How often, and for how long without an answer.
    pub(in crate::launch) rhythm: Rhythm,
    /// How far this process has come, for others to read.
    pub(in crate::launch) progress: Box<dyn Fn() -> String + Send>,
    /// What this process says when the store does not answer, up to the store's address.
    pub(in crate::launch) out_of_reach: PeerFailure,
    /// The store's clients of this process: they give up with it.
    pub(in crate::launch) store: Store,
    /// For whom it beats.
    pub(in crate::launch) peer: PeerId,
}

/// Sends heartbeats until it is dropped.
#[derive(Debug)]
pub(in crate::launch) struct HeartbeatSender {
    _stop: mpsc::Sender<()>,
}

/// What the sender shares with the thread that listens, and with the one that says goodbye.
#[derive(Debug, Default)]
pub(in crate::launch) struct Beats {
    store: Mutex<StoreState>,
    /// Held while a message is sent, so that none is cut in two by another.
    line: Mutex<Line>,
}

/// What goes out over the connection.
#[derive(Debug, Default)]
struct Line {
    /// Whether goodbye is said.
    has_left: bool,
    /// The end of a message whose beginning has gone: what the kernel did not take in time.
    rest: Vec<u8>,
}

impl Beats {
    /// Notes what has happened between this process and the store, and returns what the store is now.
    fn on(&self, event: StoreEvent) -> StoreState {
        let mut store = self.store.lock();
        *store = store.on(event);
        *store
    }

    /// Notes an answer of the store.
    pub(super) fn answered(&self) {
        self.on(StoreEvent::Answer);
    }

    /// Returns whether the store has left too many heartbeats unanswered.
    pub(in crate::launch) fn is_out_of_reach(&self) -> bool {
        *self.store.lock() == StoreState::OutOfReach
    }

    /// Says goodbye, the last message of this connection.
    pub(in crate::launch) fn send_goodbye(
        &self,
        connection: &StoreConnection,
        limit: Duration,
    ) -> Result<(), LaunchError> {
        let mut line = self.line.lock();
        line.has_left = true;
        line.rest.extend(Request::Goodbye.to_frame());
        connection.send_from(&mut line.rest, limit, "goodbye")
    }
}

impl HeartbeatSender {
    /// Starts to beat on a connection whose rank is registered.
    pub(in crate::launch) fn start(
        connection: StoreConnection,
        beats: Arc<Beats>,
        failure: FailureSignal,
        options: HeartbeatOptions,
    ) -> Result<HeartbeatSender, LaunchError> {
        let (stop, stopped) = mpsc::channel::<()>();
        let interval = options.rhythm.interval;
        // The first one before anything else happens: the store cannot miss what it has never heard.
        if !beat(&connection, &beats, &failure, &options) {
            return Ok(HeartbeatSender { _stop: stop });
        }
        thread::Builder::new()
            .name("heartbeat".into())
            .spawn(move || {
                let mut second = None;
                let mut next = deadline_after(interval);
                while stopped.recv_timeout(next.saturating_duration_since(Instant::now()))
                    == Err(RecvTimeoutError::Timeout)
                {
                    next = deadline_after(interval);
                    if !beat(&connection, &beats, &failure, &options) {
                        return;
                    }
                    let store = *beats.store.lock();
                    if !store.is_late() {
                        second = None;
                    } else if second.is_some() || store.is_worth_connecting() {
                        relay_heartbeat(&mut second, connection.address(), &beats, &failure, &options);
                    }
                }
            })
            .map_err(|source| LaunchError::System {
                action: "cannot start the heartbeat's thread".into(),
                source,
            })?;
        Ok(HeartbeatSender { _stop: stop })
    }
}

/// Sends a heartbeat; returns whether another one is to follow.
fn beat(connection: &StoreConnection, beats: &Beats, failure: &FailureSignal, options: &HeartbeatOptions) -> bool {
    let HeartbeatOptions { rhythm, progress, .. } = options;
    if beats.on(StoreEvent::BeatDue(rhythm.beats())) == StoreState::OutOfReach {
        options.store.give_up();
        failure.raise_from_store(out_of_reach(options, connection));
        return false;
    }
    let progress = progress();
    let mut line = beats.line.lock();
    if !line.has_left {
        // A connection that is closed is the monitor's to notice.
        send_heartbeat(connection, &mut line.rest, *rhythm, progress);
    }
    !line.has_left
}

/// Sends a heartbeat, or the rest of one that is still on its way: after that, another one would say nothing new.
pub(in crate::launch) fn send_heartbeat(
    connection: &StoreConnection,
    rest: &mut Vec<u8>,
    rhythm: Rhythm,
    progress: String,
) {
    if rest.is_empty() {
        let limit = rhythm.limit;
        *rest = Request::Heartbeat { limit, progress }.to_frame();
    }
    if let Err(error) = connection.send_from(rest, rhythm.interval, "heartbeat") {
        tracing::debug!(%error, "heartbeat");
    }
}

/// Sends a heartbeat over the second connection, which it makes if there is none, and waits for the answer: all of it
/// within the time between two heartbeats.
fn relay_heartbeat(
    second: &mut Option<StoreConnection>,
    address: &StoreAddress,
    beats: &Beats,
    failure: &FailureSignal,
    options: &HeartbeatOptions,
) {
    let HeartbeatOptions {
        rhythm, progress, peer, ..
    } = options;
    let heartbeat = Request::RelayedHeartbeat {
        peer: *peer,
        limit: rhythm.limit,
        progress: progress(),
    };
    let deadline = deadline_after(rhythm.interval);
    let connection = match second.take() {
        Some(connection) => Ok(connection),
        None => StoreConnection::connect(address, rhythm.interval),
    };
    let reply = connection.and_then(|mut connection| {
        let time_left = deadline.saturating_duration_since(Instant::now());
        let reply = connection.call(&heartbeat, time_left, "heartbeat over a second connection")?;
        *second = Some(connection);
        Ok(reply)
    });
    match reply {
        Ok(Reply::Heard) => {
            beats.on(StoreEvent::RelayedAnswer);
        }
        // The peer's own connection may not bring it for a while.
        Ok(Reply::Failed(first)) => failure.raise_from_store(first),
        // The store does not know this peer any more, as it says on the peer's own connection.
        Ok(reply) => tracing::debug!(?reply, "heartbeat over a second connection"),
        Err(error) => tracing::debug!(%error, "heartbeat over a second connection"),
    }
}

/// What this process says when the store does not answer.
fn out_of_reach(options: &HeartbeatOptions, connection: &StoreConnection) -> PeerFailure {
    let PeerFailure { rank, host, what } = options.out_of_reach.clone();
    let limit = options.rhythm.limit.as_secs_f64();
    let address = connection.address();
    PeerFailure::new(
        rank,
        host,
        format!("{what}: the store at {address} has answered no heartbeat for {limit:.1} s"),
    )
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use socket2::SockRef;

    use super::*;
    use crate::launch::identity::JobToken;
    use crate::launch::store::read_body;

    #[test]
    fn messages_stay_whole_on_a_connection_that_takes_only_a_part() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        SockRef::from(&listener).set_recv_buffer_size(1).unwrap();
        let address = listener.local_addr().unwrap();
        let stream = TcpStream::connect(address).unwrap();
        SockRef::from(&stream).set_send_buffer_size(1).unwrap();
        let (mut store, _) = listener.accept().unwrap();
        let address = StoreAddress::new("127.0.0.1", address.port(), JobToken::from_text("a token"));
        let connection = StoreConnection::unproven(stream, address);
        let options = HeartbeatOptions {
            rhythm: Rhythm {
                limit: Duration::from_secs(3600),
                interval: Duration::from_millis(2),
            },
            progress: Box::new(|| "last collective ".repeat(16)),
            out_of_reach: PeerFailure::new(0, "node0/boot", "out of reach"),
            store: Store::in_process(),
            peer: PeerId::Rank(0),
        };
        let (beats, failure) = (Beats::default(), FailureSignal::detached());
        let is_cut = |beats: &Beats| !beats.line.lock().rest.is_empty();
        let begin = Instant::now();
        // Until one has gone only in part; some more follow it.
        while !is_cut(&beats) {
            assert!(
                begin.elapsed() < Duration::from_secs(20),
                "the connection takes everything"
            );
            assert!(beat(&connection, &beats, &failure, &options));
        }
        for _ in 0..5 {
            assert!(beat(&connection, &beats, &failure, &options));
        }
        let read = thread::spawn(move || {
            let mut heartbeats = 0;
            loop {
                match Request::from_body(&read_body(&mut store).unwrap()).unwrap() {
                    Request::Heartbeat { .. } => heartbeats += 1,
                    Request::Goodbye => return heartbeats,
                    other => panic!("{other:?}"),
                }
            }
        });
        beats.send_goodbye(&connection, Duration::from_secs(20)).unwrap();
        assert!(!beat(&connection, &beats, &failure, &options));
        assert!(read.join().unwrap() > 0);
    }
}
