//! How long a store takes for many ranks.

use std::time::Instant;

use super::*;
use crate::launch::peer_failure::CONNECTION_LOST;

/// Each rank is a connection of this thread, for which a process has room. They join, a group of all is made, and one
/// dies.
#[test]
#[ignore = "a measurement, of 18,500 open files"]
fn store_of_8192_ranks() {
    const RANKS: usize = 8192;
    /// Ranks whose words a further connection brings: the store is asked the same, over fewer.
    const SHARE: usize = 8;
    let limit = Duration::from_secs(120);
    let (server, address) = start(RANKS);
    let begun = Instant::now();
    let join = |rank: usize| {
        let connection = StoreConnection::connect(&address, limit).unwrap();
        let host = format!("node{}/boot", rank / SHARE);
        let hello = Request::Hello {
            rank,
            world_size: RANKS,
            host,
            timeout: limit,
        };
        connection.send(&hello, limit, "hello").unwrap();
        connection
    };
    let mut ranks: Vec<StoreConnection> = (0..RANKS).map(join).collect();
    for rank in &mut ranks {
        match rank.listen().unwrap() {
            Reply::Roster { nodes, .. } => assert!(nodes.is_of(RANKS) && nodes.node_of(RANKS - 1) == Some(1023)),
            other => panic!("{other:?}"),
        }
    }
    let (joined, traffic) = (begun.elapsed(), server.traffic());
    let [asked, said] = [traffic.request_bytes, traffic.reply_bytes].map(|bytes| bytes / RANKS as u64);
    println!("{RANKS} ranks have joined after {joined:.2?}; of each {asked} bytes, to each {said}");

    let begun = Instant::now();
    let gather = |first: usize| {
        let connection = StoreConnection::connect(&address, limit).unwrap();
        let saying = |index: usize| Saying {
            key: "engine".into(),
            index,
            size: RANKS,
            value: b"hierarchical".to_vec(),
        };
        let request = Request::Gather {
            sayings: (first..first + SHARE).map(saying).collect(),
            timeout: limit,
        };
        connection.send(&request, limit, "gather").unwrap();
        connection
    };
    let mut shares: Vec<StoreConnection> = (0..RANKS).step_by(SHARE).map(gather).collect();
    for share in &mut shares {
        match share.listen().unwrap() {
            Reply::Gathered(groups) => assert!(groups.len() == SHARE && groups.iter().all(|runs| runs.are_of(RANKS))),
            other => panic!("{other:?}"),
        }
    }
    println!("a group of all is made after {:.2?}", begun.elapsed());

    let begun = Instant::now();
    drop(ranks.pop());
    for rank in &mut ranks {
        match rank.listen().unwrap() {
            Reply::Failed(failure) => assert_eq!((failure.rank, &*failure.what), (RANKS - 1, CONNECTION_LOST)),
            other => panic!("{other:?}"),
        }
    }
    println!("all know of a death after {:.2?}", begun.elapsed());
}
