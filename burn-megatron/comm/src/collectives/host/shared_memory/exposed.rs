//! [`allocate`]: memory of the callers that all ranks of a group map, so that collectives reach it where it is.
//!
//! For `SharedBuffer`, used by `collective::in_place`.
//!
//! # Who may touch it
//!
//! Every rank has a part, and has the parts of all ranks mapped. Between calls a rank touches only its own part, so
//! whoever holds the value has this rank's part to itself. A call takes the value, and with it the caller's access.
//! Inside the call, after all ranks have come and until the last of them is done, slice r of *every* part belongs to
//! rank r alone: no byte has two users at any time. A call returns the value only when all ranks are done with this
//! rank's part. If it fails they may not be, so the value is dropped, which unmaps the parts here; the other ranks have
//! mappings of their own, and a part lives until the last of them is gone.
//!
//! This rests on the other ranks' doing the same: they are processes of one job that run one program. The length is
//! not theirs to change, because each part is sealed against it.

use super::SharedMemoryEngine;
use super::collective::Round;
use super::segment::{Backing, Source, open_file};
use crate::collectives::CollectiveError;
use crate::collectives::shared_memory::SharedMemory;
use bytemuck::{cast_slice, cast_slice_mut};
use memmap2::{MmapOptions, MmapRaw};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// Where the others find a rank's part: process, descriptor, and device and inode of the file, so that nothing else is
/// taken for it. All zeros when there is none.
type Offer = [u64; 4];

/// Returns `bytes` zeros for each rank, mapped by all; `None`, on every rank, where one of them cannot. Collective.
pub(super) fn allocate(
    engine: &SharedMemoryEngine,
    round: &mut Round<'_>,
    bytes: usize,
) -> Result<Option<SharedMemory>, CollectiveError> {
    let label = &engine.health.label;
    if bytes == 0 {
        // Nothing can be mapped, and nothing need be.
        round.all_gather(&[], &mut [])?;
        return Ok(None);
    }
    let created = create(bytes);
    let offer = created.as_ref().map_or_else(|_| Offer::default(), |(_, offer)| *offer);
    // The calls are compared here: from now on all ranks are known to ask for the same.
    let mut offers = vec![Offer::default(); label.size()];
    round.all_gather(cast_slice(&offer), cast_slice_mut(offers.as_flattened_mut()))?;
    let mapped = created.and_then(|(source, _)| {
        let parts = offers.iter().map(|offer| map(offer, bytes));
        Ok((parts.collect::<io::Result<Vec<_>>>()?, source))
    });
    if let Err(error) = &mapped {
        tracing::warn!(group = %label, %error, "no shared buffer of {bytes} bytes: an ordinary one takes its place");
    }
    // Every rank still holds its file open, and learns whether all have mapped it.
    round.begin_again();
    let mut can = vec![0u8; label.size()];
    round.all_gather(&[u8::from(mapped.is_ok())], &mut can)?;
    Ok(match mapped {
        Ok((parts, _)) if can.iter().all(|&can| can == 1) => Some(SharedMemory::new(parts, label.rank, bytes)),
        _ => None,
    })
}

fn create(bytes: usize) -> io::Result<(Source, Offer)> {
    let source = Source::create(Backing::Memfd, "burn-megatron-buffer", bytes)?;
    let metadata = source.file.metadata()?;
    let descriptor = source.file.as_raw_fd() as u64;
    let offer = [
        u64::from(std::process::id()),
        descriptor,
        metadata.dev(),
        metadata.ino(),
    ];
    Ok((source, offer))
}

/// Maps the part that a rank, maybe this one, offers.
fn map(offer: &Offer, bytes: usize) -> io::Result<MmapRaw> {
    let [process, descriptor, device, inode] = *offer;
    if process == 0 {
        return Err(io::Error::other("another rank has no memory to offer"));
    }
    let path = PathBuf::from(format!("/proc/{process}/fd/{descriptor}"));
    let file = open_file(&path, bytes)?;
    let metadata = file.metadata()?;
    if (metadata.dev(), metadata.ino()) != (device, inode) {
        return Err(io::Error::other(format!("{} is not what was offered", path.display())));
    }
    MmapOptions::new().len(bytes).map_raw(&file)
}

#[cfg(test)]
mod tests {
    use super::super::super::super::tests::{TIMEOUT, group_parts, run_ranks};
    use super::*;
    use crate::collectives::call::CallDescriptor;
    use crate::collectives::engines::engine::Engine;
    use crate::collectives::process_group::describe;
    use crate::collectives::{Operation, ReduceOp};
    use crate::launch::PeerFailure;

    const BYTES: usize = 40_000_000;

    /// Runs `body` on two ranks with the engine, a part for each, and the call to make with it.
    fn with_memory<R: Send>(
        body: impl Fn(&crate::launch::World, &SharedMemoryEngine, SharedMemory, CallDescriptor) -> R + Sync,
    ) -> Vec<R> {
        run_ranks(2, TIMEOUT, |world| {
            let (health, rendezvous) = group_parts(&world, "exposed");
            let engine = super::super::connect(&world, &health, &rendezvous);
            let mut call = describe::<f32>(Operation::Allocate, BYTES / 4);
            let memory = engine.allocate(&call, BYTES).unwrap().expect("a memfd can be had");
            call.sequence = 1;
            call.operation = Operation::AllReduceShared;
            call.reduce_op = Some(ReduceOp::Sum);
            body(&world, &engine, memory, call)
        })
    }

    #[test]
    fn a_part_is_the_same_memory_for_all_and_overlaps_no_other() {
        with_memory(|world, engine, mut memory, call| {
            memory.bytes_mut()[BYTES - 1] = 1 + world.rank() as u8;
            engine.barrier(&call).unwrap();
            for rank in 0..2 {
                // SAFETY: no rank writes between the two barriers.
                let bytes = unsafe { &*memory.slice(rank, 0..BYTES) };
                assert_eq!((bytes[0], bytes[BYTES - 1]), (0, 1 + rank as u8));
            }
            engine.barrier(&call).unwrap();
        });
    }

    /// The rank has come, and is gone before it has reduced its slice, which the other rank has begun to wait for.
    #[test]
    fn a_rank_that_dies_in_mid_call_ends_the_call_of_the_other() {
        with_memory(|world, engine, memory, call| {
            if world.rank() == 1 {
                engine
                    .collective(&call, |round| round.enter_and_stop())
                    .expect("the other rank comes");
                // As the kernel does it for a process that is killed; its part lives on in the other's mapping.
                drop(memory);
                // Waits until it learns of the failure.
                world.store().wait("never set", TIMEOUT).unwrap_err();
                return;
            }
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(std::time::Duration::from_millis(200));
                    world.failure().raise(PeerFailure::new(1, "here", "killed"));
                });
                let error = engine.on_shared(&call, memory).unwrap_err();
                let text = error.to_string();
                assert!(
                    text.contains("stopped because rank 1 on host here failed: killed"),
                    "{text}"
                );
            });
        });
    }

    #[test]
    fn what_is_not_the_offered_file_is_not_mapped() {
        let (source, offer) = create(5000).unwrap();
        assert_eq!(map(&offer, 5000).unwrap().len(), 5000);
        let wrong = |change: fn(&mut Offer), bytes: usize| {
            let mut offer = offer;
            change(&mut offer);
            map(&offer, bytes).unwrap_err().to_string()
        };
        assert!(wrong(|_| {}, 5001).contains("wrong size"));
        assert!(wrong(|offer| offer[3] += 1, 5000).contains("is not what was offered"));
        assert!(wrong(|offer| offer[1] = 1_000_000, 5000).contains("No such file"));
        assert!(wrong(|offer| *offer = Offer::default(), 5000).contains("no memory to offer"));
        assert!(source.file.set_len(0).is_err(), "sealed");
    }
}
