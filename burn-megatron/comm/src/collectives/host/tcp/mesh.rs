//! Connecting every two ranks of a group.
//!
//! Each rank listens on a port of its own and tells the others the address. Of two ranks, the one with the higher index
//! connects to the other, once per channel. Accepting and connecting happen at the same time. A connection that does
//! not complete the handshake is dropped, and the job does not notice: neither garbage nor silence keeps the others
//! from connecting.
//!
//! The acceptor has the last word of the handshake, the welcome, and cannot know whether it has come. A rank that does
//! not get it in time connects again, so all listen until every rank has reported, through the store, that it has been
//! welcomed everywhere; a later connection replaces an earlier one.

use super::super::super::error::CollectiveError;
use super::super::super::health::{GroupHealth, WaitDeadline};
use super::POLL_SLICE;
use super::claim::RankClaim;
use super::readiness::{self, Poll};
use crate::collectives::rendezvous::Rendezvous;
use crate::launch::{self, Acceptance, BoundedStream, Next, World};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a stranger may take to complete the handshake.
const ACCEPT_LIMIT: Duration = Duration::from_secs(10);
/// How long one attempt to connect takes, the handshake included.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(5);
/// The pause between attempts.
const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// The pause between two looks at whether all ranks have connected to this one.
const COMING_SLICE: Duration = Duration::from_micros(200);
/// The longest wait for a connection when all are there and only the word is missing that no other will come.
const LAST_SLICE: Duration = Duration::from_millis(1);
/// Connections in the handshake at a time; the oldest gives way.
const MAX_CANDIDATES: usize = 256;
/// Connections that are accepted before those that are there are heard.
const ACCEPTED_PER_ROUND: usize = MAX_CANDIDATES / 4;
/// Dropped connections that are worth a warning.
const SHOWN_DROPS: u64 = 4;
/// The step of the rendezvous in which the ranks say where they listen.
pub(super) const ADDRESSES: &str = "addresses";
/// Connections between two ranks: one for collectives, one for transfers.
const CHANNELS: usize = 2;

/// The connections to the other ranks, by group index.
#[derive(Debug)]
pub(super) struct Links(Vec<Option<TcpStream>>);

impl Links {
    fn new(size: usize) -> Self {
        Self((0..size).map(|_| None).collect())
    }

    /// Returns the connection to another rank.
    pub fn to(&self, peer: usize) -> &TcpStream {
        self.0[peer]
            .as_ref()
            .expect("a connected mesh has a link to every other rank")
    }

    /// Returns all connections.
    pub fn all(&self) -> impl Iterator<Item = &TcpStream> {
        self.0.iter().flatten()
    }

    /// Takes over the connections of `other`.
    fn merge(&mut self, other: Links) {
        for (place, link) in self.0.iter_mut().zip(other.0) {
            *place = place.take().or(link);
        }
    }
}

/// This rank's listener, and where all ranks listen.
pub(super) struct Listening {
    listener: TcpListener,
    /// By group index.
    addresses: Vec<SocketAddr>,
}

impl Listening {
    /// Listens for the other ranks. Collective over the group: the ranks tell each other where.
    ///
    /// # Errors
    /// When this rank cannot listen; when a rank does not come or fails.
    pub fn start(world: &World, health: &GroupHealth, rendezvous: &Rendezvous) -> Result<Self, CollectiveError> {
        let listen = || {
            let listener = launch::listen(SocketAddr::new(world.local_address(), 0))?;
            let address = listener.local_addr()?;
            Ok((listener, address))
        };
        let (listener, address) = listen().map_err(|error| setup(health, "listen for the other ranks", error))?;
        let addresses = rendezvous.gather(ADDRESSES, address.to_string().as_bytes())?;
        let parse = |text: Vec<u8>| String::from_utf8(text).ok()?.parse().ok();
        let addresses: Option<_> = addresses.into_iter().map(parse).collect();
        let no_address = || io::Error::other("what it gives as its address is none");
        Ok(Self {
            listener,
            addresses: addresses.ok_or_else(|| setup(health, "learn where a rank listens", no_address()))?,
        })
    }

    /// Returns where a rank listens.
    #[cfg(test)]
    pub fn address_of(&self, peer: usize) -> SocketAddr {
        self.addresses[peer]
    }

    /// Returns the connections of each channel, non-blocking. Collective over the group.
    ///
    /// # Errors
    /// When a rank does not connect or fails.
    pub fn connect(
        self,
        world: &World,
        health: &GroupHealth,
        rendezvous: &Rendezvous,
    ) -> Result<[Links; CHANNELS], CollectiveError> {
        let mesh = Mesh {
            health,
            rendezvous,
            addresses: &self.addresses,
            group: rendezvous.digest(),
            token: world.job_token(),
            stopped: AtomicBool::new(false),
            all_have_come: AtomicBool::new(false),
            all_are_welcome: AtomicBool::new(false),
        };
        let (accepted, initiated) = std::thread::scope(|scope| {
            let acceptor = std::thread::Builder::new()
                .name(format!("accept {}", health.label.name))
                .spawn_scoped(scope, || {
                    let _stop = StopOnPanic(&mesh.stopped);
                    mesh.stop_on_error(mesh.accept_higher(&self.listener))
                });
            if acceptor.is_err() {
                mesh.stopped.store(true, Ordering::Relaxed);
            }
            let initiated = mesh.stop_on_error(mesh.connect_to_lower().and_then(|links| {
                mesh.await_all_welcomes()?;
                Ok(links)
            }));
            let accepted = match acceptor {
                Ok(thread) => thread.join().expect("accepting does not panic"),
                Err(error) => Err(setup(health, "start a thread", error)),
            };
            (accepted, initiated)
        });
        // The error that came first: a stop is only its consequence.
        let (accepted, mut links) = match (accepted, initiated) {
            (Ok(accepted), Ok(initiated)) => (accepted, initiated),
            (Err(error), Err(CollectiveError::Poisoned { .. }) | Ok(_)) | (_, Err(error)) => {
                return Err(error);
            }
        };
        for (links, accepted) in links.iter_mut().zip(accepted) {
            links.merge(accepted);
        }
        for stream in links.iter().flat_map(Links::all) {
            configure(stream).map_err(|error| setup(health, "configure a connection", error))?;
        }
        Ok(links)
    }
}

fn setup(health: &GroupHealth, what: &str, source: io::Error) -> CollectiveError {
    CollectiveError::Setup {
        group: health.label.to_string(),
        what: what.to_string(),
        source,
    }
}

fn configure(stream: &TcpStream) -> io::Result<()> {
    stream.set_read_timeout(None)?;
    stream.set_write_timeout(None)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)
}

/// What both sides of connecting know.
struct Mesh<'a> {
    health: &'a GroupHealth,
    rendezvous: &'a Rendezvous,
    /// Where each rank listens, by group index.
    addresses: &'a [SocketAddr],
    group: [u8; 32],
    token: &'a [u8],
    /// Set when one side has failed, so that the other need not wait.
    stopped: AtomicBool,
    /// Set when every rank with a higher index has connected to this one.
    all_have_come: AtomicBool,
    /// Set when every rank has been welcomed by all that it connects to.
    all_are_welcome: AtomicBool,
}

/// Tells the other side of a panic, for which it would wait.
struct StopOnPanic<'a>(&'a AtomicBool);

impl Drop for StopOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

impl Mesh<'_> {
    /// Tells the other side when this one has failed.
    fn stop_on_error<T>(&self, result: Result<T, CollectiveError>) -> Result<T, CollectiveError> {
        if result.is_err() {
            self.stopped.store(true, Ordering::Relaxed);
        }
        result
    }

    fn check(&self, deadline: &WaitDeadline<'_>, missing: &[usize]) -> Result<(), CollectiveError> {
        deadline.check(|| missing.to_vec())?;
        self.check_stopped()
    }

    fn check_stopped(&self) -> Result<(), CollectiveError> {
        if !self.stopped.load(Ordering::Relaxed) {
            Ok(())
        } else {
            Err(CollectiveError::Poisoned {
                group: self.health.label.to_string(),
                call: "connect".to_string(),
                first: "another connection failed".to_string(),
            })
        }
    }

    fn no_links(&self) -> [Links; CHANNELS] {
        std::array::from_fn(|_| Links::new(self.health.label.size()))
    }

    /// Connects to all ranks with a lower index.
    fn connect_to_lower(&self) -> Result<[Links; CHANNELS], CollectiveError> {
        let mut links = self.no_links();
        for peer in 0..self.health.label.rank {
            for (channel, links) in links.iter_mut().enumerate() {
                links.0[peer] = Some(self.connect_to(peer, channel)?);
            }
        }
        Ok(links)
    }

    /// Waits until every rank has connected to all ranks with a lower index.
    fn await_all_welcomes(&self) -> Result<(), CollectiveError> {
        // Whoever accepts knows best which rank is missing, and waits for it.
        while !self.all_have_come.load(Ordering::Acquire) {
            self.check_stopped()?;
            std::thread::sleep(COMING_SLICE);
        }
        let agreement = self.rendezvous.agree("connections", "made")?;
        agreement.map_err(|what| CollectiveError::NoAgreement {
            group: self.health.label.to_string(),
            what,
        })?;
        self.all_are_welcome.store(true, Ordering::Release);
        Ok(())
    }

    fn connect_to(&self, peer: usize, channel: usize) -> Result<TcpStream, CollectiveError> {
        let deadline = self.health.deadline(None);
        loop {
            match self.attempt(peer, channel) {
                Ok(stream) => return Ok(stream),
                Err(error) => {
                    let rank = self.health.label.ranks[peer];
                    tracing::debug!(group = %self.health.label, rank, %error, "connecting again");
                }
            }
            self.check(&deadline, &[peer])?;
            std::thread::sleep(deadline.slice(RETRY_PAUSE));
        }
    }

    fn attempt(&self, peer: usize, channel: usize) -> io::Result<TcpStream> {
        let limit = ATTEMPT_LIMIT.min(self.health.timeout);
        let end = Instant::now() + limit;
        let stream = TcpStream::connect_timeout(&self.addresses[peer], limit)?;
        stream.set_nodelay(true)?;
        let claim = RankClaim {
            group: self.group,
            from: self.health.label.rank as u32,
            to: peer as u32,
            channel: channel as u8,
        };
        let mut bounded = BoundedStream::until(&stream, end);
        launch::initiate(&mut bounded, &claim.to_bytes(), self.token).map_err(io::Error::other)?;
        Ok(stream)
    }

    /// Accepts the connections of all ranks with a higher index, until all say that they have theirs.
    fn accept_higher(&self, listener: &TcpListener) -> Result<[Links; CHANNELS], CollectiveError> {
        let label = &self.health.label;
        let mut links = self.no_links();
        let mut candidates = VecDeque::new();
        let mut dropped = 0_u64;
        let deadline = self.health.deadline(None);
        loop {
            let missing: Vec<usize> = (label.rank + 1..label.size())
                .filter(|&peer| links.iter().any(|links| links.0[peer].is_none()))
                .collect();
            if missing.is_empty() {
                self.all_have_come.store(true, Ordering::Release);
                if self.all_are_welcome.load(Ordering::Acquire) {
                    return Ok(links);
                }
                // The other thread's wait for the welcomes is bounded, and names who has none.
                self.check_stopped()?;
            } else {
                self.check(&deadline, &missing)?;
            }
            let mut polls: Vec<Poll> = candidates
                .iter()
                .map(|candidate: &Candidate| readiness::ask(&candidate.stream, libc::POLLIN))
                .collect();
            polls.push(readiness::ask(listener, libc::POLLIN));
            let slice = if missing.is_empty() {
                LAST_SLICE
            } else {
                deadline.slice(POLL_SLICE)
            };
            readiness::wait(&mut polls, slice);
            // Out of descriptors, or a connection already gone again: the next round tries again. Not more than there
            // is room for, or else a crowd would push out a rank before it was heard.
            for _ in 0..ACCEPTED_PER_ROUND {
                let Ok((stream, address)) = listener.accept() else {
                    break;
                };
                if candidates.len() == MAX_CANDIDATES {
                    candidates.pop_front();
                }
                candidates.extend(Candidate::new(stream, address));
            }
            for mut candidate in std::mem::take(&mut candidates) {
                match self.hear(&mut candidate) {
                    Next::Welcome(RankClaim { from, channel, .. }) => {
                        let Candidate { stream, .. } = candidate;
                        // What this rank gave up before must not take the place of the new one.
                        let is_same = |claim: &RankClaim| (claim.from, claim.channel) == (from, channel);
                        candidates.retain(|earlier: &Candidate| !earlier.acceptance.claimed().is_some_and(is_same));
                        links[channel as usize].0[from as usize] = Some(stream);
                    }
                    Next::Drop(reason) => {
                        let address = candidate.address;
                        dropped += 1;
                        // A crowd of strangers must not fill the log.
                        match dropped {
                            0..=SHOWN_DROPS => tracing::warn!(group = %label, %address, reason, "dropped a connection"),
                            _ => tracing::debug!(group = %label, %address, reason, "dropped a connection"),
                        }
                    }
                    Next::Wait => candidates.push_back(candidate),
                }
            }
        }
    }

    /// Reads what a candidate has sent and answers it, without waiting.
    fn hear(&self, candidate: &mut Candidate) -> Next<RankClaim> {
        let label = &self.health.label;
        let is_expected = |claim: &RankClaim| {
            claim.group == self.group
                && claim.to as usize == label.rank
                && (label.rank + 1..label.size()).contains(&(claim.from as usize))
                && usize::from(claim.channel) < CHANNELS
        };
        let read = |claim: &_| {
            let claim = RankClaim::from_bytes(claim).filter(is_expected);
            claim.ok_or("no such rank of this group is expected")
        };
        loop {
            let bytes = match readiness::moved(candidate.stream.read(candidate.acceptance.buffer())) {
                Ok(0) if candidate.since.elapsed() > ACCEPT_LIMIT => {
                    return Next::Drop("no handshake in time");
                }
                Ok(0) => return Next::Wait,
                Ok(bytes) => bytes,
                Err(_) => return Next::Drop("closed during the handshake"),
            };
            let next = candidate.acceptance.advance(bytes, self.token, read);
            // Fits into the empty send buffer of a new connection.
            let sent = candidate.stream.write_all(candidate.acceptance.reply());
            match next {
                Next::Wait | Next::Welcome(_) if sent.is_err() => return Next::Drop("closed during the handshake"),
                Next::Wait => {}
                next => return next,
            }
        }
    }
}

/// A connection that has not yet proved that it belongs to the job.
struct Candidate {
    stream: TcpStream,
    address: SocketAddr,
    acceptance: Acceptance<RankClaim>,
    since: Instant,
}

impl Candidate {
    fn new(stream: TcpStream, address: SocketAddr) -> Option<Self> {
        stream.set_nonblocking(true).ok()?;
        stream.set_nodelay(true).ok()?;
        Some(Self {
            stream,
            address,
            acceptance: Acceptance::new(),
            since: Instant::now(),
        })
    }
}
