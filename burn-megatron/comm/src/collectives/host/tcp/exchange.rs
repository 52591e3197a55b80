//! Moving bytes over the connections to many ranks at once.
//!
//! One thread serves all connections: it writes and reads whatever the sockets take and give, and
//! sleeps in `poll` only when none does for a while. A socket that had nothing is read again only when `poll` has said
//! so: of many ranks, most are waited for most of the time. Since it always reads what it expects while it still has
//! something to write, two ranks that send to each other never wait for each other.

use super::super::super::call::CallDescriptor;
use super::super::super::error::CollectiveError;
use super::super::super::health::WaitDeadline;
use super::links::Channel;
use super::readiness::{self, Poll, moved};
use super::{POLL_SLICE, TcpEngine};
use std::borrow::Cow;
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Looks at the sockets, with the processor yielded in between, before a sleep: what is awaited is
/// usually about to come, and to fall asleep and be woken takes longer, much longer in a virtual
/// machine.
pub(super) const LOOKS: u32 = 20;

/// What goes to one rank: the call's descriptor if it is the first, then a payload.
pub(super) struct Outgoing<'a> {
    pub peer: usize,
    /// The length of the descriptor, or 0.
    header: usize,
    pub payload: Cow<'a, [u8]>,
    sent: usize,
    /// Why nothing more can be sent. Not an error until nothing else is left to do: the rank may have left a better
    /// one.
    broken: Option<Broken>,
}

/// Why nothing more can be sent to a rank.
#[derive(Debug)]
enum Broken {
    /// The connection is gone.
    Lost(io::Error),
    /// There is none.
    Unconnected(CollectiveError),
}

impl<'a> Outgoing<'a> {
    /// Returns what is to go to the rank `peer`, after a descriptor of `header` bytes.
    pub fn new(peer: usize, header: usize, payload: &'a [u8]) -> Self {
        Self {
            peer,
            header,
            payload: Cow::Borrowed(payload),
            sent: 0,
            broken: None,
        }
    }

    /// Lets `bytes` follow what goes to the rank already.
    pub fn append(&mut self, bytes: &[u8]) {
        let payload = self.payload.to_mut();
        // What has gone makes room as soon as it is half of all: a byte is moved once for each that has gone, and a
        // queue that never runs empty takes no more than twice its length.
        if let Some(gone) = self.sent.checked_sub(self.header)
            && gone >= payload.len() - gone
        {
            payload.drain(..gone);
            self.header = 0;
            self.sent = 0;
        }
        payload.extend_from_slice(bytes);
    }

    /// Returns how many bytes have not been sent yet; 0 if nothing more can be sent.
    pub fn queued(&self) -> usize {
        match self.broken {
            Some(_) => 0,
            None => self.header + self.payload.len() - self.sent,
        }
    }

    /// Returns whether there is something that can still be sent.
    pub fn wants_to_write(&self) -> bool {
        self.queued() > 0
    }
}

/// What comes from one rank.
struct Incoming<'a> {
    peer: usize,
    buffer: &'a mut [u8],
    received: usize,
    /// Whether the socket may have something.
    may_read: bool,
}

impl<'a> Incoming<'a> {
    fn new((peer, buffer): (usize, &'a mut [u8])) -> Self {
        Self {
            peer,
            buffer,
            received: 0,
            may_read: true,
        }
    }

    fn is_complete(&self) -> bool {
        self.received == self.buffer.len()
    }
}

/// How much must have been sent before an exchange ends; all that is expected must have come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sent {
    /// Nothing: later exchanges send the rest.
    Something,
    Headers,
    /// Everything.
    All,
}

/// The connections of one call, with what goes out over them.
pub(in super::super) struct Exchange<'a> {
    pub(super) engine: &'a TcpEngine,
    call: &'a CallDescriptor,
    descriptor: [u8; CallDescriptor::BYTES],
    pub(super) deadline: WaitDeadline<'a>,
    /// One for each rank that is sent to.
    pub(super) outgoing: Vec<Outgoing<'a>>,
}

impl<'a> Exchange<'a> {
    /// Returns the exchange of a call, in which nothing is sent so far.
    pub(super) fn new(engine: &'a TcpEngine, call: &'a CallDescriptor) -> Self {
        Self {
            engine,
            call,
            descriptor: call.to_bytes(),
            deadline: engine.health.deadline(Some(call)),
            outgoing: Vec::new(),
        }
    }

    /// Begins a call: sends its descriptor to all ranks, and what has room of each one's `part`; compares the
    /// descriptors that come.
    ///
    /// # Errors
    /// When the calls differ; as [`receive`](Self::receive).
    pub(super) fn open(
        engine: &'a TcpEngine,
        call: &'a CallDescriptor,
        part: impl Fn(usize) -> &'a [u8],
    ) -> Result<Self, CollectiveError> {
        let mut exchange = Self::with_header(engine, call, CallDescriptor::BYTES, part);
        let label = &engine.health.label;
        let mut headers = vec![[0; CallDescriptor::BYTES]; label.size()];
        headers[label.rank] = exchange.descriptor;
        let others = headers.iter_mut().enumerate().filter(|(peer, _)| *peer != label.rank);
        let mut incoming: Vec<_> = others.map(|(peer, header)| Incoming::new((peer, header))).collect();
        exchange.run(&mut incoming, Sent::Headers)?;
        let calls = headers
            .iter()
            .enumerate()
            .map(|(peer, header)| engine.decode(call, peer, header))
            .collect::<Result<Vec<_>, _>>()?;
        label.compare_calls(&calls)?;
        Ok(exchange)
    }

    /// Continues a call whose descriptors have been compared: sends each rank its `part`.
    pub(super) fn resume(engine: &'a TcpEngine, call: &'a CallDescriptor, part: impl Fn(usize) -> &'a [u8]) -> Self {
        Self::with_header(engine, call, 0, part)
    }

    fn with_header(
        engine: &'a TcpEngine,
        call: &'a CallDescriptor,
        header: usize,
        part: impl Fn(usize) -> &'a [u8],
    ) -> Self {
        let mut exchange = Self::new(engine, call);
        let peers = engine.health.label.peers();
        exchange.outgoing = peers.map(|peer| Outgoing::new(peer, header, part(peer))).collect();
        engine.count_bytes(exchange.outgoing.iter().map(|out| out.payload.len()).sum());
        exchange
    }

    /// Fills each buffer with the next bytes of the rank in front of it, while sending continues.
    ///
    /// # Errors
    /// When a connection breaks, the time runs out or a rank fails.
    pub fn receive<'b>(
        &mut self,
        from: impl IntoIterator<Item = (usize, &'b mut [u8])>,
    ) -> Result<(), CollectiveError> {
        let mut incoming: Vec<_> = from.into_iter().map(Incoming::new).collect();
        self.run(&mut incoming, Sent::Something)
    }

    /// Sends the rest.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn finish(mut self) -> Result<(), CollectiveError> {
        self.run(&mut [], Sent::All)
    }

    /// Sends and receives until all of `incoming` has come, and of what goes out what `sent` asks for has gone.
    fn run(&mut self, incoming: &mut [Incoming<'_>], sent: Sent) -> Result<(), CollectiveError> {
        let goal = |out: &Outgoing<'_>| match sent {
            Sent::Something => 0,
            Sent::Headers => out.header,
            Sent::All => out.header + out.payload.len(),
        };
        let is_unsent = |out: &&Outgoing<'_>| out.sent < goal(out);
        for peer in incoming.iter().map(|incoming| incoming.peer) {
            self.engine.links.to(Channel::Collectives, peer, &self.deadline)?;
        }
        self.deadline.renew();
        let mut vain_looks = 0;
        loop {
            let has_moved = self.write() | self.read(incoming)?;
            if incoming.iter().all(Incoming::is_complete) {
                let unsent = self.outgoing.iter().filter(is_unsent);
                // A rank that did not take the header may still have sent its own: the caller compares.
                if sent == Sent::All && unsent.clone().any(|out| out.broken.is_some()) {
                    return self.check_broken();
                }
                if unsent.clone().all(|out| out.broken.is_some()) {
                    return Ok(());
                }
            }
            if has_moved {
                vain_looks = 0;
                self.deadline.renew();
                self.engine.health.check(Some(self.call))?;
                self.wait(incoming, Duration::ZERO);
                continue;
            }
            self.deadline.check(|| {
                let senders = self.outgoing.iter().filter(is_unsent).map(|out| out.peer);
                let receivers = incoming.iter().filter(|incoming| !incoming.is_complete());
                let mut missing: Vec<usize> = receivers.map(|incoming| incoming.peer).collect();
                missing.extend(senders);
                missing.sort_unstable();
                missing.dedup();
                missing
            })?;
            vain_looks += 1;
            let limit = if vain_looks < LOOKS {
                std::thread::yield_now();
                Duration::ZERO
            } else {
                POLL_SLICE
            };
            self.wait(incoming, limit);
        }
    }

    /// Checks that all that is sent can still arrive.
    ///
    /// # Errors
    /// Why the first rank to which nothing more can be sent is not reached.
    pub(super) fn check_broken(&mut self) -> Result<(), CollectiveError> {
        let broken = self
            .outgoing
            .iter_mut()
            .find_map(|out| Some((out.peer, out.broken.take()?)));
        match broken {
            Some((peer, Broken::Lost(error))) => Err(self.engine.lost(self.call, peer, &error)),
            Some((_, Broken::Unconnected(error))) => Err(error),
            None => Ok(()),
        }
    }

    /// Writes what the sockets take, and connects where there is no connection; returns whether it was anything.
    pub(super) fn write(&mut self) -> bool {
        let mut has_moved = false;
        for out in &mut self.outgoing {
            while out.wants_to_write() {
                let mut stream = match self.engine.links.to(Channel::Collectives, out.peer, &self.deadline) {
                    Ok(stream) => stream,
                    Err(error) => {
                        out.broken = Some(Broken::Unconnected(error));
                        has_moved = true;
                        break;
                    }
                };
                let header = &self.descriptor[..out.header][out.sent.min(out.header)..];
                let payload = &out.payload[out.sent.saturating_sub(out.header)..];
                let parts = [IoSlice::new(header), IoSlice::new(payload)];
                match moved(stream.write_vectored(&parts)) {
                    Ok(0) => break,
                    Ok(bytes) => out.sent += bytes,
                    Err(error) => out.broken = Some(Broken::Lost(error)),
                }
                has_moved = true;
            }
        }
        has_moved
    }

    /// Reads what has come; returns whether it was anything.
    fn read(&self, incoming: &mut [Incoming<'_>]) -> Result<bool, CollectiveError> {
        let mut has_moved = false;
        for incoming in incoming.iter_mut() {
            while incoming.may_read && !incoming.is_complete() {
                let mut stream = self.link(incoming.peer);
                let read = moved(stream.read(&mut incoming.buffer[incoming.received..]));
                let bytes = read.map_err(|error| self.engine.lost(self.call, incoming.peer, &error))?;
                incoming.received += bytes;
                incoming.may_read = bytes > 0;
                has_moved |= bytes > 0;
            }
        }
        Ok(has_moved)
    }

    /// Returns a connection that `run` or `write` has made.
    fn link(&self, peer: usize) -> &'a TcpStream {
        let made = self.engine.links.made(Channel::Collectives, peer);
        made.expect("what is waited for or sent has a connection")
    }

    /// Sleeps until a socket takes something, for `limit` at most.
    pub(super) fn wait_to_write(&self, limit: Duration) {
        self.wait(&mut [], limit);
    }

    /// Sleeps until a socket takes or gives something, for `limit` at most, and notes which may be read.
    fn wait(&self, incoming: &mut [Incoming<'_>], limit: Duration) {
        let mut reads: Vec<_> = incoming.iter_mut().filter(|incoming| !incoming.is_complete()).collect();
        let asked = reads
            .iter()
            .map(|incoming| readiness::ask(self.link(incoming.peer), libc::POLLIN));
        let writes = self.outgoing.iter().filter(|out| out.wants_to_write());
        let polls: Vec<Poll> = asked
            .chain(writes.map(|out| readiness::ask(self.link(out.peer), libc::POLLOUT)))
            .collect();
        let polls = readiness::wait_unless_failed(polls, &self.engine.health, self.deadline.slice(limit));
        for (incoming, poll) in reads.iter_mut().zip(&polls) {
            incoming.may_read |= poll.revents != 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &[u8] = b"header";

    #[test]
    fn a_queue_that_never_runs_empty_gives_back_what_has_gone() {
        let mut out = Outgoing::new(1, HEADER.len(), b"payload");
        let (mut taken, mut given) = (Vec::new(), [HEADER, b"payload"].concat());
        for round in 0..10_000_usize {
            let bytes: Vec<u8> = (0..round % 301).map(|index| (round + index) as u8).collect();
            out.append(&bytes);
            let length = out.payload.len();
            assert!(length <= 2 * out.queued(), "{length} bytes");
            given.extend_from_slice(&bytes);
            let some = out.queued().min(round % 307).min(out.queued().saturating_sub(10));
            for _ in 0..some {
                let byte = HEADER[..out.header].get(out.sent);
                taken.push(*byte.unwrap_or_else(|| &out.payload[out.sent - out.header]));
                out.sent += 1;
            }
        }
        assert!(given.len() - taken.len() < 100_000);
        assert!(given.starts_with(&taken));
    }
}
