//! The engine for ranks on several nodes, some of which have several ranks: shared memory inside a node, TCP between.
//!
//! Every rank maps the segment of its node (`shared_memory`) and can reach all ranks (`tcp`). A large message is
//! cut into chunks and every chunk into slices, one for each of the first S ranks of a node, its owners; S is the size
//! of the smallest node. Ranks of a node hand their data over in shared memory, the owners of a slice carry it between
//! the nodes, side by side, and hand what has come to their node. So a byte crosses between two nodes once for the
//! node, where flat TCP sends it once for every rank.
//!
//! | file | what it holds |
//! |---|---|
//! | `topology` | who is on which node, and who owns which slice |
//! | `in_flight` | one call on its way: steps in the node, streams between the nodes |
//! | `reduction` | all_reduce and reduce_scatter: a chain of nodes, in rank order |
//! | `spreading` | all_gather and broadcast |
//!
//! Before any data moves, all ranks compare the call's descriptor over the tree of `tcp`, which goes through memory
//! inside a node: so a mismatch and a timeout name exactly the ranks concerned, on every rank. Calls of a few KiB are
//! left to that tree, which takes less time than steps and chains. Send and receive take the shared memory to a rank of
//! the same node, TCP to another.

mod in_flight;
mod reduction;
mod spreading;
#[cfg(test)]
mod tests;
mod topology;

use super::super::call::CallDescriptor;
use super::super::error::CollectiveError;
use super::super::health::GroupHealth;
use super::shared_memory::SharedMemoryEngine;
use super::tcp::TcpEngine;
use crate::collectives::engines::engine::Engine;
use in_flight::CollectiveInFlight;
use reduction::Operands;
use spreading::MAX_GATHERED_RANKS;
use std::ops::Range;
use std::sync::Arc;
use topology::Topology;

/// Up to this size of the longer buffer a call goes over the tree.
const SMALL_BYTES: usize = 8 * 1024;

/// Moves bytes through shared memory inside a node and over TCP between nodes.
#[derive(Debug)]
pub(in crate::collectives) struct HierarchicalEngine {
    health: Arc<GroupHealth>,
    topology: Topology,
    /// To the other ranks of this node; none when there are none.
    node: Option<Arc<SharedMemoryEngine>>,
    /// To all ranks.
    tcp: TcpEngine,
}

impl HierarchicalEngine {
    /// Returns the engine of a group whose ranks share memory with those of their node: `node` reaches these, if there
    /// are others. `nodes` are the ranks of each node, and `tcp` reaches all ranks.
    pub fn new(
        health: &Arc<GroupHealth>,
        nodes: &[Range<usize>],
        node: Option<SharedMemoryEngine>,
        mut tcp: TcpEngine,
    ) -> Self {
        let node = node.map(Arc::new);
        tcp.share_nodes(nodes, node.as_ref());
        Self {
            topology: Topology::new(nodes.to_vec(), health.label.rank),
            health: health.clone(),
            node,
            tcp,
        }
    }

    /// Runs a large collective, after all ranks have come and have made the same call.
    fn collective(
        &self,
        call: &CallDescriptor,
        operate: impl FnOnce(&mut CollectiveInFlight<'_, '_>) -> Result<(), CollectiveError>,
    ) -> Result<(), CollectiveError> {
        self.tcp.barrier(call)?;
        let streams = self.tcp.streams(call);
        let Some(node) = &self.node else {
            let mut collective = CollectiveInFlight::new(&self.topology, None, streams);
            operate(&mut collective)?;
            return collective.finish();
        };
        // The root may be on another node.
        let call_in_node = CallDescriptor { peer: None, ..*call };
        let done = node.collective(&call_in_node, |round| {
            let mut collective = CollectiveInFlight::new(&self.topology, Some(round), streams);
            operate(&mut collective)?;
            collective.finish()
        });
        done.map_err(|error| self.of_whole_group(error, call))
    }

    /// Returns what reaches the rank `peer`, and its index there.
    fn reach(&self, peer: usize) -> (&dyn Engine, usize) {
        let members = self.topology.own_members();
        match &self.node {
            Some(node) if members.contains(&peer) => (&**node, peer - members.start),
            _ => (&self.tcp, peer),
        }
    }

    /// Returns what carries a transfer to or from the rank `call.peer`, and the call as it sees it.
    fn route(&self, call: &CallDescriptor) -> (&dyn Engine, CallDescriptor) {
        let (engine, peer) = self.reach(call.other_side());
        let peer = Some(peer);
        (engine, CallDescriptor { peer, ..*call })
    }

    fn of_whole_group(&self, error: CollectiveError, call: &CallDescriptor) -> CollectiveError {
        let label = &self.health.label;
        error.of_whole_group(label.to_string(), label.describe(call))
    }
}

impl Engine for HierarchicalEngine {
    fn name(&self) -> &'static str {
        "hierarchical"
    }

    fn place(&self) -> (usize, usize) {
        self.health.label.place()
    }

    fn all_gather(&self, call: &CallDescriptor, shard: &[u8], output: &mut [u8]) -> Result<(), CollectiveError> {
        if output.len() <= SMALL_BYTES || self.topology.ranks() > MAX_GATHERED_RANKS {
            return self.tcp.all_gather(call, shard, output);
        }
        self.collective(call, |collective| collective.all_gather(shard, output))
    }

    fn all_reduce(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        if buffer.len() <= SMALL_BYTES {
            return self.tcp.all_reduce(call, buffer);
        }
        self.collective(call, |collective| collective.reduce(call, Operands::InPlace(buffer)))
    }

    fn reduce_scatter(&self, call: &CallDescriptor, input: &[u8], shard: &mut [u8]) -> Result<(), CollectiveError> {
        if input.len() <= SMALL_BYTES {
            return self.tcp.reduce_scatter(call, input, shard);
        }
        self.collective(call, |collective| {
            collective.reduce(call, Operands::Scatter { input, shard })
        })
    }

    fn broadcast(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        if buffer.len() <= SMALL_BYTES {
            return self.tcp.broadcast(call, buffer);
        }
        self.collective(call, |collective| collective.broadcast(call.other_side(), buffer))
    }

    fn send(&self, call: &CallDescriptor, buffer: &[u8]) -> Result<(), CollectiveError> {
        let (engine, call_there) = self.route(call);
        let sent = engine.send(&call_there, buffer);
        sent.map_err(|error| self.of_whole_group(error, call))
    }

    fn recv(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        let (engine, call_there) = self.route(call);
        let received = engine.recv(&call_there, buffer);
        received.map_err(|error| self.of_whole_group(error, call))
    }

    fn disconnect_reason(&self, peer: usize) -> Option<String> {
        let (engine, peer) = self.reach(peer);
        engine.disconnect_reason(peer)
    }

    fn bytes_communicated(&self) -> u64 {
        let in_node = self.node.as_ref().map_or(0, |node| node.bytes_communicated());
        in_node + self.tcp.bytes_communicated()
    }

    fn leave(&self, cause: &str) {
        if let Some(node) = &self.node {
            node.leave(cause);
        }
        self.tcp.leave(cause);
    }
}
