//! Tests of the store with threads as clients.
//!
//! | module | claims |
//! |---|---|
//! | here | keys and their values |
//! | `strangers` | who is no rank of the job disturbs nothing |
//! | `failures` | ranks, launchers and stores that are absent, silent or dead |
//! | `speed` | a measurement |

mod failures;
mod speed;
mod strangers;

use std::net::{Ipv4Addr, SocketAddr};
use std::thread;

use super::*;
use crate::launch::identity::JobToken;
use crate::launch::server::{StoreServer, StoreServerConfig, StoreTraffic};

const SECOND: Duration = Duration::from_secs(1);
const LONG: Duration = Duration::from_secs(20);

fn options(world_size: usize, token: &str) -> StoreServerConfig {
    StoreServerConfig {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        port_variable: "MASTER_PORT",
        world_size,
        job_id: "0123456789abcdef".into(),
        token: JobToken::from_text(token),
        on_failure: None,
    }
}

fn start(world_size: usize) -> (StoreServer, StoreAddress) {
    let server = StoreServer::start(options(world_size, "right token")).unwrap();
    let address = StoreAddress::new("127.0.0.1", server.address().port(), JobToken::from_text("right token"));
    (server, address)
}

fn hello(rank: usize, world_size: usize, timeout: Duration) -> Request {
    Request::Hello {
        rank,
        world_size,
        host: format!("node{rank}/boot"),
        timeout,
    }
}

fn register(address: &StoreAddress, request: &Request) -> (StoreConnection, Reply) {
    let mut connection = StoreConnection::connect(address, SECOND).unwrap();
    let reply = connection.call(request, LONG, "hello").unwrap();
    (connection, reply)
}

/// The claims that hold for both kinds of store.
fn check_keys(store: &Store) {
    store.set("a", b"one").unwrap();
    store.set("a", b"two").unwrap();
    assert_eq!(store.wait("a", SECOND).unwrap(), b"two");
    store.set("empty", b"").unwrap();
    assert_eq!(store.wait("empty", SECOND).unwrap(), b"");
    assert_eq!(store.add("n", 3).unwrap(), 3);
    assert_eq!(store.add("n", -5).unwrap(), -2);
    assert_eq!(store.wait("n", SECOND).unwrap(), (-2_i64).to_le_bytes());
    store.delete("a").unwrap();
    store.delete("a").unwrap();

    let error = store.wait("a", Duration::from_millis(50)).unwrap_err().to_string();
    assert_eq!(error, "key \"a\" was not set in the store within 50ms");
    let error = store.add("empty", 1).unwrap_err().to_string();
    assert_eq!(
        error,
        "the store refused add \"empty\": key \"empty\" holds a value of 0 bytes, not a counter"
    );
    let error = store.set(&"k".repeat(5000), b"").unwrap_err().to_string();
    assert!(
        error.ends_with("the key has 5000 bytes; a key has at most 4096"),
        "{error}"
    );
    let error = store.set("big", &vec![0; MAX_VALUE_BYTES + 1]).unwrap_err().to_string();
    assert!(
        error.contains("67108865 bytes; a value has at most 67108864"),
        "{error}"
    );
}

#[test]
fn keys_in_the_process() {
    check_keys(&Store::in_process());
}

#[test]
fn the_store_counts_what_goes_over_its_connections() {
    let (server, address) = start(1);
    assert_eq!(server.traffic(), StoreTraffic::default());
    let store = Store::remote(address, LONG);
    store.set("a", b"one").unwrap();
    store.wait("a", SECOND).unwrap();
    let traffic = server.traffic();
    assert_eq!((traffic.connections, traffic.requests, traffic.replies), (1, 2, 2));
    let set = Request::Set {
        key: "a".into(),
        value: b"one".to_vec(),
    };
    let wait = Request::Wait {
        key: "a".into(),
        timeout: SECOND,
    };
    let request_bytes = set.to_frame().len() + wait.to_frame().len();
    let reply_bytes = Reply::Done.to_frame().len() + Reply::Value(b"one"[..].into()).to_frame().len();
    assert_eq!(
        (traffic.request_bytes, traffic.reply_bytes),
        (request_bytes as u64, reply_bytes as u64)
    );
}

#[test]
fn keys_over_tcp() {
    let (_server, address) = start(1);
    check_keys(&Store::remote(address, LONG));
}

#[test]
fn large_values_arrive_whole() {
    let (_server, address) = start(1);
    let store = Store::remote(address, LONG);
    let value: Vec<u8> = (0..20_000_003_u32).map(|index| index as u8).collect();
    store.set("large", &value).unwrap();
    assert!(store.wait("large", LONG).unwrap() == value);
}

#[test]
fn waits_of_many_threads_end_when_the_key_is_set() {
    let (_server, address) = start(4);
    let store = Store::remote(address, LONG);
    for store in [store, Store::in_process()] {
        let waiters: Vec<_> = (0..8)
            .map(|index| {
                let store = store.clone();
                thread::spawn(move || {
                    store.add("arrived", 1).unwrap();
                    let key = if index % 2 == 0 { "even" } else { "odd" };
                    store.wait(key, LONG).unwrap()
                })
            })
            .collect();
        while store.add("arrived", 0).unwrap() < 8 {
            thread::sleep(Duration::from_millis(5));
        }
        store.set("even", b"0").unwrap();
        store.set("odd", b"1").unwrap();
        for (index, waiter) in waiters.into_iter().enumerate() {
            assert_eq!(waiter.join().unwrap(), [b'0' + index as u8 % 2]);
        }
    }
}

#[test]
fn counter_adds_of_many_threads_all_count() {
    let (_server, address) = start(4);
    let store = Store::remote(address, LONG);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| (0..50).for_each(|_| assert!(store.add("n", 1).unwrap() > 0)));
        }
    });
    assert_eq!(store.add("n", 0).unwrap(), 400);
}

#[test]
fn taken_port_names_address_port_and_way_out() {
    let (server, _) = start(1);
    let error = StoreServer::start(StoreServerConfig {
        listen: server.address(),
        ..options(1, "x")
    })
    .unwrap_err();
    let port = server.address().port();
    let message = error.to_string();
    assert!(
        message.starts_with(&format!("the rendezvous store cannot listen on 127.0.0.1:{port}: ")),
        "{message}"
    );
    assert!(message.contains("choose another port in MASTER_PORT"), "{message}");
}
