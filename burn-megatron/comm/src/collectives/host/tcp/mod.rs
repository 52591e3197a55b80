//! The engine for ranks on several nodes: TCP connections between the ranks of the group.
//!
//! `links` makes a connection when it is first used, once both ends have proved that they belong to the job;
//! `exchange` moves bytes over many connections at once, `collective` builds the operations of all
//! ranks from it, `tree` lets many ranks meet with few connections, `streams` gives exchanges to the hierarchical
//! engine, `transfer` has the operations of two ranks. Each pair has one connection for collectives and one for
//! transfers, so that neither waits for the other.

mod collective;
pub(super) mod exchange;
mod links;
mod readiness;
mod streams;
#[cfg(test)]
mod tests;
mod transfer;
mod tree;

use super::super::call::CallDescriptor;
use super::super::error::CollectiveError;
use super::super::health::GroupHealth;
use super::nodes::Placement;
use super::shared_memory::SharedMemoryEngine;
use crate::collectives::engines::aligned::AlignedBytes;
use crate::collectives::rendezvous::{DISCONNECT_REASON_WAIT, Rendezvous};
use crate::launch::World;
use links::Links;
use parking_lot::Mutex;
use std::fmt::Display;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tree::{NodeMemory, Shape};

/// The longest wait for a socket, which a failure ends, before a cause in this rank and the timeout are looked at.
const POLL_SLICE: Duration = Duration::from_millis(100);

/// How long to wait for a rank's words before the failure signal is looked at.
const DISCONNECT_REASON_SLICE: Duration = Duration::from_millis(50);

/// Moves bytes over connections between ranks of the group.
#[derive(Debug)]
pub(in crate::collectives) struct TcpEngine {
    health: Arc<GroupHealth>,
    rendezvous: Rendezvous,
    links: Links,
    /// Over which the ranks meet, if they are many, or some share memory.
    tree: Option<Shape>,
    /// The ranks of this node, if they share memory: in the tree they are reached through it.
    node: Option<NodeMemory>,
    /// How much of an all-reduce each rank reduces before the results go round, and of a shard what is gathered or
    /// scattered at a time; the same on all.
    segment_bytes: usize,
    /// Whether a network, and not the processors, limits what a rank can send.
    is_between_hosts: bool,
    /// Looks at sockets before a sleep, of transfers and in the tree.
    looks: u32,
    /// Where contributions wait for each other.
    scratch: Mutex<AlignedBytes>,
    bytes_communicated: AtomicU64,
}

/// As [`TcpEngine::open`], for tests that connect an engine by themselves: over a tree of this arity, or without one.
/// Collective.
#[cfg(test)]
pub(in crate::collectives) fn connect_with(
    world: &World,
    health: &Arc<GroupHealth>,
    rendezvous: &Rendezvous,
    arity: Option<usize>,
) -> Result<TcpEngine, CollectiveError> {
    let engine = TcpEngine::open_with(
        world,
        health,
        rendezvous,
        &Placement::of(world, &health.label.ranks),
        arity,
    )?;
    crate::collectives::rendezvous::gather_all("links", [(rendezvous, &b"open"[..])])
        .map_err(|of_group| of_group.error)?;
    Ok(engine)
}

impl TcpEngine {
    /// Returns the engine of this rank, to which the other ranks can connect from now on. It takes calls once all ranks
    /// have theirs, which is for the caller to make sure of.
    ///
    /// # Errors
    /// When this rank cannot listen.
    pub fn open(
        world: &World,
        health: &Arc<GroupHealth>,
        rendezvous: &Rendezvous,
        placement: &Placement,
    ) -> Result<Self, CollectiveError> {
        let arity = (health.label.size() > tree::TREE_ABOVE).then_some(tree::ARITY);
        Self::open_with(world, health, rendezvous, placement, arity)
    }

    fn open_with(
        world: &World,
        health: &Arc<GroupHealth>,
        rendezvous: &Rendezvous,
        placement: &Placement,
        arity: Option<usize>,
    ) -> Result<Self, CollectiveError> {
        let (rank, size) = health.label.place();
        let is_between_hosts = placement.apart().is_some();
        let shape = |arity| match placement.nodes() {
            Ok(nodes) => Shape::new(nodes, arity, arity, rank),
            // Where a node's ranks are not next to each other, the tree knows of no nodes.
            Err(_) => Shape::new(std::slice::from_ref(&(0..size)), arity, arity, rank),
        };
        Ok(Self {
            tree: arity.map(shape),
            node: None,
            health: health.clone(),
            rendezvous: rendezvous.clone(),
            links: Links::open(world, health, rendezvous)?,
            segment_bytes: if is_between_hosts {
                usize::MAX
            } else {
                collective::NEAR_SEGMENT_BYTES
            },
            is_between_hosts,
            looks: transfer::looks(world.local_world_size()),
            scratch: Mutex::default(),
            bytes_communicated: AtomicU64::new(0),
        })
    }

    /// Lets the ranks meet over a tree of nodes, the ranks of a node through memory that they share: `nodes` are the
    /// ranks of each node, and `memory` reaches those of this one, if there are others.
    pub fn share_nodes(&mut self, nodes: &[Range<usize>], memory: Option<&Arc<SharedMemoryEngine>>) {
        let rank = self.health.label.rank;
        self.tree = Some(Shape::new(nodes, tree::ARITY, usize::MAX, rank));
        let own = nodes.iter().find(|node| node.contains(&rank));
        let shared = memory.zip(own);
        self.node = shared.map(|(memory, own)| NodeMemory::new(memory, &self.health, own));
    }

    /// Returns why the connection to a rank is gone: what the job knows, what the rank said, or else what the operating
    /// system says.
    fn lost(&self, call: &CallDescriptor, peer: usize, what: &dyn Display) -> CollectiveError {
        let end = Instant::now() + DISCONNECT_REASON_WAIT;
        let disconnect_reason = loop {
            // If it has died the job knows that before anyone has words of it.
            if let Err(known) = self.health.check(Some(call)) {
                return known;
            }
            let reason = self.rendezvous.disconnect_reason(peer, DISCONNECT_REASON_SLICE);
            if reason.is_some() || Instant::now() >= end {
                break reason;
            }
        };
        if let Err(known) = self.health.check(Some(call)) {
            return known;
        }
        let label = &self.health.label;
        match disconnect_reason {
            Some(cause) => self.health.peer_left(call, peer, cause),
            None => CollectiveError::ConnectionLost {
                group: label.to_string(),
                call: label.describe(call),
                rank: label.ranks[peer],
                what: what.to_string(),
            },
        }
    }

    /// Reads the descriptor that a rank has sent.
    fn decode(
        &self,
        call: &CallDescriptor,
        peer: usize,
        bytes: &[u8; CallDescriptor::BYTES],
    ) -> Result<CallDescriptor, CollectiveError> {
        CallDescriptor::from_bytes(bytes).ok_or_else(|| self.lost(call, peer, &"it sent something that is no call"))
    }

    fn count_bytes(&self, bytes: usize) {
        self.bytes_communicated.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}
