//! Tests of the groups over both engines. The ranks are threads of this process, each with a world
//! and groups of its own; the engines do not care.

mod asynchronous;
mod contract;
mod failures;
mod random;
mod speed;
mod worlds;

use super::{EngineChoice, GroupOptions, ProcessGroup};
use crate::launch::{PeerFailure, World};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;
pub(in crate::collectives) use worlds::join_worlds;
use worlds::join_worlds_on;

/// The bound of waits that are not meant to run out.
pub(super) const TIMEOUT: Duration = Duration::from_secs(30);
/// The bound of waits that are.
pub(super) const SHORT_TIMEOUT: Duration = Duration::from_millis(300);

/// The engines under test.
pub(super) const ENGINES: [EngineChoice; 2] = [EngineChoice::SharedMemory, EngineChoice::Tcp];

/// Runs `body` on `n` ranks at the same time and returns what each returned, by rank. A rank that
/// panics raises the failure signal of the others, then the whole test fails.
pub(super) fn run_ranks<R: Send>(n: usize, timeout: Duration, body: impl Fn(World) -> R + Sync) -> Vec<R> {
    run_worlds(join_worlds(n, timeout), body)
}

/// Like [`run_ranks`], in worlds that are there already.
pub(super) fn run_worlds<R: Send>(worlds: Vec<World>, body: impl Fn(World) -> R + Sync) -> Vec<R> {
    let signals: Vec<_> = worlds.iter().map(|world| world.failure().clone()).collect();
    let run = |world: World| {
        let rank = world.rank();
        catch_unwind(AssertUnwindSafe(|| body(world))).inspect_err(|_| {
            for signal in &signals {
                signal.raise(PeerFailure {
                    rank,
                    host: "here".into(),
                    what: "panicked".into(),
                });
            }
        })
    };
    let results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = worlds.into_iter().map(|world| scope.spawn(|| run(world))).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("panics are caught inside"))
            .collect()
    });
    results
        .into_iter()
        .collect::<Result<_, _>>()
        .unwrap_or_else(|panic| resume_unwind(panic))
}

/// Connects a group of all ranks.
pub(super) fn connect_all(world: &World, engine: EngineChoice) -> ProcessGroup {
    let ranks: Vec<usize> = (0..world.world_size()).collect();
    ProcessGroup::connect(world, "all", &ranks, &GroupOptions { engine }).unwrap()
}

/// Runs `body` on `n` ranks with a group of all of them, over one engine after the other.
pub(super) fn with_groups(n: usize, timeout: Duration, body: impl Fn(&World, ProcessGroup) + Sync) {
    run_ranks(n, timeout, |world| {
        for engine in ENGINES {
            let group = connect_all(&world, engine);
            body(&world, group);
        }
    });
}

/// Like [`with_groups`], with new worlds for each engine: for what leaves the ranks out of step or
/// the job failed.
pub(super) fn with_worlds(n: usize, timeout: Duration, body: impl Fn(&World, ProcessGroup) + Sync) {
    for engine in ENGINES {
        run_ranks(n, timeout, |world| {
            let group = connect_all(&world, engine);
            body(&world, group);
        });
    }
}

/// Returns a number that looks random (splitmix64).
pub(super) fn scramble(seed: u64) -> u64 {
    let mut x = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
