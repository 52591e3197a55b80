//! Ranks, launchers and stores that are absent, silent or dead: who it was is said in time.

use std::net::TcpListener;
use std::thread;
use std::time::Instant;

use super::*;
use crate::launch::peer_failure::CONNECTION_LOST;

#[test]
fn missing_ranks_are_named() {
    let (server, address) = start(4);
    let others = thread::spawn({
        let address = address.clone();
        move || register(&address, &hello(2, 4, LONG)).1
    });
    while server.missing_ranks().contains(&2) {
        thread::sleep(Duration::from_millis(5));
    }
    let (_connection, reply) = register(&address, &hello(0, 4, Duration::from_millis(100)));
    assert_eq!(reply, Reply::Missing(vec![1, 3]));
    // Those that would have waited longer learn of it, too, and so does a rank that comes after that.
    let what = "rank 1 on host unknown failed: did not register within 100ms; waiting for ranks 1, 3 of 4";
    for reply in [others.join().unwrap(), register(&address, &hello(1, 4, LONG)).1] {
        let Reply::Failed(failure) = reply else {
            panic!("{reply:?}")
        };
        assert_eq!(failure.to_string(), what);
    }
}

#[test]
fn contradictory_registrations_name_both_sides() {
    let (server, address) = start(3);
    let first = thread::spawn({
        let address = address.clone();
        move || register(&address, &hello(1, 3, 2 * SECOND)).1
    });
    while server.missing_ranks().contains(&1) {
        thread::sleep(Duration::from_millis(5));
    }
    let twin = Request::Hello {
        rank: 1,
        world_size: 3,
        host: "twin/boot".into(),
        timeout: LONG,
    };
    let cases = [
        (
            twin,
            "two processes are rank 1: one on host node1, and one on host twin",
        ),
        (
            hello(2, 8, LONG),
            "rank 2 on host node2 has world size 8, but the job has world size 3",
        ),
        (hello(3, 3, LONG), "rank 3 on host node3 is not below world size 3"),
    ];
    for (request, reason) in cases {
        assert_eq!(register(&address, &request).1, Reply::Rejected(reason.into()));
    }
    assert_eq!(first.join().unwrap(), Reply::Missing(vec![0, 2])); // undisturbed
}

#[test]
fn closed_connection_is_a_death_and_ends_all_waits() {
    let (server, address) = start(2);
    let registrations = [0, 1].map(|rank| {
        let address = address.clone();
        thread::spawn(move || register(&address, &hello(rank, 2, LONG)))
    });
    let [(mut zero, roster), (one, _)] = registrations.map(|thread| thread.join().unwrap());
    let nodes = NodeTable::of_hosts(["node0/boot", "node1/boot"]);
    assert_eq!(
        roster,
        Reply::Roster {
            job_id: "0123456789abcdef".into(),
            nodes,
            first_host: "node0/boot".into(),
        }
    );

    let waiting = thread::spawn({
        let store = Store::remote(address, LONG);
        move || store.wait("never", LONG).unwrap_err().to_string()
    });
    thread::sleep(Duration::from_millis(50));
    drop(one);
    let failure = PeerFailure::new(1, "node1/boot", CONNECTION_LOST);
    assert_eq!(zero.listen().unwrap(), Reply::Failed(failure.clone()));
    assert_eq!(
        waiting.join().unwrap(),
        "rank 1 on host node1 is dead: its connection to the store closed without a goodbye (killed?)"
    );
    assert_eq!(server.first_failure(), Some(failure));

    zero.send(&Request::Goodbye, SECOND, "goodbye").unwrap();
    assert_eq!(zero.listen().unwrap(), Reply::Done);
}

#[test]
fn process_that_ends_before_registering_ends_the_rendezvous() {
    let (server, address) = start(2);
    server.process_ended(1, "exit code 0"); // no rank waits yet: no failure
    assert_eq!(server.first_failure(), None);
    let (_connection, reply) = register(&address, &hello(0, 2, LONG));
    let Reply::Failed(failure) = reply else {
        panic!("{reply:?}")
    };
    assert_eq!(failure.what, "ended without joining the job: exit code 0");
}

#[test]
fn ending_server_says_so() {
    let (server, address) = start(1);
    let (mut connection, _) = register(&address, &hello(0, 1, LONG));
    drop(server);
    assert_eq!(connection.listen().unwrap(), Reply::Closing);
    let failure = PeerFailure::new(0, "node0/boot", "too late");
    let error = Store::remote(address, LONG).fail(&failure).unwrap_err();
    assert!(matches!(error, LaunchError::StoreLost { .. }), "{error}");
}

/// Registers a rank of one, and sends a heartbeat with this limit.
fn beat_once(address: &StoreAddress, limit: Duration) -> StoreConnection {
    let (mut connection, _roster) = register(address, &hello(0, 1, LONG));
    let heartbeat = Request::Heartbeat {
        limit,
        progress: "last collective #41 all_reduce of group tensor".into(),
    };
    assert_eq!(connection.call(&heartbeat, LONG, "heartbeat").unwrap(), Reply::Heard);
    connection
}

#[test]
fn rank_whose_heartbeats_stop_is_silent_not_dead() {
    let (server, address) = start(1);
    let begin = Instant::now();
    let mut connection = beat_once(&address, Duration::from_millis(600));
    // Its connection stays open: no rank has died.
    while server.first_failure().is_none() && begin.elapsed() < LONG {
        thread::sleep(Duration::from_millis(5));
    }
    let silence = begin.elapsed();
    let failure = server.first_failure().unwrap();
    assert_eq!(connection.listen().unwrap(), Reply::Failed(failure.clone()));
    assert!(silence >= Duration::from_millis(600) && silence < LONG, "{silence:?}");
    let text = failure.to_string();
    assert!(
        text.starts_with("rank 0 on host node0 is silent: no heartbeat for "),
        "{text}"
    );
}

#[test]
fn heartbeats_in_time_keep_a_rank_alive_and_tell_its_progress() {
    let (server, address) = start(1);
    let store = Store::remote(address.clone(), LONG);
    let heartbeats = || store.rank_status(0).unwrap().heartbeats;
    assert_eq!(heartbeats(), None);
    let limit = Duration::from_secs(2);
    let mut connection = beat_once(&address, limit);
    for _ in 0..22 {
        thread::sleep(Duration::from_millis(100));
        let progress = "later".into();
        let heartbeat = Request::Heartbeat { limit, progress };
        assert_eq!(connection.call(&heartbeat, LONG, "heartbeat").unwrap(), Reply::Heard);
    }
    let status = heartbeats().unwrap();
    assert_eq!((status.progress.as_str(), status.limit), ("later", limit));
    assert!(status.silence < limit, "{status:?}");
    assert!(store.rank_status(7).unwrap_err().to_string().ends_with("rank 7 of 1"));
    assert_eq!(server.first_failure(), None);
    // Having left, it owes no heartbeat.
    assert_eq!(
        connection.call(&Request::Goodbye, LONG, "goodbye").unwrap(),
        Reply::Done
    );
    thread::sleep(limit + SECOND / 2);
    assert_eq!((server.first_failure(), heartbeats()), (None, None));
}

/// Registers the launcher of node 1 of two, with ranks 2 and 3.
fn watch(address: &StoreAddress) -> StoreConnection {
    let request = Request::Watch {
        node_rank: 1,
        world_size: 4,
        host: "node1/boot".into(),
        ranks: 2..4,
    };
    let (connection, welcome) = register(address, &request);
    assert!(matches!(welcome, Reply::Welcome { .. }), "{welcome:?}");
    connection
}

#[test]
fn launcher_that_dies_before_its_ranks_have_come_ends_the_rendezvous() {
    let (_server, address) = start(4);
    let mut waiting = StoreConnection::connect(&address, SECOND).unwrap();
    let launcher = watch(&address);
    drop(launcher);
    let Reply::Failed(failure) = waiting.call(&hello(0, 4, LONG), LONG, "hello").unwrap() else {
        panic!("rank 0 waits for ranks that do not come");
    };
    assert_eq!(
        failure.to_string(),
        format!(
            "rank 2 on host node1 failed: ended without joining the job: the launcher of node 1 on host node1, which \
             starts ranks 2 to 3, {CONNECTION_LOST}"
        )
    );
}

#[test]
fn launcher_that_falls_silent_before_its_ranks_have_come_ends_the_rendezvous() {
    let (server, address) = start(4);
    let mut launcher = watch(&address);
    let heartbeat = Request::Heartbeat {
        limit: Duration::from_millis(600),
        progress: String::new(),
    };
    assert_eq!(launcher.call(&heartbeat, LONG, "heartbeat").unwrap(), Reply::Heard);
    let begin = Instant::now();
    while server.first_failure().is_none() && begin.elapsed() < LONG {
        thread::sleep(Duration::from_millis(5));
    }
    let failure = server.first_failure().unwrap().to_string();
    assert!(
        failure.starts_with(
            "rank 2 on host node1 failed: ended without joining the job: the launcher of node 1 on host node1, which \
             starts ranks 2 to 3, is silent: no heartbeat for 0."
        ),
        "{failure}"
    );
    // Its connection is still there: it may continue and end its ranks.
    assert_eq!(
        launcher.listen().unwrap(),
        Reply::Failed(server.first_failure().unwrap())
    );
    assert_eq!(launcher.call(&heartbeat, LONG, "heartbeat").unwrap(), Reply::Heard);
}

#[test]
fn launcher_that_dies_when_its_ranks_have_come_or_that_leaves_is_no_failure() {
    let (server, address) = start(4);
    let launcher = watch(&address);
    let ranks = [2, 3].map(|rank| {
        let connection = StoreConnection::connect(&address, SECOND).unwrap();
        connection.send(&hello(rank, 4, LONG), SECOND, "hello").unwrap();
        connection
    });
    let begin = Instant::now();
    while server.missing_ranks() != [0, 1] {
        assert!(begin.elapsed() < LONG, "{:?}", server.missing_ranks());
        thread::sleep(Duration::from_millis(5));
    }
    drop(launcher);
    let left = watch_when_the_first_has_gone(&address);
    assert_eq!(left, Reply::Done);
    assert_eq!(server.first_failure(), None);
    drop(ranks);
}

/// Registers the launcher of node 1 again as soon as the store knows that the first one has gone, and says goodbye.
fn watch_when_the_first_has_gone(address: &StoreAddress) -> Reply {
    let request = Request::Watch {
        node_rank: 1,
        world_size: 4,
        host: "node1/boot".into(),
        ranks: 2..4,
    };
    let begin = Instant::now();
    loop {
        match register(address, &request) {
            (mut connection, Reply::Welcome { .. }) => {
                return connection.call(&Request::Goodbye, LONG, "goodbye").unwrap();
            }
            (_, refusal) => assert!(begin.elapsed() < LONG, "{refusal:?}"),
        }
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn no_probe_of_the_kernel_ends_a_connection() {
    let (_server, address) = start(1);
    let connection = StoreConnection::connect(&address, SECOND).unwrap();
    let stream = connection.stream().upgrade().unwrap();
    assert!(!SockRef::from(&*stream).keepalive().unwrap());
}

#[test]
fn store_that_does_not_answer_is_lost_within_the_timeout_of_the_world() {
    // Accepts, and never says a word.
    let deaf = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = deaf.local_addr().unwrap().port();
    let address = StoreAddress::new("127.0.0.1", port, JobToken::from_text("right token"));
    let store = Store::remote(address, Duration::from_millis(300));
    let begin = Instant::now();
    let error = store.set("a", b"1").unwrap_err().to_string();
    assert!(begin.elapsed() < Duration::from_secs(5), "{:?}", begin.elapsed());
    let expected =
        format!("lost the store at 127.0.0.1:{port} during set \"a\": no connection within 300.0ms: no answer");
    assert!(error.starts_with(&expected), "{error}");
    store.give_up();
    let error = store.set("a", b"1").unwrap_err().to_string();
    assert!(error.ends_with("it has not answered this rank's heartbeats"), "{error}");
}

#[test]
fn store_that_has_ended_is_lost_at_once() {
    let (server, address) = start(1);
    let store = Store::remote(address, LONG);
    drop(server);
    let begin = Instant::now();
    let error = store.set("a", b"1").unwrap_err().to_string();
    assert!(begin.elapsed() < SECOND, "{:?}", begin.elapsed());
    assert!(error.contains("during set \"a\": no connection within"), "{error}");
}
