//! Strangers at the listener.

use super::super::super::call::GroupLabel;
use super::super::super::tests::{TIMEOUT, run_ranks};
use super::handshake::{self, Hello};
use super::*;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

fn health_of(world: &World, name: &str) -> Arc<GroupHealth> {
    let label = GroupLabel {
        name: name.into(),
        ranks: (0..world.world_size()).collect(),
        rank: world.rank(),
    };
    Arc::new(GroupHealth::new(label, world))
}

#[test]
fn strangers_are_dropped_and_the_mesh_connects() {
    run_ranks(2, TIMEOUT, |world| {
        let health = health_of(&world, "strangers");
        let rendezvous = Rendezvous::new(&world, &health).unwrap();
        let mut half_open = Vec::new();
        if world.rank() == 1 {
            let address = rendezvous.wait(&mesh::address_key(0), 0).unwrap();
            let address: SocketAddr = String::from_utf8(address).unwrap().parse().unwrap();
            let stranger = || {
                let stream = TcpStream::connect(address).unwrap();
                stream.set_read_timeout(Some(TIMEOUT)).unwrap();
                stream
            };
            half_open.push(stranger());
            // Garbage, also more of it than any message: closed without an answer.
            for length in [Hello::BYTES, 100_000] {
                let mut garbage = stranger();
                let _ = garbage.write_all(&vec![0x5a; length]);
                assert!(!matches!(garbage.read(&mut [0; 1]), Ok(1..)));
            }
            let hello = Hello {
                group: rendezvous.digest(),
                from: 1,
                to: 0,
                channel: 0,
                challenge: [7; 32],
            };
            // Both ends refuse a wrong token.
            let error = handshake::initiate(&mut stranger(), &hello, b"wrong").unwrap_err();
            assert!(error.to_string().contains("token"), "{error}");
            let mut forger = stranger();
            forger.write_all(&hello.to_bytes()).unwrap();
            forger.read_exact(&mut [0; 64]).unwrap();
            forger.write_all(&[0; 32]).unwrap();
            assert!(!matches!(forger.read(&mut [0; 1]), Ok(1..)));
            // Neither another group, nor a rank that is not expected, nor a channel too many.
            for wrong in [
                Hello {
                    group: [0; 32],
                    ..hello
                },
                Hello { from: 0, ..hello },
                Hello { from: 2, ..hello },
                Hello { to: 1, ..hello },
                Hello { channel: 2, ..hello },
            ] {
                let token = world.job_token();
                assert!(handshake::initiate(&mut stranger(), &wrong, token).is_err());
            }
        }
        let engine = connect(&world, &health, &rendezvous).unwrap();
        let call = CallDescriptor {
            sequence: 0,
            operation: crate::collectives::Operation::Barrier,
            element_type: crate::collectives::ElementType::U8,
            length: 0,
            peer: None,
            reduce_op: None,
            buffer: None,
        };
        engine.barrier(&call).unwrap();
    });
}
