//! Send and receive over TCP.
//!
//! Each pair has a connection for transfers; what one rank sends to the other is a stream of descriptors, each followed
//! by its message. Only the sender's lane writes one direction and only the receiver's reads it, so the two directions
//! need nothing of each other.

use super::super::super::call::CallDescriptor;
use super::super::super::error::CollectiveError;
use super::exchange::LOOKS;
use super::links::Channel;
use super::readiness::{self, moved};
use super::{POLL_SLICE, TcpEngine};
use crate::collectives::health::WaitDeadline;
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;

/// Returns how often to look before a sleep, with the processor yielded in between, where `ranks` ranks share this
/// node: while there is a core for each, the other side is about to be done; with fewer, looking keeps others from
/// running.
pub(super) fn looks(ranks: usize) -> u32 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    if ranks <= cores { LOOKS } else { 0 }
}

impl TcpEngine {
    /// Sends a message to the rank `call.peer`; returns when the operating system has it.
    pub(super) fn send_message(&self, call: &CallDescriptor, buffer: &[u8]) -> Result<(), CollectiveError> {
        let peer = call.other_side();
        let mut transfer = Transfer::new(self, call, libc::POLLOUT | libc::POLLRDHUP)?;
        let mut stream = transfer.stream;
        let descriptor = call.to_bytes();
        let (mut header, mut payload): (&[u8], &[u8]) = (&descriptor, buffer);
        while !(header.is_empty() && payload.is_empty()) {
            // A rank that writes no more has left the group: it will not read this either.
            if readiness::has_gone(stream) {
                return Err(self.lost(call, peer, &"closed by the other end"));
            }
            let parts = [IoSlice::new(header), IoSlice::new(payload)];
            let bytes = transfer.moved(stream.write_vectored(&parts))?;
            let of_header = bytes.min(header.len());
            header = &header[of_header..];
            payload = &payload[bytes - of_header..];
        }
        self.count_bytes(buffer.len());
        Ok(())
    }

    /// Receives the next message of the rank `call.peer`.
    pub(super) fn receive_message(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        let (peer, rank) = (call.other_side(), self.health.label.rank);
        let mut header = [0; CallDescriptor::BYTES];
        self.read_exact(call, &mut header)?;
        let sent = self.decode(call, peer, &header)?;
        self.health.label.compare_transfer((peer, &sent), (rank, call))?;
        self.read_exact(call, buffer)
    }

    fn read_exact(&self, call: &CallDescriptor, mut buffer: &mut [u8]) -> Result<(), CollectiveError> {
        let mut transfer = Transfer::new(self, call, libc::POLLIN)?;
        let mut stream = transfer.stream;
        while !buffer.is_empty() {
            let bytes = transfer.moved(stream.read(buffer))?;
            buffer = &mut buffer[bytes..];
        }
        Ok(())
    }
}

/// One direction of a transfer on its way.
struct Transfer<'a> {
    engine: &'a TcpEngine,
    call: &'a CallDescriptor,
    stream: &'a TcpStream,
    /// What is waited for in the socket.
    events: libc::c_short,
    deadline: WaitDeadline<'a>,
    vain_looks: u32,
}

impl<'a> Transfer<'a> {
    fn new(engine: &'a TcpEngine, call: &'a CallDescriptor, events: libc::c_short) -> Result<Self, CollectiveError> {
        let deadline = engine.health.deadline(Some(call));
        Ok(Self {
            engine,
            call,
            stream: engine.links.to(Channel::Transfers, call.other_side(), &deadline)?,
            events,
            deadline,
            vain_looks: 0,
        })
    }

    /// Returns the bytes that a read or write has moved; waits for the socket if there were none.
    fn moved(&mut self, result: io::Result<usize>) -> Result<usize, CollectiveError> {
        let peer = self.call.other_side();
        let bytes = moved(result).map_err(|error| self.engine.lost(self.call, peer, &error))?;
        if bytes > 0 {
            self.vain_looks = 0;
            self.deadline.renew();
            return Ok(bytes);
        }
        self.deadline.check(|| vec![peer])?;
        self.vain_looks += 1;
        if self.vain_looks < self.engine.looks {
            std::thread::yield_now();
        } else {
            let slice = self.deadline.slice(POLL_SLICE);
            let asked = vec![readiness::ask(self.stream, self.events)];
            readiness::wait_unless_failed(asked, &self.engine.health, slice);
        }
        Ok(0)
    }
}
