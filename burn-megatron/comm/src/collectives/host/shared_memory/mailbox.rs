//! Send and receive over shared memory.
//!
//! For each ordered pair of ranks there is a ring of bytes. The sender puts in the call's
//! descriptor and then the message, as room becomes free; the receiver takes them out as they
//! come. So a message that fits into the ring does not wait for its receiver, and a larger one
//! passes through it piece by piece.
//!
//! `written` counts the bytes put in, `read` those taken out, both modulo 2^32. The bytes from
//! `read` to `written` belong to the receiver, the others to the sender; raising a counter hands
//! bytes over. Each counter has one writer, so there is nothing to lock.

use super::super::super::call::CallDescriptor;
use super::super::super::error::CollectiveError;
use super::SharedMemoryEngine;
use super::layout::{MailboxControl, RING_BYTES};
use super::segment::Area;
use crate::collectives::engines::engine::Engine;

/// The most that is handed over at a time: the receiver copies a piece out while the sender copies
/// the next one in.
const PIECE_BYTES: usize = 32 * 1024;

impl SharedMemoryEngine {
    /// Puts a message into the mailbox of the rank `call.peer`.
    pub(super) fn post(&self, call: &CallDescriptor, buffer: &[u8]) -> Result<(), CollectiveError> {
        let peer = call.other_side();
        if let Some(cause) = self.disconnect_reason(peer) {
            return Err(self.health.peer_left(call, peer, cause));
        }
        let mailbox = Mailbox::open(self, call, self.health.label.rank, peer);
        mailbox.write(&call.to_bytes())?;
        mailbox.write(buffer)?;
        self.count_bytes(buffer.len());
        Ok(())
    }

    /// Takes a message out of this rank's mailbox for the rank `call.peer`.
    pub(super) fn fetch(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        let (peer, rank) = (call.other_side(), self.health.label.rank);
        let mailbox = Mailbox::open(self, call, peer, rank);
        let mut descriptor = [0; CallDescriptor::BYTES];
        mailbox.read(&mut descriptor)?;
        let sent = CallDescriptor::from_bytes(&descriptor).expect("ranks of one program write descriptors that decode");
        self.health.label.compare_transfer((peer, &sent), (rank, call))?;
        mailbox.read(buffer)
    }
}

/// One side's view of a ring.
struct Mailbox<'a> {
    engine: &'a SharedMemoryEngine,
    call: &'a CallDescriptor,
    /// The rank at the other side.
    peer: usize,
    control: &'a MailboxControl,
    ring: Area<'a>,
}

impl<'a> Mailbox<'a> {
    fn open(engine: &'a SharedMemoryEngine, call: &'a CallDescriptor, from: usize, to: usize) -> Self {
        let (control, ring) = engine.segment.mailbox(from, to);
        Self {
            engine,
            call,
            peer: call.other_side(),
            control,
            ring,
        }
    }

    fn write(&self, mut bytes: &[u8]) -> Result<(), CollectiveError> {
        let (written, read) = (&self.control.written.0, &self.control.read.0);
        while !bytes.is_empty() {
            let position = written.value();
            let piece = piece(position, bytes.len());
            // Room for the piece: `read` has come to within a ring of its end.
            let target = position.wrapping_add(piece as u32).wrapping_sub(RING_BYTES as u32);
            self.engine
                .wait_for(self.call, self.peer, (read, target), || vec![self.peer])?;
            let (now, later) = bytes.split_at(piece);
            // SAFETY: these bytes are beyond `written` and less than a ring beyond `read`: the
            // sender's.
            unsafe { self.ring.write(position as usize % RING_BYTES, now) };
            written.raise(position.wrapping_add(piece as u32));
            bytes = later;
        }
        Ok(())
    }

    fn read(&self, mut buffer: &mut [u8]) -> Result<(), CollectiveError> {
        let (written, read) = (&self.control.written.0, &self.control.read.0);
        while !buffer.is_empty() {
            let position = read.value();
            let piece = piece(position, buffer.len());
            let end = position.wrapping_add(piece as u32);
            self.engine
                .wait_for(self.call, self.peer, (written, end), || vec![self.peer])?;
            let (now, later) = buffer.split_at_mut(piece);
            // SAFETY: these bytes are between `read` and `written`: the receiver's.
            now.copy_from_slice(unsafe { self.ring.read(position as usize % RING_BYTES, piece) });
            read.raise(end);
            buffer = later;
        }
        Ok(())
    }
}

/// Returns how many of `remaining` bytes go over at once: they do not wrap around the ring's end.
/// Both sides compute the same pieces, so a side never waits for less than the other gives.
fn piece(position: u32, remaining: usize) -> usize {
    const { assert!(RING_BYTES.is_power_of_two() && 2 * PIECE_BYTES <= RING_BYTES) };
    let to_end = RING_BYTES - position as usize % RING_BYTES;
    remaining.min(PIECE_BYTES).min(to_end)
}
