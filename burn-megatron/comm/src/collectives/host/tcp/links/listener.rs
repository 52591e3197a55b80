//! [`Listener`]: where a process accepts the connections of other ranks, for all its groups.
//!
//! A connection that does not complete the handshake is dropped, and the job does not notice: neither garbage nor
//! silence keeps the others from connecting. One that has been welcomed becomes a connection with its last word: the
//! other end says that the welcome has come, for it may have given up before.

use super::super::readiness::{self, Poll, is_out_of_descriptors};
use super::claim::RankClaim;
use super::group_links::GroupLinks;
use crate::launch::{self, Acceptance, LaunchError, Next, Store, World};
use parking_lot::Mutex;
use std::collections::{HashMap, VecDeque};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The pause before a connection is accepted again when this process can open no further file.
const DESCRIPTOR_PAUSE: Duration = Duration::from_millis(50);
/// How long a stranger may take to complete the handshake.
const ACCEPT_LIMIT: Duration = Duration::from_secs(10);
/// The longest sleep while a stranger's time runs.
const STRANGER_SLICE: Duration = Duration::from_millis(500);
/// The longest sleep otherwise: everything that happens wakes the thread.
const IDLE_SLICE: Duration = Duration::from_secs(3600);
/// Strangers in the handshake at a time; the oldest gives way.
const MAX_STRANGERS: usize = 256;
/// Connections that are accepted before those that are there are heard: not more than there is room for, or else a
/// crowd would push out a rank before it was heard.
const ACCEPTED_PER_ROUND: usize = MAX_STRANGERS / 4;
/// Dropped connections that are worth a warning.
const SHOWN_DROPS: u64 = 4;
/// What an initiator says when it has been welcomed.
pub(super) const LAST_WORD: u8 = 1;

/// A process's listener; its thread ends when it is dropped.
#[derive(Debug)]
pub(in super::super) struct Listener {
    shared: Arc<Shared>,
    store: Store,
    /// Where other ranks listen, as far as it has been asked.
    addresses: Mutex<HashMap<usize, SocketAddr>>,
    /// Closed to end the thread.
    wake: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

/// What the thread and the groups share.
#[derive(Debug)]
struct Shared {
    token: Vec<u8>,
    /// By digest.
    groups: Mutex<HashMap<[u8; 32], Arc<GroupLinks>>>,
}

impl Listener {
    /// Listens, on a port of the system's choice, and puts the address into the store.
    pub fn start(world: &World) -> io::Result<Self> {
        let listener = launch::listen(SocketAddr::new(world.local_address(), 0))?;
        let address = listener.local_addr()?;
        let (wake, woken) = UnixStream::pair()?;
        let shared = Arc::new(Shared {
            token: world.job_token().to_vec(),
            groups: Mutex::default(),
        });
        let acceptor = Acceptor {
            listener,
            woken,
            shared: Arc::clone(&shared),
            candidates: VecDeque::new(),
            dropped: 0,
        };
        let thread = std::thread::Builder::new().name("accept ranks".to_owned());
        let thread = thread.spawn(move || acceptor.run())?;
        let store = world.store().clone();
        let text = address.to_string();
        let published = store.set(&address_key(world.rank()), text.as_bytes());
        published.map_err(io::Error::other)?;
        Ok(Self {
            shared,
            store,
            addresses: Mutex::default(),
            wake: Some(wake),
            thread: Some(thread),
        })
    }

    pub(super) fn token(&self) -> &[u8] {
        &self.shared.token
    }

    /// Lets other ranks connect for a group.
    pub(super) fn admit(&self, group: &Arc<GroupLinks>) {
        self.shared.groups.lock().insert(group.digest, Arc::clone(group));
    }

    /// Refuses further connections for a group.
    pub(super) fn dismiss(&self, digest: &[u8; 32]) {
        self.shared.groups.lock().remove(digest);
    }

    /// Returns where a rank listens; waits for the rank to say so for `limit` at most.
    pub(super) fn address_of(&self, rank: usize, limit: Duration) -> Result<SocketAddr, LaunchError> {
        if let Some(&address) = self.addresses.lock().get(&rank) {
            return Ok(address);
        }
        let key = address_key(rank);
        let text = self.store.wait(&key, limit)?;
        let address = String::from_utf8(text).ok().and_then(|text| text.parse().ok());
        let address = address.ok_or_else(|| LaunchError::StoreRefused {
            operation: format!("wait {key:?}"),
            reason: "what it holds is no address".to_owned(),
        })?;
        self.addresses.lock().insert(rank, address);
        Ok(address)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The key under which a rank says where it listens.
pub(in super::super) fn address_key(rank: usize) -> String {
    format!("collectives/address/{rank}")
}

/// The thread of a listener.
struct Acceptor {
    listener: TcpListener,
    /// Readable at its end: when the listener is dropped.
    woken: UnixStream,
    shared: Arc<Shared>,
    candidates: VecDeque<Candidate>,
    dropped: u64,
}

impl Acceptor {
    fn run(mut self) {
        loop {
            let has_strangers = self.candidates.iter().any(|candidate| candidate.welcomed.is_none());
            let slice = if has_strangers { STRANGER_SLICE } else { IDLE_SLICE };
            let mut polls: Vec<Poll> = vec![
                readiness::ask(&self.woken, libc::POLLIN),
                readiness::ask(&self.listener, libc::POLLIN),
            ];
            let candidates = self.candidates.iter();
            polls.extend(candidates.map(|candidate| readiness::ask(&candidate.stream, libc::POLLIN)));
            readiness::wait(&mut polls, slice);
            if polls[0].revents != 0 {
                return;
            }
            let mut are_ready = polls[2..].iter().map(|poll| poll.revents != 0);
            for mut candidate in std::mem::take(&mut self.candidates) {
                let is_late = candidate.is_late();
                if are_ready.next() == Some(false) && !is_late {
                    self.candidates.push_back(candidate);
                    continue;
                }
                match candidate.hear(&self.shared) {
                    Heard::Nothing if is_late => self.drop(&candidate, "no handshake in time"),
                    Heard::Nothing => self.candidates.push_back(candidate),
                    Heard::LastWord(group, claim) => group.accept(&claim, candidate.stream),
                    Heard::Refusal(reason) => self.drop(&candidate, reason),
                }
            }
            self.accept();
        }
    }

    fn accept(&mut self) {
        for _ in 0..ACCEPTED_PER_ROUND {
            let (stream, address) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(error) => {
                    // The next round tries again, which would be at once: who cannot be accepted stays in the queue.
                    if is_out_of_descriptors(&error) {
                        tracing::warn!(%error, "connections of other ranks have to wait");
                        std::thread::sleep(DESCRIPTOR_PAUSE);
                    }
                    return;
                }
            };
            let is_stranger = |candidate: &Candidate| candidate.welcomed.is_none();
            if self
                .candidates
                .iter()
                .filter(|candidate| is_stranger(candidate))
                .count()
                == MAX_STRANGERS
                && let Some(oldest) = self.candidates.iter().position(is_stranger)
            {
                self.candidates.remove(oldest);
            }
            self.candidates.extend(Candidate::new(stream, address));
        }
    }

    fn drop(&mut self, candidate: &Candidate, reason: &str) {
        let address = candidate.address;
        if let Some((group, claim)) = &candidate.welcomed {
            group.dismiss(claim);
            return tracing::debug!(%address, reason, "a rank has given up a connection");
        }
        self.dropped += 1;
        // A crowd of strangers must not fill the log; and ranks cross each other.
        match self.dropped {
            _ if reason.starts_with(EXPECTED) => tracing::debug!(%address, reason, "dropped a connection"),
            0..=SHOWN_DROPS => tracing::warn!(%address, reason, "dropped a connection"),
            _ => tracing::debug!(%address, reason, "dropped a connection"),
        }
    }
}

/// How the reasons of refusals begin that a rank of the job meets in the course of things.
const EXPECTED: &str = "this rank";

/// A connection that is none yet.
struct Candidate {
    stream: TcpStream,
    address: SocketAddr,
    acceptance: Acceptance<RankClaim>,
    since: Instant,
    /// What it is for, once it has proved that, and been welcomed.
    welcomed: Option<(Arc<GroupLinks>, RankClaim)>,
}

/// What has come of a candidate.
enum Heard {
    Nothing,
    /// It is a connection.
    LastWord(Arc<GroupLinks>, RankClaim),
    Refusal(&'static str),
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
            welcomed: None,
        })
    }

    /// A rank that has been welcomed is waited for as long as its end is open.
    fn is_late(&self) -> bool {
        self.welcomed.is_none() && self.since.elapsed() > ACCEPT_LIMIT
    }

    /// Reads what it has sent and answers, without waiting.
    fn hear(&mut self, shared: &Shared) -> Heard {
        const CLOSED: &str = "closed during the handshake";
        loop {
            if let Some((group, claim)) = &self.welcomed {
                let mut word = [0];
                return match readiness::moved(self.stream.read(&mut word)) {
                    Ok(0) => Heard::Nothing,
                    Ok(_) if word == [LAST_WORD] => Heard::LastWord(Arc::clone(group), *claim),
                    Ok(_) | Err(_) => Heard::Refusal(CLOSED),
                };
            }
            let bytes = match readiness::moved(self.stream.read(self.acceptance.buffer())) {
                Ok(0) => return Heard::Nothing,
                Ok(bytes) => bytes,
                Err(_) => return Heard::Refusal(CLOSED),
            };
            let find = |claim: &RankClaim| shared.groups.lock().get(&claim.group).cloned();
            let read = |claim: &_| {
                let claim = RankClaim::from_bytes(claim).ok_or("it does not ask for a rank")?;
                let group = find(&claim).ok_or("this rank has no such group, or no longer")?;
                group
                    .expects(&claim)
                    .then_some(claim)
                    .ok_or("no such rank of the group is expected")
            };
            let next = self.acceptance.advance(bytes, &shared.token, read);
            if let Next::Welcome(claim) = next {
                let Some(group) = find(&claim) else {
                    return Heard::Refusal("this rank has left the group");
                };
                if let Err(reason) = group.welcome(&claim) {
                    return Heard::Refusal(reason);
                }
                self.welcomed = Some((group, claim));
            }
            // Fits into the empty send buffer of a new connection.
            let sent = self.stream.write_all(self.acceptance.reply());
            match next {
                Next::Drop(reason) => return Heard::Refusal(reason),
                Next::Wait | Next::Welcome(_) if sent.is_err() => return Heard::Refusal(CLOSED),
                Next::Wait | Next::Welcome(_) => {}
            }
        }
    }
}
