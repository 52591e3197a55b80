//! [`Ring`]: a stream of bytes between the first rank of a node and another one, for the tree of a group that spans
//! nodes. To read and to write takes no waiting: who wants to wait says so.
//!
//! The bytes and the counters are those of a mailbox: see `mailbox`.

use super::SharedMemoryEngine;
use super::layout::{MailboxControl, TREE_RING_BYTES};
use super::segment::Area;
use std::io::{self, Read, Write};
use std::time::Duration;

/// One direction of it, at either end.
#[derive(Clone, Copy)]
pub(in super::super) struct Ring<'a> {
    control: &'a MailboxControl,
    bytes: Area<'a>,
}

impl SharedMemoryEngine {
    /// Returns the ring that this rank writes and the one that it reads, to and from another rank.
    ///
    /// # Panics
    /// When neither of the two is the first of the node.
    pub(in super::super) fn rings(&self, peer: usize) -> [Ring<'_>; 2] {
        let rank = self.health.label.rank;
        [(rank, peer), (peer, rank)].map(|(from, to)| {
            let (control, bytes) = self.segment.tree_ring(from, to);
            Ring { control, bytes }
        })
    }

    /// Wakes the ends of all rings of this rank.
    pub(in super::super) fn wake_rings(&self) {
        let peers = match self.health.label.place() {
            (0, size) => 1..size,
            _ => 0..1,
        };
        peers.flat_map(|peer| self.rings(peer)).for_each(Ring::wake);
    }

    /// Looks for a while whether a ring has something to read, as long as suits the ranks of this node.
    pub(in super::super) fn look_at(&self, ring: Ring<'_>) -> bool {
        self.spinning.wait(&ring.control.written.0, ring.next())
    }
}

impl Ring<'_> {
    /// Wakes both ends.
    fn wake(self) {
        self.control.written.0.wake();
        self.control.read.0.wake();
    }

    /// Sleeps until there is something to read, for `limit` at most.
    pub fn wait_to_read(self, limit: Duration) {
        self.control.written.0.sleep(self.next(), limit);
    }

    /// Sleeps until there is room for more, for `limit` at most.
    pub fn wait_to_write(self, limit: Duration) {
        let full = self.control.written.0.value().wrapping_sub(TREE_RING_BYTES as u32);
        self.control.read.0.sleep(full.wrapping_add(1), limit);
    }

    /// What the writer's counter says when there is something to read.
    fn next(self) -> u32 {
        self.control.read.0.value().wrapping_add(1)
    }
}

impl Read for Ring<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let (written, read) = (&self.control.written.0, &self.control.read.0);
        let position = read.value();
        let there = written.value().wrapping_sub(position) as usize;
        let piece = piece(position, buffer.len().min(there));
        if piece == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // SAFETY: these bytes are between `read` and `written`: the reader's.
        buffer[..piece].copy_from_slice(unsafe { self.bytes.read(position as usize % TREE_RING_BYTES, piece) });
        read.raise(position.wrapping_add(piece as u32));
        Ok(piece)
    }
}

impl Write for Ring<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let (written, read) = (&self.control.written.0, &self.control.read.0);
        let position = written.value();
        let taken = position.wrapping_sub(read.value()) as usize;
        let piece = piece(position, bytes.len().min(TREE_RING_BYTES.saturating_sub(taken)));
        if piece == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        // SAFETY: these bytes are beyond `written` and less than a ring beyond `read`: the writer's.
        unsafe { self.bytes.write(position as usize % TREE_RING_BYTES, &bytes[..piece]) };
        written.raise(position.wrapping_add(piece as u32));
        Ok(piece)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns how many of `remaining` bytes go over at once: they do not wrap around the ring's end.
fn piece(position: u32, remaining: usize) -> usize {
    const { assert!(TREE_RING_BYTES.is_power_of_two()) };
    remaining.min(TREE_RING_BYTES - position as usize % TREE_RING_BYTES)
}

#[cfg(test)]
mod tests {
    use super::super::connect;
    use super::*;
    use crate::collectives::tests::{TIMEOUT, group_parts, run_ranks, scramble};

    #[test]
    fn bytes_come_in_order_and_whole() {
        const LENGTH: usize = 20 * TREE_RING_BYTES + 17;
        let byte = |from: usize, index: usize| (scramble((from * LENGTH + index) as u64) >> 8) as u8;
        run_ranks(3, TIMEOUT, |world| {
            let (health, rendezvous) = group_parts(&world, "rings");
            let engine = connect(&world, &health, &rendezvous);
            let rank = world.rank();
            let peers = if rank == 0 { vec![1, 2] } else { vec![0] };
            let own: Vec<u8> = (0..LENGTH).map(|index| byte(rank, index)).collect();
            for &peer in &peers {
                let [mut to, mut from] = engine.rings(peer);
                let (mut sent, mut received) = (0, 0);
                let mut buffer = [0; 1000];
                while sent < LENGTH || received < LENGTH {
                    sent += to.write(&own[sent..LENGTH.min(sent + 700)]).unwrap_or(0);
                    let bytes = from.read(&mut buffer).unwrap_or(0);
                    let expected = (received..received + bytes).map(|index| byte(peer, index));
                    assert!(
                        buffer[..bytes].iter().copied().eq(expected),
                        "from {peer} at {received}"
                    );
                    received += bytes;
                    if bytes == 0 {
                        from.wait_to_read(Duration::from_millis(1));
                    }
                }
                assert!(from.read(&mut buffer).is_err(), "no byte follows");
            }
        });
    }
}
