//! Ranks that are threads of a test, each with a world of its own: jobs with a store.
#![allow(clippy::unwrap_used, reason = "tests, also where they are those of another crate")]

use crate::launch::{Environment, JoinConfig, PeerFailure, World};
use std::net::TcpListener;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

/// The bound of waits that are not meant to run out.
pub const TIMEOUT: Duration = Duration::from_secs(30);

/// Runs `body` on `n` ranks at the same time and returns what each returned, by rank. A rank that panics raises the
/// failure signal of the others, then the whole test fails.
pub fn run_ranks<R: Send>(n: usize, timeout: Duration, body: impl Fn(World) -> R + Sync) -> Vec<R> {
    run_worlds(join_worlds(n, timeout), body)
}

/// Like [`run_ranks`], in worlds that are there already.
pub(crate) fn run_worlds<R: Send>(worlds: Vec<World>, body: impl Fn(World) -> R + Sync) -> Vec<R> {
    let signals: Vec<_> = worlds.iter().map(|world| world.failure().clone()).collect();
    let run = |world: World| {
        let rank = world.rank();
        catch_unwind(AssertUnwindSafe(|| body(world))).inspect_err(|_| {
            for signal in &signals {
                signal.raise(PeerFailure::new(rank, "here", "panicked"));
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

/// Returns the worlds of a new job, by rank. Rank 0 hosts the store; all ranks share this host.
pub(crate) fn join_worlds(n: usize, timeout: Duration) -> Vec<World> {
    join_worlds_on(&vec![None; n], timeout)
}

/// Like [`join_worlds`], with ranks that take themselves to be on the `hosts`.
pub(crate) fn join_worlds_on(hosts: &[Option<&str>], timeout: Duration) -> Vec<World> {
    let n = hosts.len();
    let port = free_port();
    std::thread::scope(|scope| {
        let join = |rank: usize| scope.spawn(move || join_world(rank, n, port, timeout, hosts[rank]));
        let threads: Vec<_> = (0..n).map(join).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Returns a port that was free a moment ago.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Returns the world of one rank of the job whose store is at `port`. Collective.
fn join_world(rank: usize, n: usize, port: u16, timeout: Duration, host: Option<&str>) -> World {
    let options = JoinConfig {
        rendezvous_timeout: TIMEOUT,
        timeout,
        linger: TIMEOUT,
        ..JoinConfig::new()
    };
    World::join(&environment(rank, n, port, host), &options).unwrap()
}

/// Returns the environment of a rank whose store is at `port`, which rank 0 hosts.
pub(crate) fn environment(rank: usize, n: usize, port: u16, host: Option<&str>) -> Environment {
    Environment {
        rank,
        world_size: n,
        local_rank: rank,
        local_world_size: n,
        master_addr: "127.0.0.1".into(),
        master_port: 1,
        job_id: None,
        job_token: None,
        store_hosted_elsewhere: false,
        chosen_store_port: Some(port),
        host: host.map(str::to_owned),
        run_id: Some("collectives".into()),
        restart_count: None,
    }
}
