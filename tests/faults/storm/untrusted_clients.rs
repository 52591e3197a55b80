//! Strangers at the ports of a job: connections that say nothing, close at once, or talk garbage.
//!
//! A process of its own, so that it can run in the job's network namespace.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use burn_megatron_comm::fuzzing::MAGIC;
use tests::processes::marked_with;
use tests::sockets::{LISTENING, own_ends};

/// The marker of the job to bother, and a number for the garbage.
pub const TARGET: &str = "FAULT_STORM_TARGET";
/// How long they stay.
pub const TIME: Duration = Duration::from_millis(800);
/// Half-open connections that are held at a time.
const HELD: usize = 200;

/// Bothers the job until the time is over.
pub fn bother(target: &str) -> anyhow::Result<ExitCode> {
    let (marker, garbage) = target.split_once(' ').unwrap_or((target, "0"));
    let mut garbage: u64 = garbage.parse()?;
    let end = Instant::now() + TIME;
    let mut held = Vec::new();
    while Instant::now() < end {
        for address in listening(marker) {
            for manner in 0..8 {
                let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) else {
                    continue;
                };
                let _ = stream.set_read_timeout(Some(Duration::from_millis(1)));
                let mut bytes = vec![0; 1 + (garbage % 3000) as usize];
                for byte in &mut bytes {
                    garbage = garbage.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    *byte = (garbage >> 33) as u8;
                }
                match manner {
                    0 | 1 => drop(stream),
                    2 | 3 => held.push(stream),
                    4 => {
                        // The right first words, then garbage.
                        let _ = stream.write_all(&[&MAGIC[..], &bytes].concat());
                        held.push(stream);
                    }
                    5 => drop(stream.write_all(b"GET / HTTP/1.1\r\n\r\n")),
                    6 => {
                        let _ = stream.write_all(&bytes);
                        let _ = stream.read(&mut bytes);
                    }
                    _ => {
                        let _ = stream.write_all(&[0xff; 64]);
                        held.push(stream);
                    }
                }
            }
        }
        if held.len() > HELD {
            held.drain(..HELD / 2);
        }
        sleep(Duration::from_millis(5));
    }
    Ok(ExitCode::SUCCESS)
}

/// The addresses at which processes with this marker listen, as they are reached from here.
fn listening(marker: &str) -> Vec<SocketAddr> {
    let mut addresses = own_ends(&marked_with(marker), LISTENING);
    for address in &mut addresses {
        if address.ip().is_unspecified() {
            address.set_ip(Ipv4Addr::LOCALHOST.into());
        }
    }
    addresses
}
