//! [`Near`]: a neighbour in the tree that shares memory with this rank. Frames go through the node's rings.

use crate::collectives::engines::engine::Engine;
use crate::collectives::health::GroupHealth;
use crate::collectives::host::shared_memory::SharedMemoryEngine;
use crate::collectives::host::shared_memory::ring::Ring;
use crate::collectives::host::tcp::readiness::moved;
use std::io::Write;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

/// The ranks of this node, by the memory that they share.
#[derive(Clone, Debug)]
pub(in super::super) struct NodeMemory {
    engine: Arc<SharedMemoryEngine>,
    /// The node's first rank, by its index in the whole group.
    first: usize,
    ranks: usize,
}

/// A neighbour on this node, with what goes to it.
pub(super) struct Near<'a> {
    engine: &'a SharedMemoryEngine,
    /// Its index in the node.
    index: usize,
    to: Ring<'a>,
    pub from: Ring<'a>,
    outgoing: Vec<u8>,
    sent: usize,
}

impl NodeMemory {
    /// Returns what reaches the other ranks of a node, which have these indices in the whole group. A failure ends this
    /// rank's sleep in it.
    pub fn new(engine: &Arc<SharedMemoryEngine>, health: &GroupHealth, node: &Range<usize>) -> Self {
        let memory = Self {
            engine: Arc::clone(engine),
            first: node.start,
            ranks: node.len(),
        };
        let engine = Arc::downgrade(engine);
        health.on_failure(Box::new(move || {
            if let Some(engine) = engine.upgrade() {
                engine.wake_rings();
            }
        }));
        memory
    }

    /// Returns the rank with this index in the whole group, if it is on this node.
    pub(super) fn neighbour(&self, peer: usize) -> Option<Near<'_>> {
        let index = peer.checked_sub(self.first).filter(|index| *index < self.ranks)?;
        let [to, from] = self.engine.rings(index);
        Some(Near {
            engine: &self.engine,
            index,
            to,
            from,
            outgoing: vec![],
            sent: 0,
        })
    }
}

impl Near<'_> {
    /// Lets `bytes` follow what goes to it.
    pub fn queue(&mut self, bytes: &[u8]) {
        self.outgoing.extend_from_slice(bytes);
        self.write();
    }

    /// Writes what there is room for; returns whether it was anything.
    pub fn write(&mut self) -> bool {
        let mut has_moved = false;
        while !self.has_sent_all() {
            match moved(self.to.write(&self.outgoing[self.sent..])) {
                Ok(bytes @ 1..) => self.sent += bytes,
                Ok(0) | Err(_) => return has_moved,
            }
            has_moved = true;
        }
        self.outgoing.clear();
        self.sent = 0;
        has_moved
    }

    pub fn has_sent_all(&self) -> bool {
        self.sent == self.outgoing.len()
    }

    /// Waits for something to read, for `limit` at most; looks for it before it sleeps where `looks`.
    pub fn wait_to_read(&self, looks: bool, limit: Duration) {
        if !(looks && self.engine.look_at(self.from)) {
            self.from.wait_to_read(limit);
        }
    }

    /// Waits until there may be room for more, for `limit` at most.
    pub fn wait_to_write(&self, limit: Duration) {
        self.to.wait_to_write(limit);
    }

    /// Returns why it has given the group up, if it has.
    pub fn disconnect_reason(&self) -> Option<String> {
        self.engine.disconnect_reason(self.index)
    }
}
