//! A relay that hears all that ranks and store say to each other: the job's secret is not in it, and it opens nothing.
//! Ranks with another job's secret.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use burn_megatron::launch::{LaunchError, StoreServer};

use crate::{compute, join, store};

/// A relay in front of a store, which keeps what goes over it.
struct Relay {
    port: u16,
    /// Of each connection: what the client said, and what the store said.
    said: Arc<Mutex<Vec<[Vec<u8>; 2]>>>,
}

impl Relay {
    fn start(store: SocketAddr) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let said: Arc<Mutex<Vec<[Vec<u8>; 2]>>> = Arc::default();
        let all = said.clone();
        // Ends with the process: nothing waits for it.
        thread::spawn(move || {
            while let Ok((client, _)) = listener.accept() {
                let Ok(server) = TcpStream::connect(store) else {
                    continue;
                };
                let index = {
                    let mut all = all.lock().unwrap();
                    all.push(Default::default());
                    all.len() - 1
                };
                for (side, mut from, mut to) in [
                    (0, client.try_clone().unwrap(), server.try_clone().unwrap()),
                    (1, server, client),
                ] {
                    let all = all.clone();
                    thread::spawn(move || {
                        let mut buffer = [0; 4096];
                        while let Ok(count @ 1..) = from.read(&mut buffer) {
                            all.lock().unwrap()[index][side].extend(&buffer[..count]);
                            if to.write_all(&buffer[..count]).is_err() {
                                break;
                            }
                        }
                        let _ = to.shutdown(std::net::Shutdown::Both);
                    });
                }
            }
        });
        Relay { port, said }
    }
}

/// Runs a job of two ranks whose connections to the store go over a relay.
fn run_over_relay(server: &StoreServer, token: &str) -> Relay {
    let relay = Relay::start(server.address());
    thread::scope(|scope| {
        for rank in 0..2 {
            let port = relay.port;
            scope.spawn(move || drop(compute(&join(rank, 2, port, token).unwrap())));
        }
    });
    relay
}

/// What a client said in a handshake that succeeded.
pub fn overhear(token: &str) -> Vec<u8> {
    let server = store(2, token);
    let relay = run_over_relay(&server, token);
    let said = relay.said.lock().unwrap();
    said[0][0].clone()
}

pub fn the_token_never_crosses_the_wire_and_what_does_opens_nothing() {
    let token = "0f1e2d3c4b5a69788796a5b4c3d2e1f0";
    let server = store(2, token);
    let relay = run_over_relay(&server, token);
    let said = relay.said.lock().unwrap();
    assert!(said.len() >= 4, "{} connections went over the relay", said.len());
    let raw: Vec<u8> = (0..16)
        .map(|at| u8::from_str_radix(&token[2 * at..][..2], 16).unwrap())
        .collect();
    for bytes in said.iter().flatten() {
        // Nor any half of it, as text or as the bytes that it stands for.
        for secret in [&token.as_bytes()[..16], &token.as_bytes()[16..], &raw[..8], &raw[8..]] {
            assert!(
                !bytes.windows(secret.len()).any(|piece| piece == secret),
                "the token crossed the wire"
            );
        }
    }
    // Every client's words again, to the same store.
    for [client, _] in said.iter() {
        let mut replay = TcpStream::connect(server.address()).unwrap();
        replay.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let _ = replay.write_all(client);
        let mut answer = Vec::new();
        let _ = replay.read_to_end(&mut answer);
        // Magic and a new challenge, then refused (0) and no proof; a reset may have cut that short.
        assert!(
            answer.len() <= 73 && answer.iter().skip(40).all(|byte| *byte == 0),
            "{answer:?}"
        );
    }
}

pub fn a_rank_of_another_job_is_refused_at_once_and_nobody_else_notices() {
    let (one, other) = ("the secret of one job", "the secret of another job");
    let servers = [store(2, one), store(2, other)];
    // The ports the wrong way round.
    for (server, token) in [(&servers[1], one), (&servers[0], other)] {
        let start = Instant::now();
        let error = join(0, 2, server.address().port(), token).unwrap_err();
        assert!(matches!(error, LaunchError::TokenRefused { .. }), "{error}");
        assert!(start.elapsed() < Duration::from_secs(5));
        assert!(!error.to_string().contains(token));
    }
    thread::scope(|scope| {
        for (server, token) in [(&servers[0], one), (&servers[1], other)] {
            for rank in 0..2 {
                let port = server.address().port();
                scope.spawn(move || drop(compute(&join(rank, 2, port, token).unwrap())));
            }
        }
    });
    assert!(servers.iter().all(|server| server.first_failure().is_none()));
}
