//! Streams of bytes to and from ranks in the middle of a collective: what the broadcast over TCP and the hierarchical
//! engine pass on from rank to rank.
//!
//! What is sent is copied and goes whenever this rank waits for anything, so that no order of sends and receives can
//! block two ranks against each other as long as what each of them waits for has been sent.

use super::super::super::call::CallDescriptor;
use super::super::super::error::CollectiveError;
use super::TcpEngine;
use super::exchange::{Exchange, LOOKS, Outgoing};
use std::time::Duration;

/// The longest wait for a socket where something else is awaited that no socket tells of.
const SHORT_SLICE: Duration = Duration::from_millis(1);

impl TcpEngine {
    /// Returns the streams of a call: all ranks must have compared it.
    pub(in super::super) fn streams<'a>(&'a self, call: &'a CallDescriptor) -> Exchange<'a> {
        Exchange::new(self, call)
    }
}

impl Exchange<'_> {
    /// Sends `bytes` to the rank with group index `peer`, after what was sent to it before; does not wait. A caller
    /// that sends more than the other side has asked for calls [`drain_to`](Self::drain_to) first.
    pub fn send(&mut self, peer: usize, bytes: &[u8]) {
        self.engine.count_bytes(bytes.len());
        self.queue(peer, bytes);
    }

    /// As [`send`](Self::send), of what is no payload, or has been counted.
    pub(super) fn queue(&mut self, peer: usize, bytes: &[u8]) {
        let found = self.outgoing.iter().position(|out| out.peer == peer);
        let index = found.unwrap_or_else(|| {
            self.outgoing.push(Outgoing::new(peer, 0, &[]));
            self.outgoing.len() - 1
        });
        self.outgoing[index].append(bytes);
        self.write();
    }

    /// Returns when the system has taken all but at most `bytes` of what was sent to the rank `peer`: before more is
    /// sent to a rank that does not answer, so that it does not pile up here.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn drain_to(&mut self, bytes: usize, peer: usize) -> Result<(), CollectiveError> {
        let has_backlog = |out: &Outgoing<'_>| out.peer == peer && out.queued() > bytes;
        let drained = |outgoing: &[Outgoing<'_>]| !outgoing.iter().any(has_backlog);
        self.write_until(drained, || vec![peer])
    }

    /// Returns the bytes of memory that wait for the rank `peer`.
    #[cfg(test)]
    pub fn held_for(&self, peer: usize) -> usize {
        let capacity = |out: &Outgoing<'_>| match &out.payload {
            std::borrow::Cow::Owned(bytes) => bytes.capacity(),
            std::borrow::Cow::Borrowed(_) => 0,
        };
        self.outgoing.iter().filter(|out| out.peer == peer).map(capacity).sum()
    }

    /// Sends until `ready`, or until there is nothing to send: before a wait during which nothing is sent. `missing`
    /// gives the ranks that are waited for.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub fn send_until(
        &mut self,
        ready: impl Fn() -> bool,
        missing: impl Fn() -> Vec<usize>,
    ) -> Result<(), CollectiveError> {
        self.write_until(|_| ready(), missing)
    }

    fn write_until(
        &mut self,
        ready: impl Fn(&[Outgoing<'_>]) -> bool,
        missing: impl Fn() -> Vec<usize>,
    ) -> Result<(), CollectiveError> {
        self.deadline.renew();
        let mut vain_looks = 0;
        loop {
            let has_moved = self.write();
            if ready(&self.outgoing) || !self.outgoing.iter().any(Outgoing::wants_to_write) {
                return Ok(());
            }
            self.deadline.check(&missing)?;
            vain_looks = if has_moved { 0 } else { vain_looks + 1 };
            match vain_looks {
                0 => self.deadline.renew(),
                1..LOOKS => std::thread::yield_now(),
                _ => self.wait_to_write(SHORT_SLICE),
            }
        }
    }
}
