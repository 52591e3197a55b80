//! [`StoreConnection`]: a client's end of one connection to the store, blocking, with a deadline on everything.
//!
//! Used by the remote [`Store`](super::Store) for its requests, and by `world` for the connection that stands for the
//! rank.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

use super::protocol::{Reply, Request, read_body};
use crate::launch::error::LaunchError;
use crate::launch::handshake::{self, HandshakeError, initiate};
use crate::launch::identity::JobToken;
use crate::launch::resolver::Resolver;

/// Longest single attempt to connect; longer where a name has many addresses.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(5);
/// What each address of a name has of it at least.
const ADDRESS_LIMIT: Duration = Duration::from_secs(1);
/// First and longest pause between attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// Where a store is, and the secret that opens it.
#[derive(Clone, Debug)]
pub(in crate::launch) struct StoreAddress {
    host: Arc<str>,
    port: u16,
    token: JobToken,
}

impl StoreAddress {
    pub(in crate::launch) fn new(host: &str, port: u16, token: JobToken) -> StoreAddress {
        StoreAddress {
            host: host.into(),
            port,
            token,
        }
    }

    /// Returns the error of an operation for which the store is lost.
    pub(super) fn lost(&self, operation: &str, reason: String) -> LaunchError {
        LaunchError::StoreLost {
            address: self.to_string(),
            operation: operation.into(),
            reason,
        }
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(formatter, "[{}]:{}", self.host, self.port)
        } else {
            write!(formatter, "{}:{}", self.host, self.port)
        }
    }
}

/// What a refused connection means.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Refused {
    /// That the store may listen later.
    Later,
    /// That it has ended.
    Final,
}

/// A connection whose handshake is over.
#[derive(Debug)]
pub(in crate::launch) struct StoreConnection {
    stream: Arc<TcpStream>,
    address: StoreAddress,
}

impl StoreConnection {
    /// Returns a connection to something that asks for no proof.
    #[cfg(test)]
    pub(in crate::launch) fn unproven(stream: TcpStream, address: StoreAddress) -> StoreConnection {
        let stream = Arc::new(stream);
        StoreConnection { stream, address }
    }

    /// Connects, again and again until `timeout` is over: the store may start later than this rank.
    ///
    /// # Errors
    /// Nothing answers in time; or, at once, something answers that is not this job's store.
    pub(in crate::launch) fn connect(
        address: &StoreAddress,
        timeout: Duration,
    ) -> Result<StoreConnection, LaunchError> {
        Self::connect_to(address, timeout, Refused::Later)
    }

    /// Makes a further connection to a store that was reached before: one that refuses it has ended.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), but at once where nothing listens any more.
    pub(in crate::launch) fn connect_again(
        address: &StoreAddress,
        timeout: Duration,
    ) -> Result<StoreConnection, LaunchError> {
        Self::connect_to(address, timeout, Refused::Final)
    }

    fn connect_to(address: &StoreAddress, timeout: Duration, refused: Refused) -> Result<StoreConnection, LaunchError> {
        let start = Instant::now();
        let deadline = deadline_after(timeout);
        let (mut pause, longest_pause) = PAUSES;
        let mut resolver = Resolver::new(&address.host, address.port);
        loop {
            let (is_over, reason) = match attempt(&mut resolver, &address.token, deadline) {
                Ok(stream) => {
                    return Ok(StoreConnection {
                        stream: Arc::new(stream),
                        address: address.clone(),
                    });
                }
                Err(HandshakeError::OtherProtocol) => {
                    return Err(LaunchError::NotAStore {
                        address: address.to_string(),
                    });
                }
                Err(error @ HandshakeError::OtherVersion { .. }) => {
                    return Err(LaunchError::OtherVersion {
                        address: address.to_string(),
                        versions: error.to_string(),
                    });
                }
                Err(HandshakeError::TokenRefused) => {
                    return Err(LaunchError::TokenRefused {
                        address: address.to_string(),
                    });
                }
                Err(HandshakeError::Broken(error)) => {
                    let is_over = refused == Refused::Final && error.kind() == io::ErrorKind::ConnectionRefused;
                    let reason = match error.kind() {
                        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer".into(),
                        _ => error.to_string(),
                    };
                    (is_over, reason)
                }
            };
            let left = deadline.saturating_duration_since(Instant::now());
            if is_over || left <= pause {
                let waited = timeout.min(start.elapsed().max(Duration::from_millis(1)));
                return Err(LaunchError::Unreachable {
                    address: address.to_string(),
                    waited,
                    reason,
                });
            }
            thread::sleep(pause);
            pause = (2 * pause).min(longest_pause);
        }
    }

    /// Sends a request and returns the reply, all within `timeout`.
    pub(in crate::launch) fn call(
        &mut self,
        request: &Request,
        timeout: Duration,
        operation: &str,
    ) -> Result<Reply, LaunchError> {
        let mut stream = BoundedStream {
            stream: &self.stream,
            deadline: Some(deadline_after(timeout)),
        };
        let reply = stream
            .write_all(&request.to_frame())
            .and_then(|()| read_reply(&mut stream));
        reply.map_err(|error| self.late_or_lost(operation, &error, timeout))
    }

    /// Waits for what the store says next, without a limit: the monitor's rest.
    pub(in crate::launch) fn listen(&mut self) -> Result<Reply, LaunchError> {
        let mut stream = BoundedStream {
            stream: &self.stream,
            deadline: None,
        };
        read_reply(&mut stream).map_err(|error| self.lost("watching for failures", &error))
    }

    /// Returns what the store says next, if it begins to come before `moment`; then it has `limit` to come whole.
    pub(in crate::launch) fn receive_before(
        &mut self,
        moment: Instant,
        limit: Duration,
        operation: &str,
    ) -> Result<Option<Reply>, LaunchError> {
        use io::ErrorKind::{Interrupted, TimedOut, WouldBlock};
        let begins = time_left(moment).and_then(|left| {
            self.stream.set_read_timeout(Some(left))?;
            // Takes nothing away: a message of which a part was read could not be read again.
            self.stream.peek(&mut [0])
        });
        match begins {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), Interrupted | TimedOut | WouldBlock) => return Ok(None),
            Err(error) => return Err(self.lost(operation, &error)),
        }
        let reply = read_reply(&mut BoundedStream::until(&self.stream, deadline_after(limit)));
        reply
            .map(Some)
            .map_err(|error| self.late_or_lost(operation, &error, limit))
    }

    /// Returns a second handle to this connection, for a thread that only sends.
    pub(in crate::launch) fn try_clone(&self) -> Result<StoreConnection, LaunchError> {
        let stream = self
            .stream
            .try_clone()
            .map_err(|error| self.lost("duplicating its connection", &error))?;
        Ok(StoreConnection {
            stream: Arc::new(stream),
            address: self.address.clone(),
        })
    }

    /// Returns what wakes a call when it is shut down.
    pub(super) fn stream(&self) -> Weak<TcpStream> {
        Arc::downgrade(&self.stream)
    }

    /// Sends a request whose reply another handle receives.
    pub(in crate::launch) fn send(
        &self,
        request: &Request,
        timeout: Duration,
        operation: &str,
    ) -> Result<(), LaunchError> {
        self.send_from(&mut request.to_frame(), timeout, operation)
    }

    /// Sends bytes, and takes away those that have gone, also when not all have.
    pub(in crate::launch) fn send_from(
        &self,
        bytes: &mut Vec<u8>,
        timeout: Duration,
        operation: &str,
    ) -> Result<(), LaunchError> {
        let mut stream = BoundedStream::until(&self.stream, deadline_after(timeout));
        while !bytes.is_empty() {
            match stream.write(bytes) {
                Ok(0) => return Err(self.late_or_lost(operation, &io::ErrorKind::WriteZero.into(), timeout)),
                Ok(sent) => drop(bytes.drain(..sent)),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.late_or_lost(operation, &error, timeout)),
            }
        }
        Ok(())
    }

    /// Closes the connection for all its handles, which wakes one that listens.
    pub(in crate::launch) fn shut_down(&self) {
        // It may be closed already.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    /// Returns this host's address on the interface that reaches the store.
    pub(in crate::launch) fn local_address(&self) -> Result<IpAddr, LaunchError> {
        let address = self
            .stream
            .local_addr()
            .map_err(|error| self.lost("reading its own address", &error))?;
        Ok(address.ip())
    }

    pub(in crate::launch) fn address(&self) -> &StoreAddress {
        &self.address
    }

    /// The error of a reply that does not answer the request.
    pub(in crate::launch) fn unexpected(&self, operation: &str, reply: &Reply) -> LaunchError {
        self.address.lost(operation, format!("unexpected reply {reply:?}"))
    }

    /// The error of an operation that had to be done within `limit`.
    fn late_or_lost(&self, operation: &str, error: &io::Error, limit: Duration) -> LaunchError {
        match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => self.late(operation, limit),
            _ => self.lost(operation, error),
        }
    }

    /// The error of an operation that has no answer.
    pub(in crate::launch) fn late(&self, operation: &str, limit: Duration) -> LaunchError {
        self.address.lost(operation, format!("no answer within {limit:.1?}"))
    }

    fn lost(&self, operation: &str, error: &io::Error) -> LaunchError {
        let reason = match error.kind() {
            io::ErrorKind::UnexpectedEof => "the store closed the connection".into(),
            _ => error.to_string(),
        };
        self.address.lost(operation, reason)
    }
}

/// Connects once, to the first address of the name that answers.
fn attempt(resolver: &mut Resolver, token: &JobToken, deadline: Instant) -> Result<TcpStream, HandshakeError> {
    let addresses = resolver.addresses(time_left(deadline)?.min(ATTEMPT_LIMIT))?;
    let limit = ATTEMPT_LIMIT.max(ADDRESS_LIMIT.saturating_mul(addresses.len() as u32));
    reach(&addresses, token, deadline.min(deadline_after(limit)))
}

/// Connects to the first of several addresses that answers as the store does. Each has an equal part of the time that
/// is left: one that swallows all packets leaves the others theirs.
pub(super) fn reach(
    addresses: &[SocketAddr],
    token: &JobToken,
    deadline: Instant,
) -> Result<TcpStream, HandshakeError> {
    let mut failed = HandshakeError::Broken(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    for (index, address) in addresses.iter().enumerate() {
        let part = time_left(deadline)? / (addresses.len() - index) as u32;
        match greet(address, token, deadline_after(part)) {
            Ok(stream) => return Ok(stream),
            Err(error) if weight(&error) >= weight(&failed) => failed = error,
            Err(_) => {}
        }
    }
    Err(failed)
}

/// How much an address says of the store: something else that answers there more than one which does not answer, and
/// that more than one where nothing listens.
fn weight(error: &HandshakeError) -> u8 {
    use io::ErrorKind::{ConnectionRefused, NotFound};
    match error {
        HandshakeError::Broken(error) if matches!(error.kind(), ConnectionRefused | NotFound) => 0,
        HandshakeError::Broken(_) => 1,
        HandshakeError::OtherProtocol | HandshakeError::OtherVersion { .. } | HandshakeError::TokenRefused => 2,
    }
}

/// Connects to one address, and proves that both ends know the token.
fn greet(address: &SocketAddr, token: &JobToken, deadline: Instant) -> Result<TcpStream, HandshakeError> {
    let stream = TcpStream::connect_timeout(address, time_left(deadline)?)?;
    super::set_socket_options(&stream)?;
    let mut bounded = BoundedStream::until(&stream, deadline);
    initiate(&mut bounded, &handshake::TO_STORE, token.as_bytes())?;
    Ok(stream)
}

fn read_reply(stream: &mut impl Read) -> io::Result<Reply> {
    Ok(Reply::from_body(&read_body(stream)?)?)
}

/// The moment `timeout` from now; a year at most, which every clock can add.
pub(in crate::launch) fn deadline_after(timeout: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
    Instant::now() + timeout.min(YEAR)
}

fn time_left(deadline: Instant) -> io::Result<Duration> {
    match deadline.saturating_duration_since(Instant::now()) {
        Duration::ZERO => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

/// A stream whose reads and writes, however many, end at one deadline.
pub(crate) struct BoundedStream<'a> {
    stream: &'a TcpStream,
    deadline: Option<Instant>,
}

impl<'a> BoundedStream<'a> {
    /// Returns a stream that ends at `deadline`; its time limits stay on the socket.
    pub(crate) fn until(stream: &'a TcpStream, deadline: Instant) -> BoundedStream<'a> {
        BoundedStream {
            stream,
            deadline: Some(deadline),
        }
    }

    fn time_left(&self) -> io::Result<Option<Duration>> {
        self.deadline.map(time_left).transpose()
    }
}

impl Read for BoundedStream<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.time_left()?)?;
        self.stream.read(buffer)
    }
}

impl Write for BoundedStream<'_> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.time_left()?)?;
        self.stream.write(buffer)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}
