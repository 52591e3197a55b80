//! The worlds of a test: jobs with a store of their own.

use super::*;
#[cfg(test)]
use crate::collectives::{call::GroupLabel, health::GroupHealth, rendezvous::Rendezvous};
use crate::launch::{Environment, JoinConfig};
use std::net::TcpListener;
#[cfg(test)]
use std::sync::Arc;

/// Returns the worlds of a new job, by rank. Rank 0 hosts the store; all ranks share this host.
pub(in crate::collectives) fn join_worlds(n: usize, timeout: Duration) -> Vec<World> {
    join_worlds_on(&vec![None; n], timeout)
}

/// Like [`join_worlds`], with ranks that take themselves to be on the `hosts`.
pub(in super::super) fn join_worlds_on(hosts: &[Option<&str>], timeout: Duration) -> Vec<World> {
    let n = hosts.len();
    let port = free_port();
    std::thread::scope(|scope| {
        let join = |rank: usize| scope.spawn(move || join_world(rank, n, port, timeout, hosts[rank]));
        let threads: Vec<_> = (0..n).map(join).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Returns a port that was free a moment ago.
pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// Returns the world of one rank of the job whose store is at `port`. Collective.
pub(super) fn join_world(rank: usize, n: usize, port: u16, timeout: Duration, host: Option<&str>) -> World {
    let options = JoinConfig {
        rendezvous_timeout: TIMEOUT,
        timeout,
        linger: TIMEOUT,
        ..JoinConfig::new()
    };
    let environment = Environment {
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
    };
    World::join(&environment, &options).unwrap()
}

/// Returns what an engine is connected with, for a group of all ranks.
#[cfg(test)]
pub(in crate::collectives) fn group_parts(world: &World, name: &str) -> (Arc<GroupHealth>, Rendezvous) {
    let label = GroupLabel {
        name: name.into(),
        ranks: (0..world.world_size()).collect(),
        rank: world.rank(),
    };
    let health = Arc::new(GroupHealth::new(label, world));
    let rendezvous = Rendezvous::new(world, &health).unwrap();
    (health, rendezvous)
}
