//! [`MetricsServer`]: answers Prometheus.
//!
//! One thread waits for all connections at once, so that none keeps the others waiting. Each has a limit of time and of
//! bytes; when there are too many, the oldest is closed. After an answer, what the client still sends is read and
//! forgotten, or the system would take the answer back with a reset.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use thiserror::Error;

use super::http::{self, Request};

/// The content type of Prometheus's text format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
/// Connections at once.
pub const MAX_CONNECTIONS: usize = 16;
/// Bytes of a request's headers.
pub const MAX_REQUEST_BYTES: usize = 8 << 10;
/// Bytes after an answer that are read and forgotten.
const MAX_FORGOTTEN_BYTES: usize = 1 << 20;
/// How long a connection may last.
pub const TIME_LIMIT: Duration = Duration::from_secs(5);
/// How long the listener rests when it cannot accept, as without file descriptors.
const REST: Duration = Duration::from_millis(100);

/// Why metrics cannot be served.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum PrometheusError {
    #[error("cannot serve metrics on {address}: {source}; choose another --prometheus-port or --prometheus-address")]
    Listen { address: SocketAddr, source: io::Error },
}

/// Serves metrics until it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    text: Arc<Mutex<Arc<str>>>,
    address: SocketAddr,
    /// Closed when this is dropped, which wakes the thread.
    alive: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Listens on an address and a port, of which 0 is any that is free.
    ///
    /// # Errors
    /// When the address cannot be listened on, or no thread can be started.
    pub fn start(address: IpAddr, port: u16) -> Result<Self, PrometheusError> {
        let wanted = SocketAddr::new(address, port);
        let start = || -> io::Result<Self> {
            let listener = TcpListener::bind(wanted)?;
            listener.set_nonblocking(true)?;
            let address = listener.local_addr()?;
            let (alive, end) = UnixStream::pair()?;
            let text: Arc<Mutex<Arc<str>>> = Arc::new(Mutex::new(Arc::from("")));
            let served = text.clone();
            let thread = thread::Builder::new()
                .name("prometheus".to_owned())
                .spawn(move || serve(&listener, &end, &served))?;
            Ok(Self {
                text,
                address,
                alive: Some(alive),
                thread: Some(thread),
            })
        };
        start().map_err(|source| PrometheusError::Listen {
            address: wanted,
            source,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves this text from now on.
    pub fn publish(&self, text: &str) {
        *self.text.lock() = Arc::from(text);
    }
}

impl Drop for MetricsServer {
    fn drop(&mut self) {
        self.alive = None;
        if let Some(thread) = self.thread.take() {
            // A panic there has been printed.
            let _ = thread.join();
        }
    }
}

/// A client.
struct Connection {
    stream: TcpStream,
    ends: Instant,
    state: State,
}

/// How far a client is.
enum State {
    /// It sends its request, of which this has come.
    Request(Vec<u8>),
    /// This is to be sent, from a place on.
    Response(Vec<u8>, usize),
    /// It has its answer; bytes that have come since.
    Forgetting(usize),
}

fn serve(listener: &TcpListener, end: &UnixStream, text: &Mutex<Arc<str>>) {
    let mut connections: Vec<Connection> = Vec::new();
    let mut rests_until: Option<Instant> = None;
    loop {
        let now = Instant::now();
        connections.retain(|connection| connection.ends > now);
        rests_until = rests_until.filter(|until| *until > now);
        let next = connections
            .iter()
            .map(|connection| connection.ends)
            .chain(rests_until)
            .min();
        let timeout = next.map(|next| next.saturating_duration_since(now) + Duration::from_millis(1));
        let listening = if rests_until.is_some() {
            PollFlags::empty()
        } else {
            PollFlags::IN
        };
        let mut waited = vec![PollFd::new(end, PollFlags::IN), PollFd::new(listener, listening)];
        waited.extend(
            connections
                .iter()
                .map(|connection| PollFd::new(&connection.stream, connection.waits_for())),
        );
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        if poll(&mut waited, timeout.as_ref()).is_err() {
            // Interrupted by a signal, or out of memory.
            thread::sleep(Duration::from_millis(1));
            continue;
        }
        let ready: Vec<bool> = waited.iter().map(|waited| !waited.revents().is_empty()).collect();
        if ready[0] {
            return;
        }
        let mut ready_connections = ready[2..].iter();
        connections.retain_mut(|connection| {
            let is_ready = ready_connections.next().copied().unwrap_or(false);
            !is_ready || connection.advance(text)
        });
        if ready[1] && !accept(listener, &mut connections) {
            rests_until = Some(Instant::now() + REST);
        }
    }
}

/// Takes the clients that have come, and closes the oldest if there are too many. Returns false if it cannot now.
fn accept(listener: &TcpListener, connections: &mut Vec<Connection>) -> bool {
    // No more than are kept, for those that are there to get their turn.
    for _ in 0..MAX_CONNECTIONS {
        match listener.accept() {
            Ok((stream, _)) => {
                if stream.set_nonblocking(true).is_err() {
                    continue;
                }
                if connections.len() == MAX_CONNECTIONS {
                    connections.remove(0);
                }
                connections.push(Connection {
                    stream,
                    ends: Instant::now() + TIME_LIMIT,
                    state: State::Request(Vec::new()),
                });
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            // The client has left already.
            Err(error) if matches!(error.kind(), ErrorKind::ConnectionAborted | ErrorKind::Interrupted) => {}
            Err(_) => return false,
        }
    }
    true
}

impl Connection {
    fn waits_for(&self) -> PollFlags {
        match self.state {
            State::Response(..) => PollFlags::OUT,
            State::Request(_) | State::Forgetting(_) => PollFlags::IN,
        }
    }

    /// Does what can be done without waiting; returns whether there is more to do.
    fn advance(&mut self, text: &Mutex<Arc<str>>) -> bool {
        loop {
            match self.step(text) {
                Ok(true) => {}
                Ok(false) => return false,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }

    /// Reads or writes once; returns whether there is more to do.
    fn step(&mut self, text: &Mutex<Arc<str>>) -> io::Result<bool> {
        let mut buffer = [0; 4096];
        match &mut self.state {
            State::Request(request) => {
                let count = self.stream.read(&mut buffer)?;
                request.extend(&buffer[..count]);
                if let Some(response) = answer(request, text) {
                    self.state = State::Response(response, 0);
                }
                Ok(count > 0)
            }
            State::Response(response, sent) => {
                *sent += self.stream.write(&response[*sent..])?;
                if *sent == response.len() {
                    // Fails where the client has left.
                    let _ = self.stream.shutdown(std::net::Shutdown::Write);
                    self.state = State::Forgetting(0);
                }
                Ok(true)
            }
            State::Forgetting(forgotten) => {
                let count = self.stream.read(&mut buffer)?;
                *forgotten += count;
                Ok(count > 0 && *forgotten <= MAX_FORGOTTEN_BYTES)
            }
        }
    }
}

/// The response to a request, once it is there or too long.
fn answer(request: &[u8], text: &Mutex<Arc<str>>) -> Option<Vec<u8>> {
    let plain = "text/plain; charset=utf-8";
    if request.len() > MAX_REQUEST_BYTES {
        let body = format!("a request has at most {MAX_REQUEST_BYTES} bytes\n");
        return Some(http::response(
            "431 Request Header Fields Too Large",
            plain,
            &body,
            true,
        ));
    }
    if !http::is_complete(request) {
        return None;
    }
    Some(match http::parse(request) {
        Request::Metrics { has_body } => {
            let text = text.lock().clone();
            http::response("200 OK", CONTENT_TYPE, &text, has_body)
        }
        Request::NotFound { has_body } => {
            http::response("404 Not Found", plain, "the metrics are at /metrics\n", has_body)
        }
        Request::OtherMethod => http::response("405 Method Not Allowed", plain, "only GET and HEAD\n", true),
        Request::Garbage => http::response("400 Bad Request", plain, "this is no request of HTTP/1.1\n", true),
    })
}
