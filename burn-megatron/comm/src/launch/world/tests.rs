//! Tests of joining, failing and leaving, with threads as ranks.

use std::net::TcpListener;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use super::*;
use crate::launch::StoreServer;
use crate::launch::exit::cause_elsewhere;
use crate::launch::peer_failure::CONNECTION_LOST;
use crate::launch::server::StoreServerConfig;
use crate::rank_threads::{self, free_port};

const LONG: Duration = Duration::from_secs(20);

/// As torchrun would start rank `rank`: rank 0 hosts the store.
fn environment(rank: usize, world_size: usize, store_port: u16) -> Environment {
    let host = format!("node{}/boot", rank / 2);
    Environment {
        local_rank: rank % 2,
        local_world_size: 2,
        ..rank_threads::environment(rank, world_size, store_port, Some(&host))
    }
}

fn options(rendezvous_timeout: Duration) -> JoinConfig {
    JoinConfig {
        rendezvous_timeout,
        timeout: LONG,
        linger: LONG,
        ..JoinConfig::new()
    }
}

fn with_heartbeat_limit(limit: Duration) -> JoinConfig {
    JoinConfig {
        heartbeat_limit: Some(limit),
        ..options(LONG)
    }
}

/// Joins `world_size` ranks, each on a thread.
fn join_all(world_size: usize, port: u16) -> Vec<World> {
    let threads: Vec<_> = (0..world_size)
        .map(|rank| thread::spawn(move || World::join(&environment(rank, world_size, port), &options(LONG)).unwrap()))
        .collect();
    threads.into_iter().map(|thread| thread.join().unwrap()).collect()
}

/// Leaves on all ranks at once: rank 0 hosts the store and lingers for the others.
fn leave_all(worlds: Vec<World>) {
    let threads: Vec<_> = worlds
        .into_iter()
        .map(|world| thread::spawn(move || world.leave()))
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn single_world_needs_no_other_process() {
    let world = World::single();
    assert_eq!(
        (
            world.rank(),
            world.world_size(),
            world.local_rank(),
            world.local_world_size()
        ),
        (0, 1, 0, 1)
    );
    assert_eq!((world.host(), world.node_of(0)), (host_identity().as_str(), 0));
    assert_eq!(world.host_of(0).unwrap(), host_identity());
    assert_eq!(world.job_id().len(), 16);
    world.store().set("a", b"1").unwrap();
    assert_eq!(world.store().wait("a", LONG).unwrap(), b"1");
    world.fail("on its own");
    assert!(world.failure().is_raised());
    world.leave();
}

#[test]
fn ranks_agree_on_hosts_and_job() {
    let worlds = join_all(4, free_port());
    for (rank, world) in worlds.iter().enumerate() {
        assert_eq!((world.rank(), world.world_size()), (rank, 4));
        assert_eq!((world.local_rank(), world.local_world_size()), (rank % 2, 2));
        assert_eq!(
            [0, 1, 2, 3].map(|rank| (world.node_of(rank), world.host_of(rank).unwrap())),
            [(0, "node0"), (0, "node0"), (1, "node1"), (1, "node1")].map(|(node, host)| (node, format!("{host}/boot")))
        );
        assert_eq!(world.job_id(), worlds[0].job_id());
        assert_eq!(world.job_token(), worlds[0].job_token());
        assert!(world.local_address().is_loopback());
        world.store().set(&format!("from {rank}"), &[rank as u8]).unwrap();
        assert_eq!(world.store().wait("from 0", LONG).unwrap(), [0]);
    }
    leave_all(worlds);
}

#[test]
fn leaving_is_no_failure() {
    let mut worlds = join_all(3, free_port());
    drop(worlds.remove(1));
    worlds.last().unwrap().leave();
    assert_eq!(worlds[0].failure().wait_raised(Duration::from_millis(100)), None);
    let start = Instant::now();
    drop(worlds);
    assert!(
        start.elapsed() < Duration::from_secs(5),
        "lingered for ranks that had left: {:?}",
        start.elapsed()
    );
}

#[test]
fn failure_reaches_every_rank_with_its_cause() {
    let worlds = join_all(3, free_port());
    worlds[2].fail("loss is not finite");
    for world in &worlds {
        let cause = world.failure().wait_raised(LONG).unwrap();
        assert_eq!(cause.to_string(), "rank 2 on host node1 failed: loss is not finite");
        // What would have waited for a key ends at once.
        let error = world.store().wait("never", LONG).unwrap_err();
        assert_eq!(error.to_string(), cause.to_string());
    }
    leave_all(worlds);
}

#[test]
fn of_many_ranks_with_one_error_one_reports_it() {
    const RANKS: usize = 17;
    let worlds = join_all(RANKS, free_port());
    let start = Barrier::new(RANKS);
    let end = |world: &World| {
        start.wait();
        cause_elsewhere(world, &std::fmt::Error, "the batches differ")
    };
    let causes: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = worlds.iter().map(|world| scope.spawn(move || end(world))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let reporters: Vec<usize> = (0..RANKS).filter(|&rank| causes[rank].is_none()).collect();
    assert_eq!(reporters.len(), 1, "ranks {reporters:?} report the error");
    for cause in causes.iter().flatten() {
        assert_eq!((cause.rank, cause.what.as_str()), (reporters[0], "the batches differ"));
    }
    leave_all(worlds);
}

#[test]
fn death_of_a_rank_reaches_the_others() {
    let mut worlds = join_all(3, free_port());
    let killed = worlds.remove(1);
    // Unwinding closes the connection without a goodbye, as a kill does.
    let unwound = thread::spawn(move || {
        let _killed = killed;
        std::panic::resume_unwind(Box::new("no hook runs"));
    });
    assert!(unwound.join().is_err());
    for world in &worlds {
        let cause = world.failure().wait_raised(LONG).unwrap();
        assert_eq!((cause.rank, cause.what.as_str()), (1, CONNECTION_LOST));
    }
    leave_all(worlds);
}

#[test]
fn missing_ranks_are_named() {
    let port = free_port();
    let timeout = Duration::from_secs(1);
    let two = thread::spawn(move || {
        World::join(&environment(2, 4, port), &options(LONG))
            .unwrap_err()
            .to_string()
    });
    let zero = World::join(&environment(0, 4, port), &options(timeout))
        .unwrap_err()
        .to_string();
    let expected = format!("rendezvous at 127.0.0.1:{port} timed out after 1s: waiting for ranks 1, 3 of 4");
    assert_eq!(zero, expected);
    let two = two.join().unwrap();
    assert!(two.contains("waiting for ranks 1, 3 of 4"), "{two}");
}

#[test]
fn store_that_ends_in_good_order_is_no_failure() {
    let token = JobToken::random().unwrap();
    let start = || {
        StoreServer::start(StoreServerConfig {
            listen: "127.0.0.1:0".parse().unwrap(),
            port_variable: "MASTER_PORT",
            world_size: 2,
            job_id: "0123456789abcdef".into(),
            token: token.clone(),
            on_failure: None,
        })
        .unwrap()
    };
    let server = start();
    let port = server.address().port();
    let join = |rank| {
        let environment = Environment {
            master_port: port,
            store_hosted_elsewhere: true,
            job_token: Some(token.clone()),
            ..environment(rank, 2, 1)
        };
        World::join(&environment, &options(LONG)).unwrap()
    };
    let (zero, one) = thread::scope(|scope| {
        let one = scope.spawn(|| join(1));
        (join(0), one.join().unwrap())
    });
    assert_eq!(one.job_id(), "0123456789abcdef");
    // In good order: nothing is raised, and leaving stays quick.
    drop(server);
    assert_eq!(zero.failure().wait_raised(Duration::from_millis(100)), None);
    let start = Instant::now();
    drop((zero, one));
    assert!(start.elapsed() < Duration::from_secs(1));
}

#[test]
fn taken_store_port_names_its_variable() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let error = World::join(&environment(0, 2, port), &options(LONG))
        .unwrap_err()
        .to_string();
    assert!(
        error.contains(&format!("127.0.0.1:{port}: the port is taken")),
        "{error}"
    );
    assert!(error.contains("BURN_MEGATRON_STORE_PORT"), "{error}");
}

/// A relay between a rank and its store, which can be made to swallow what comes over the first n connections.
fn relay(to: u16) -> (u16, Arc<AtomicUsize>) {
    use std::io::{Read, Write};
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let swallowed = Arc::new(AtomicUsize::new(0));
    let shared = Arc::clone(&swallowed);
    thread::spawn(move || {
        for (number, near) in listener.incoming().flatten().enumerate() {
            let far = connect_when_it_listens(to);
            for (mut from, mut to) in [(near.try_clone().unwrap(), far.try_clone().unwrap()), (far, near)] {
                let swallowed = Arc::clone(&shared);
                thread::spawn(move || {
                    let is_cut = || number < swallowed.load(Ordering::Relaxed);
                    let mut bytes = [0; 4096];
                    while let Ok(count @ 1..) = from.read(&mut bytes) {
                        if !is_cut() && to.write_all(&bytes[..count]).is_err() {
                            return;
                        }
                    }
                    // Whoever is cut off does not hear of the other end's closing either.
                    if !is_cut() {
                        let _ = to.shutdown(std::net::Shutdown::Both);
                    }
                });
            }
        }
    });
    (port, swallowed)
}

/// The store may begin to listen a moment after the first rank looks for it.
fn connect_when_it_listens(port: u16) -> std::net::TcpStream {
    let begin = Instant::now();
    loop {
        match std::net::TcpStream::connect(("127.0.0.1", port)) {
            Ok(stream) => return stream,
            Err(error) => assert!(begin.elapsed() < LONG, "{error}"),
        }
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn rank_that_is_cut_off_while_others_have_not_come_is_silent() {
    let port = free_port();
    let options = with_heartbeat_limit(Duration::from_secs(1));
    let (relayed, swallowed) = relay(port);
    let far_options = options.clone();
    // Rank 2 never comes. This thread, which hears nothing any more, is not waited for.
    thread::spawn(move || World::join(&environment(1, 3, relayed), &far_options));
    thread::spawn(move || {
        thread::sleep(Duration::from_secs(2));
        swallowed.store(usize::MAX, Ordering::Relaxed);
    });
    let begin = Instant::now();
    let error = World::join(&environment(0, 3, port), &options).unwrap_err().to_string();
    assert!(
        error.contains("rank 1 on host node0 is silent: no heartbeat for 1."),
        "{error}"
    );
    // Not before: it waited for longer than the limit.
    assert!(begin.elapsed() > Duration::from_secs(2), "{:?}", begin.elapsed());
}

#[test]
fn peer_whose_connection_is_mute_continues_over_another_one() {
    let port = free_port();
    let limit = Duration::from_secs(2);
    let options = with_heartbeat_limit(limit);
    let (relayed, swallowed) = relay(port);
    let (here, far) = join_over_relay(port, relayed, &options);
    // The first one is the peer's own.
    swallowed.store(1, Ordering::Relaxed);
    assert_eq!(here.failure().wait_raised(limit * 3 / 2), None);
    assert_eq!(far.failure().cause(), None);
    // Also the news of a failure comes over the new one.
    here.fail("on purpose");
    let heard = far.failure().wait_raised(limit).unwrap();
    assert_eq!((heard.rank, heard.what.as_str()), (0, "on purpose"));
    far.leave();
    here.leave();
}

#[test]
fn wait_for_a_key_ends_when_the_store_is_out_of_reach() {
    let port = free_port();
    let options = with_heartbeat_limit(Duration::from_secs(1));
    let (relayed, swallowed) = relay(port);
    let (here, far) = join_over_relay(port, relayed, &options);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| far.store().wait("never", LONG).unwrap_err().to_string());
        // It waits by then, or soon will.
        thread::sleep(Duration::from_millis(200));
        swallowed.store(usize::MAX, Ordering::Relaxed);
        let begin = Instant::now();
        let error = waiting.join().unwrap();
        assert!(
            error.ends_with("during wait \"never\": it has not answered this rank's heartbeats"),
            "{error}"
        );
        assert!(begin.elapsed() < LONG / 2, "{:?}", begin.elapsed());
    });
    far.leave();
    here.leave();
}

/// Joins two ranks, the second one over the relay at port `relayed`.
fn join_over_relay(port: u16, relayed: u16, options: &JoinConfig) -> (World, World) {
    thread::scope(|scope| {
        let far = scope.spawn(|| World::join(&environment(1, 2, relayed), options).unwrap());
        let here = World::join(&environment(0, 2, port), options).unwrap();
        (here, far.join().unwrap())
    })
}

#[test]
fn cut_off_rank_is_silent_for_the_others_and_finds_the_store_out_of_reach() {
    let port = free_port();
    let options = with_heartbeat_limit(Duration::from_secs(2));
    let (relayed, swallowed) = relay(port);
    let (here, far) = join_over_relay(port, relayed, &options);
    // Nothing is wrong for longer than the limit.
    assert_eq!(here.failure().wait_raised(Duration::from_millis(2500)), None);
    assert_eq!(far.failure().cause(), None);
    swallowed.store(usize::MAX, Ordering::Relaxed);
    let begin = Instant::now();
    let silent = here.failure().wait_raised(LONG).unwrap().to_string();
    assert!(
        silent.starts_with("rank 1 on host node0 is silent: no heartbeat for "),
        "{silent}"
    );
    let lost = far.failure().wait_raised(LONG).unwrap().to_string();
    assert!(
        lost.starts_with(&format!(
            "rank 0 on host node0 is out of reach: lost contact with host node0 (stopped, or the network between \
             cut?): the store at 127.0.0.1:{relayed} has answered no heartbeat for 2.0 s"
        )),
        "{lost}"
    );
    assert!(begin.elapsed() < Duration::from_secs(8), "{:?}", begin.elapsed());
    // Leaving does not wait for a store that is out of reach.
    let begin = Instant::now();
    far.leave();
    assert!(begin.elapsed() < Duration::from_secs(1), "{:?}", begin.elapsed());
    here.leave();
}
