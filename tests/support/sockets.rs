//! The sockets of processes, from the kernel's tables.

use std::collections::HashSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// Numbers of the kernel for the states of sockets.
pub const LISTENING: &str = "0A";
pub const CONNECTED: &str = "01";

/// The addresses of the processes' own ends of TCP sockets in this state.
pub fn own_ends(pids: &[u32], state: &str) -> Vec<SocketAddr> {
    let inodes = inodes(pids);
    let mut addresses = Vec::new();
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        for line in fs::read_to_string(table).unwrap_or_default().lines().skip(1) {
            let fields: Vec<&str> = line.split_whitespace().collect();
            if fields[3] == state && inodes.contains(fields[9]) {
                addresses.push(parse(fields[1]).unwrap_or_else(|| panic!("{table} has {line:?}")));
            }
        }
    }
    addresses
}

/// The inodes of all sockets of these processes.
fn inodes(pids: &[u32]) -> HashSet<String> {
    let inode = |link: &Path| {
        let target = fs::read_link(link).ok()?.to_string_lossy().into_owned();
        target.strip_prefix("socket:[")?.strip_suffix(']').map(str::to_owned)
    };
    let folders = pids
        .iter()
        .filter_map(|pid| fs::read_dir(format!("/proc/{pid}/fd")).ok());
    let links = folders.flatten().flatten().map(|entry| entry.path());
    links.filter_map(|link| inode(&link)).collect()
}

/// An address as the kernel writes it: words of the machine's byte order, and the port.
fn parse(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let words = (0..address.len() / 8).map(|word| u32::from_str_radix(address.get(8 * word..8 * word + 8)?, 16).ok());
    let bytes: Vec<u8> = words
        .collect::<Option<Vec<u32>>>()?
        .iter()
        .flat_map(|word| word.to_ne_bytes())
        .collect();
    let ip: IpAddr = match <[u8; 4]>::try_from(&bytes[..]) {
        Ok(bytes) => Ipv4Addr::from_octets(bytes).into(),
        Err(_) => Ipv6Addr::from_octets(bytes[..].try_into().ok()?).into(),
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}
