//! Send and receive over TCP.
//!
//! Each pair has a connection for transfers; what one rank sends to the other is a stream of descriptors, each followed
//! by its message. Only the sender's lane writes one direction and only the receiver's reads it, so the two directions
//! need nothing of each other.

use super::super::super::call::CallDescriptor;
use super::super::super::error::CollectiveError;
use super::exchange::LOOKS;
use super::readiness::{self, moved};
use super::{POLL_SLICE, TcpEngine};
use std::io::{IoSlice, Read, Write};

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
        let mut stream = self.transfers.to(peer);
        let mut deadline = self.health.deadline(Some(call));
        let mut vain_looks = 0;
        let descriptor = call.to_bytes();
        let (mut header, mut payload): (&[u8], &[u8]) = (&descriptor, buffer);
        while !(header.is_empty() && payload.is_empty()) {
            // A rank that writes no more has left the group: it will not read this either.
            if readiness::has_gone(stream) {
                return Err(self.lost(call, peer, &"closed by the other end"));
            }
            let parts = [IoSlice::new(header), IoSlice::new(payload)];
            match moved(stream.write_vectored(&parts)) {
                Ok(0) => {
                    deadline.check(|| vec![peer])?;
                    vain_looks += 1;
                    match vain_looks {
                        looks if looks < self.transfer_looks => std::thread::yield_now(),
                        _ => {
                            let ask = libc::POLLOUT | libc::POLLRDHUP;
                            readiness::wait(&mut [readiness::ask(stream, ask)], deadline.slice(POLL_SLICE));
                        }
                    }
                }
                Ok(bytes) => {
                    let of_header = bytes.min(header.len());
                    header = &header[of_header..];
                    payload = &payload[bytes - of_header..];
                    vain_looks = 0;
                    deadline.renew();
                }
                Err(error) => return Err(self.lost(call, peer, &error)),
            }
        }
        self.count_bytes(buffer.len());
        Ok(())
    }

    /// Receives the next message of the rank `call.peer`.
    pub(super) fn receive_message(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        let (peer, rank) = (call.other_side(), self.health.label.rank);
        let mut header = [0; CallDescriptor::BYTES];
        self.read_exact(call, peer, &mut header)?;
        let sent = self.decode(call, peer, &header)?;
        self.health.label.compare_transfer((peer, &sent), (rank, call))?;
        self.read_exact(call, peer, buffer)
    }

    fn read_exact(&self, call: &CallDescriptor, peer: usize, mut buffer: &mut [u8]) -> Result<(), CollectiveError> {
        let mut stream = self.transfers.to(peer);
        let mut deadline = self.health.deadline(Some(call));
        let mut vain_looks = 0;
        while !buffer.is_empty() {
            match moved(stream.read(buffer)) {
                Ok(0) => {
                    deadline.check(|| vec![peer])?;
                    vain_looks += 1;
                    match vain_looks {
                        looks if looks < self.transfer_looks => std::thread::yield_now(),
                        _ => readiness::wait(&mut [readiness::ask(stream, libc::POLLIN)], deadline.slice(POLL_SLICE)),
                    }
                }
                Ok(bytes) => {
                    vain_looks = 0;
                    buffer = &mut buffer[bytes..];
                    deadline.renew();
                }
                Err(error) => return Err(self.lost(call, peer, &error)),
            }
        }
        Ok(())
    }
}
