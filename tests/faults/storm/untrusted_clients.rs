//! Strangers at the ports of a job: connections that say nothing, close at once, or talk garbage.
//!
//! A process of its own, so that it can run in the job's network namespace.

use std::collections::HashSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::ExitCode;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::processes::processes_with;
use crate::worker::variables;

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
                        let _ = stream.write_all(&[&b"BMSTORE1"[..], &bytes].concat());
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

/// The addresses at which processes with this marker listen.
fn listening(marker: &str) -> Vec<SocketAddr> {
    let sockets = sockets_of(marker);
    let table = fs::read_to_string("/proc/net/tcp").unwrap_or_default();
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let (address, port) = fields.get(1)?.split_once(':')?;
            let is_listening = *fields.get(3)? == "0A" && sockets.contains(*fields.get(9)?);
            let address = Ipv4Addr::from(u32::from_str_radix(address, 16).ok()?.swap_bytes());
            let address = if address.is_unspecified() {
                Ipv4Addr::LOCALHOST
            } else {
                address
            };
            let port = u16::from_str_radix(port, 16).ok()?;
            is_listening.then_some(SocketAddr::from((address, port)))
        })
        .collect()
}

/// The inodes of all sockets of processes with this marker.
fn sockets_of(marker: &str) -> HashSet<String> {
    let descriptors = |pid: u32| fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let inode = |path: &Path| {
        let link = fs::read_link(path).ok()?;
        let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
        Some(inode.to_owned())
    };
    processes_with(variables::MARKER, marker)
        .into_iter()
        .flat_map(descriptors)
        .filter_map(|entry| inode(&entry.path()))
        .collect()
}
