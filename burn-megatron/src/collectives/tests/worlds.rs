//! The worlds of ranks that are threads of this process.

use super::*;
use crate::launch::{Environment, JoinOptions};
use std::net::TcpListener;

/// Returns the worlds of a new job, by rank. Rank 0 hosts the store; all ranks share this host.
pub(in crate::collectives) fn join_worlds(n: usize, timeout: Duration) -> Vec<World> {
    join_worlds_on(&vec![None; n], timeout)
}

/// Like [`join_worlds`], with ranks that take themselves to be on the `hosts`.
pub(super) fn join_worlds_on(hosts: &[Option<&str>], timeout: Duration) -> Vec<World> {
    let n = hosts.len();
    // A port that was free a moment ago.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    let options = JoinOptions {
        rendezvous_timeout: TIMEOUT,
        timeout,
        linger: TIMEOUT,
        ..JoinOptions::default()
    };
    let join = |rank: usize| {
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
            host: hosts[rank].map(str::to_owned),
            run_id: Some("collectives".into()),
            restart_count: None,
        };
        World::join(&environment, &options).unwrap()
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..n).map(|rank| scope.spawn(move || join(rank))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}
