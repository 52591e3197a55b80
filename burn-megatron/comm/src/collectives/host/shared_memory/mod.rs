//! The engine for ranks on one node: a segment of shared memory that all ranks of the group map.
//!
//! `collective` has the operations of all ranks, `mailbox` those of two, `ring` streams for the tree of `tcp`;
//! `segment` and `layout` the memory, `flag` the waiting; `exposed` the callers' own memory that all ranks map.

pub(super) mod collective;
mod exposed;
mod flag;
pub(super) mod layout;
mod mailbox;
pub(super) mod ring;
mod segment;

use super::super::call::CallDescriptor;
use super::super::error::CollectiveError;
use super::super::health::GroupHealth;
use crate::collectives::engines::engine::Engine;
use crate::collectives::rendezvous::{OfGroup, Rendezvous};
use crate::collectives::shared_memory::SharedMemory;
use crate::launch::World;
use flag::{Flag, Spinning};
use layout::DISCONNECT_REASON_BYTES;
use parking_lot::Mutex;
use segment::{Backing, Segment};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strum::VariantArray;

/// The longest sleep before the failure signal, the other ranks and the timeout are looked at.
const SLEEP_SLICE: Duration = Duration::from_millis(20);

/// Moves bytes through a segment that all ranks of the group have mapped.
#[derive(Debug)]
pub(in crate::collectives) struct SharedMemoryEngine {
    health: Arc<GroupHealth>,
    segment: Segment,
    spinning: Spinning,
    /// Steps that this rank's collectives have taken, modulo 2^32; held during a collective.
    step: Mutex<u32>,
    bytes_communicated: AtomicU64,
}

/// Returns the engine of each group, with its segment mapped by all ranks, or why there is none. Collective over each
/// of the groups.
///
/// # Errors
/// When a rank does not come or fails.
pub(in crate::collectives) fn connect_all(
    world: &World,
    groups: &[(&Rendezvous, &Arc<GroupHealth>)],
) -> Result<Vec<Result<SharedMemoryEngine, String>>, OfGroup> {
    let parts: Vec<_> = groups
        .iter()
        .map(|(rendezvous, health)| (*rendezvous, &***health))
        .collect();
    let segments = Segment::connect_all(&parts, Backing::VARIANTS)?;
    let engine = |(segment, (_, health)): (Result<Segment, String>, &(_, &Arc<GroupHealth>))| {
        Ok(SharedMemoryEngine {
            segment: segment?,
            health: Arc::clone(health),
            spinning: Spinning::for_ranks(world.local_world_size()),
            step: Mutex::new(0),
            bytes_communicated: AtomicU64::new(0),
        })
    };
    Ok(segments.into_iter().zip(groups).map(engine).collect())
}

/// As [`connect_all`], for a test of one group.
#[cfg(test)]
pub(in crate::collectives) fn connect(
    world: &World,
    health: &Arc<GroupHealth>,
    rendezvous: &Rendezvous,
) -> SharedMemoryEngine {
    let mut engines = connect_all(world, &[(rendezvous, health)]).unwrap();
    engines.pop().unwrap().unwrap()
}

impl SharedMemoryEngine {
    /// Waits until the flag of the rank `peer` has reached `target`. `missing` gives all ranks
    /// that are waited for, should the time run out.
    fn wait_for(
        &self,
        call: &CallDescriptor,
        peer: usize,
        (flag, target): (&Flag, u32),
        missing: impl Fn() -> Vec<usize>,
    ) -> Result<(), CollectiveError> {
        if self.spinning.wait(flag, target) {
            return Ok(());
        }
        let deadline = self.health.deadline(Some(call));
        loop {
            // Before the flag: what a rank raised before it left still counts.
            let disconnect_reason = self.disconnect_reason(peer);
            if flag.has_reached(target) {
                return Ok(());
            }
            if let Some(cause) = disconnect_reason {
                // Where the job knows who failed, that is the better cause.
                self.health.check(Some(call))?;
                return Err(self.health.peer_left(call, peer, cause));
            }
            deadline.check(&missing)?;
            flag.sleep(target, deadline.slice(SLEEP_SLICE));
        }
    }

    fn count_bytes(&self, bytes: usize) {
        self.bytes_communicated.fetch_add(bytes as u64, Ordering::Relaxed);
    }
}

impl Engine for SharedMemoryEngine {
    fn name(&self) -> &'static str {
        "shared-memory"
    }

    fn place(&self) -> (usize, usize) {
        self.health.label.place()
    }

    fn all_gather(&self, call: &CallDescriptor, shard: &[u8], output: &mut [u8]) -> Result<(), CollectiveError> {
        self.collective(call, |round| round.all_gather(shard, output))
    }

    fn all_reduce(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        self.collective(call, |round| round.all_reduce(buffer))
    }

    fn reduce_scatter(&self, call: &CallDescriptor, input: &[u8], shard: &mut [u8]) -> Result<(), CollectiveError> {
        self.collective(call, |round| round.reduce_scatter(input, shard))
    }

    fn broadcast(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        self.collective(call, |round| round.broadcast(buffer))
    }

    fn send(&self, call: &CallDescriptor, buffer: &[u8]) -> Result<(), CollectiveError> {
        self.post(call, buffer)
    }

    fn recv(&self, call: &CallDescriptor, buffer: &mut [u8]) -> Result<(), CollectiveError> {
        self.fetch(call, buffer)
    }

    fn allocate(&self, call: &CallDescriptor, bytes: usize) -> Result<Option<SharedMemory>, CollectiveError> {
        self.collective(call, |round| exposed::allocate(self, round, bytes))
    }

    fn on_shared(&self, call: &CallDescriptor, memory: SharedMemory) -> Result<SharedMemory, CollectiveError> {
        self.collective(call, |round| round.on_shared(memory))
    }

    fn disconnect_reason(&self, peer: usize) -> Option<String> {
        let block = self.segment.rank_block(peer);
        if block.left.load(Ordering::Acquire) == 0 {
            return None;
        }
        let length = block.disconnect_reason_length.load(Ordering::Relaxed) as usize;
        let bytes: Vec<u8> = block.disconnect_reason[..length.min(DISCONNECT_REASON_BYTES)]
            .iter()
            .map(|byte| byte.load(Ordering::Relaxed))
            .collect();
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn bytes_communicated(&self) -> u64 {
        self.bytes_communicated.load(Ordering::Relaxed)
    }

    fn leave(&self, cause: &str) {
        let block = self.segment.rank_block(self.health.label.rank);
        let length = cause.len().min(DISCONNECT_REASON_BYTES);
        for (byte, value) in block.disconnect_reason.iter().zip(cause.as_bytes()) {
            byte.store(*value, Ordering::Relaxed);
        }
        block.disconnect_reason_length.store(length as u32, Ordering::Relaxed);
        // Sleepers notice within a slice, those in the tree at once.
        block.left.store(1, Ordering::Release);
        self.wake_rings();
    }
}

impl SharedMemoryEngine {
    /// Runs a collective at the step where the last one ended.
    pub(super) fn collective<R>(
        &self,
        call: &CallDescriptor,
        operate: impl FnOnce(&mut collective::Round<'_>) -> Result<R, CollectiveError>,
    ) -> Result<R, CollectiveError> {
        let mut step = self.step.lock();
        let mut round = collective::Round::new(self, call, *step);
        let result = operate(&mut round)?;
        *step = round.next_step();
        Ok(result)
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::tests::{TIMEOUT, group_parts, run_ranks};
    use super::*;

    /// The file in /dev/shm is used where a memfd cannot be opened, and is gone afterwards.
    #[test]
    fn the_named_segment_is_mapped_by_all_and_leaves_no_file() {
        let names = run_ranks(3, TIMEOUT, |world| {
            let (health, rendezvous) = group_parts(&world, "named");
            let backings = [Backing::NamedFile];
            let segments = Segment::connect_all(&[(&rendezvous, &health)], &backings).unwrap();
            let segment = segments.into_iter().next().unwrap().unwrap();
            let block = segment.rank_block(world.rank());
            block.staged.raise(7 + world.rank() as u32);
            for peer in 0..3 {
                while !segment.rank_block(peer).staged.has_reached(7 + peer as u32) {
                    std::thread::yield_now();
                }
            }
            rendezvous.unique_name()
        });
        assert!(!std::path::Path::new("/dev/shm").join(&names[0]).exists());
    }
}
