//! Strangers at the listener, and streams against slow readers.

use super::super::super::tests::{TIMEOUT, group_parts, join_worlds, run_ranks};
use super::links::{RankClaim, address_key};
use super::*;
use crate::collectives::Operation;
use crate::collectives::engines::engine::Engine;
use crate::collectives::process_group::describe;
use crate::launch;
use socket2::SockRef;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

#[test]
fn strangers_are_dropped_and_the_mesh_connects() {
    run_ranks(2, TIMEOUT, |world| {
        let (health, rendezvous) = group_parts(&world, "strangers");
        let mut half_open = Vec::new();
        let engine = connect_with(&world, &health, &rendezvous, None).unwrap();
        if world.rank() == 1 {
            let address = address_of_first(&world);
            assert_eq!(address.ip(), world.local_address()); // not all interfaces
            let stranger = || {
                let stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                stream
            };
            half_open.push(stranger());
            // Garbage, also more of it than any message: closed without an answer.
            for length in [8, 82, 100_000] {
                let mut garbage = stranger();
                let _ = garbage.write_all(&vec![0x5a; length]);
                assert!(!matches!(garbage.read(&mut [0; 1]), Ok(1..)));
            }
            let claim = RankClaim {
                group: rendezvous.digest(),
                from: 1,
                to: 0,
                channel: 0,
            };
            // Both ends refuse a wrong token.
            let error = launch::initiate(&mut stranger(), &claim.to_bytes(), b"wrong").unwrap_err();
            assert!(error.to_string().contains("token"), "{error}");
            let mut forger = stranger();
            let greeting = [&launch::MAGIC[..], &claim.to_bytes(), &[7; 32]].concat();
            forger.write_all(&greeting).unwrap();
            forger.read_exact(&mut [0; 40]).unwrap();
            forger.write_all(&[0; 32]).unwrap();
            let mut verdict = Vec::new();
            forger.read_to_end(&mut verdict).unwrap();
            assert_eq!(verdict, [0; 33]); // refused, no proof in return, and closed
            // Neither another group, nor a rank that is not expected, nor a channel too many.
            for wrong in [
                RankClaim {
                    group: [0; 32],
                    ..claim
                },
                RankClaim { from: 0, ..claim },
                RankClaim { from: 2, ..claim },
                RankClaim { to: 1, ..claim },
                RankClaim { channel: 2, ..claim },
            ] {
                let token = world.job_token();
                assert!(launch::initiate(&mut stranger(), &wrong.to_bytes(), token).is_err());
            }
        }
        engine.barrier(&barrier()).unwrap();
    });
}

/// Returns where rank 0 listens.
fn address_of_first(world: &World) -> SocketAddr {
    let address = world.store().wait(&address_key(0), TIMEOUT).unwrap();
    String::from_utf8(address).unwrap().parse().unwrap()
}

impl TcpEngine {
    /// Leaves so little room in the sockets of the collectives that whoever sends waits for who receives.
    pub(in super::super) fn shrink_buffers(&self) {
        for stream in self.links.all() {
            let socket = SockRef::from(stream);
            socket.set_send_buffer_size(16 * 1024).unwrap();
            socket.set_recv_buffer_size(16 * 1024).unwrap();
        }
    }
}

/// Rank 0 has sent more than the sockets hold and waits for something else, which rank 1 does after it has received
/// all.
#[test]
fn sending_continues_while_the_sender_waits() {
    // Few: sockets without room stall for tenths of a second at times.
    let length = 500_000;
    let has_come = std::sync::atomic::AtomicBool::new(false);
    run_ranks(2, TIMEOUT, |world| {
        let (health, rendezvous) = group_parts(&world, "streams");
        let engine = connect_with(&world, &health, &rendezvous, None).unwrap();
        engine.barrier(&barrier()).unwrap();
        engine.shrink_buffers();
        let call = broadcast_call(length);
        let mut streams = engine.streams(&call);
        let mut received = vec![0; length];
        if world.rank() == 0 {
            streams.send(1, &vec![1; length / 2]);
            streams.send(1, &vec![2; length / 2]);
            streams
                .send_until(|| has_come.load(Ordering::Acquire), || vec![1])
                .unwrap();
        } else {
            streams.receive([(0, &mut received[..])]).unwrap();
            has_come.store(true, Ordering::Release);
            assert!(received[..length / 2].iter().all(|&byte| byte == 1));
            assert!(received[length / 2..].iter().all(|&byte| byte == 2));
        }
        streams.finish().unwrap();
        assert_eq!(
            engine.bytes_communicated(),
            if world.rank() == 0 { length as u64 } else { 0 }
        );
    });
}

/// The reader is slower than the sender, so that the queue runs empty only at the end.
#[test]
fn a_slow_reader_does_not_fill_the_senders_memory() {
    // Few: sockets without room stall for tenths of a second at times.
    const PIECE: usize = 8 * 1024;
    let piece = |index: usize| vec![index as u8; PIECE];
    run_ranks(2, TIMEOUT, |world| {
        let (health, rendezvous) = group_parts(&world, "slow");
        let engine = connect_with(&world, &health, &rendezvous, None).unwrap();
        engine.barrier(&barrier()).unwrap();
        engine.shrink_buffers();
        let call = broadcast_call(PIECE);
        let mut streams = engine.streams(&call);
        let mut received = vec![0; PIECE];
        for index in 0..50 {
            if world.rank() == 0 {
                streams.drain_to(2 * PIECE, 1).unwrap();
                streams.send(1, &piece(index));
                let held = streams.held_for(1);
                assert!(held <= 8 * PIECE, "{held} bytes after {index} pieces");
            } else {
                std::thread::sleep(Duration::from_micros(500));
                streams.receive([(0, &mut received[..])]).unwrap();
                assert!(received == piece(index), "piece {index}");
            }
        }
        streams.finish().unwrap();
    });
}

/// Two connections are made, and gone before their last word has come: the acceptor takes them for good.
#[test]
fn a_rank_whose_welcome_is_lost_connects_again() {
    run_ranks(2, Duration::from_secs(4), |world| {
        let (health, rendezvous) = group_parts(&world, "lost");
        let engine = connect_with(&world, &health, &rendezvous, None).unwrap();
        if world.rank() == 1 {
            let address = address_of_first(&world);
            for channel in 0..2 {
                let claim = RankClaim {
                    group: rendezvous.digest(),
                    from: 1,
                    to: 0,
                    channel,
                };
                let mut stream = TcpStream::connect(address).unwrap();
                launch::initiate(&mut stream, &claim.to_bytes(), world.job_token()).unwrap();
            }
            world.store().set("lost", b"").unwrap();
        }
        world.store().wait("lost", TIMEOUT).unwrap();

        engine.barrier(&barrier()).unwrap();
        let call = |operation| CallDescriptor {
            peer: Some(1 - world.rank()),
            ..describe::<u8>(operation, 0)
        };
        match world.rank() {
            0 => engine.send(&call(Operation::Send), &[]).unwrap(),
            _ => engine.recv(&call(Operation::Recv), &mut []).unwrap(),
        }
    });
}

pub(super) fn barrier() -> CallDescriptor {
    describe::<u8>(Operation::Barrier, 0)
}

/// Returns a broadcast of `length` bytes from rank 0.
fn broadcast_call(length: usize) -> CallDescriptor {
    CallDescriptor {
        peer: Some(0),
        ..describe::<u8>(Operation::Broadcast, length)
    }
}

#[test]
fn a_rank_that_is_led_to_another_job_never_joins_it() {
    // The two jobs even have one token, as torchrun's may: made of a run id and a port that are the same.
    let lost_timeout = Duration::from_secs(1);
    let jobs = [join_worlds(2, TIMEOUT), join_worlds(2, lost_timeout)];
    let [target, led] = jobs;
    assert_eq!(target[0].job_token(), led[0].job_token());
    let parts = |world: &World| group_parts(world, "mixed");
    // What the second job's rank 0 says of itself is where the first one's listens.
    let _hosts: Vec<_> = std::thread::scope(|scope| {
        let connects = |world: &World| {
            let (health, rendezvous) = parts(world);
            connect_with(world, &health, &rendezvous, None).unwrap()
        };
        let threads: Vec<_> = target
            .iter()
            .map(|world| scope.spawn(move || connects(world)))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let address = target[0].store().wait(&address_key(0), TIMEOUT).unwrap();
    std::thread::scope(|scope| {
        let [leader, guest] = [&led[0], &led[1]];
        scope.spawn(move || {
            let (health, rendezvous) = parts(leader);
            let _engine = connect_with(leader, &health, &rendezvous, None).unwrap();
            leader.store().set("is led", b"").unwrap();
            leader.store().wait("is over", TIMEOUT).unwrap();
        });
        let (health, rendezvous) = parts(guest);
        let engine = connect_with(guest, &health, &rendezvous, None).unwrap();
        guest.store().wait("is led", TIMEOUT).unwrap();
        guest.store().set(&address_key(0), &address).unwrap();
        let start = std::time::Instant::now();
        let error = engine.barrier(&barrier()).unwrap_err();
        assert!(matches!(error, CollectiveError::Timeout { .. }), "{error}");
        assert!(start.elapsed() < TIMEOUT / 2, "{:?}", start.elapsed());
        guest.store().set("is over", b"").unwrap();
    });
    let [leaders, led] = [target, led];
    std::thread::scope(|scope| {
        for world in leaders.iter().chain(&led) {
            scope.spawn(|| world.leave());
        }
    });
}

#[test]
fn an_acceptor_that_answers_a_byte_at_a_time_is_given_up_in_time() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let slow = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&launch::MAGIC).unwrap();
        while stream.write_all(&[0]).is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    });
    let start = std::time::Instant::now();
    let stream = TcpStream::connect(address).unwrap();
    let mut bounded = crate::launch::BoundedStream::until(&stream, start + Duration::from_millis(500));
    let claim = RankClaim {
        group: [7; 32],
        from: 1,
        to: 0,
        channel: 0,
    };
    assert!(launch::initiate(&mut bounded, &claim.to_bytes(), b"token").is_err());
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed()); // 65 bytes would take 3.3 s
    drop(stream);
    slow.join().unwrap();
}
