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
use super::nodes::nodes_of;
use crate::collectives::aligned::AlignedBytes;
use crate::collectives::rendezvous::{DISCONNECT_REASON_WAIT, Rendezvous};
use crate::launch::World;
use links::Links;
use std::fmt::Display;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tree::Shape;

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
    /// Over which the ranks meet, if there are many.
    tree: Option<Shape>,
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

/// Returns the engine, which all ranks can connect to. Collective.
///
/// # Errors
/// When a rank does not come or fails.
pub(in crate::collectives) fn connect(
    world: &World,
    health: &Arc<GroupHealth>,
    rendezvous: &Rendezvous,
) -> Result<TcpEngine, CollectiveError> {
    let arity = (health.label.size() > tree::TREE_ABOVE).then_some(tree::ARITY);
    connect_with(world, health, rendezvous, arity)
}

/// As [`connect`]: over a tree of this arity, or without one.
pub(in crate::collectives) fn connect_with(
    world: &World,
    health: &Arc<GroupHealth>,
    rendezvous: &Rendezvous,
    arity: Option<usize>,
) -> Result<TcpEngine, CollectiveError> {
    let links = Links::open(world, health, rendezvous)?;
    let (rank, size) = health.label.place();
    let hosts: Vec<&str> = health.label.ranks.iter().map(|&rank| world.host_of(rank)).collect();
    let is_one_host = hosts.iter().all(|host| *host == hosts[0]);
    let shape = |arity| {
        // Where a node's ranks are not next to each other, the tree knows of no nodes.
        let nodes = nodes_of(&hosts).unwrap_or_else(|_| std::iter::once(0..size).collect());
        Shape::new(&nodes, arity, rank)
    };
    Ok(TcpEngine {
        tree: arity.map(shape),
        health: health.clone(),
        rendezvous: rendezvous.clone(),
        links,
        segment_bytes: if is_one_host {
            collective::NEAR_SEGMENT_BYTES
        } else {
            usize::MAX
        },
        is_between_hosts: !is_one_host,
        looks: transfer::looks(world.local_world_size()),
        scratch: Mutex::default(),
        bytes_communicated: AtomicU64::new(0),
    })
}

impl TcpEngine {
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
