//! The state of this process and of the machine, as Linux tells it; the price of a handshake; the time.

use std::fs;
use std::hint::black_box;
use std::io;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use examples::figures::bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Returns the seconds since 1970: the same clock in all processes.
pub fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("the clock is set").as_secs_f64()
}

/// Returns numbers of this process: `sockets` and `threads`, `resident` bytes, and `writes`, which are calls of `write`
/// and `writev`, as Linux counts them; those of `send` are not among them.
///
/// # Errors
/// When `/proc` does not have them.
pub fn usage() -> io::Result<[(&'static str, f64); 4]> {
    let mut sockets = 0;
    for entry in fs::read_dir("/proc/self/fd")? {
        // One that was closed meanwhile has no target.
        let target = fs::read_link(entry?.path()).unwrap_or_default();
        sockets += usize::from(target.to_string_lossy().starts_with("socket:"));
    }
    let status = fs::read_to_string("/proc/self/status")?;
    let io = fs::read_to_string("/proc/self/io")?;
    Ok([
        ("sockets", sockets as f64),
        ("threads", number_after(&status, "Threads:")? as f64),
        ("resident", 1024.0 * number_after(&status, "VmRSS:")? as f64),
        ("writes", number_after(&io, "syscw:")? as f64),
    ])
}

/// Returns what is to be said of this machine if it is short of memory: a sixth is left to others.
pub fn out_of_memory() -> Option<String> {
    let memory = fs::read_to_string("/proc/meminfo").ok()?;
    let bytes_of = |name| number_after(&memory, name).ok().map(|kib| 1024 * kib);
    let (all, available) = (bytes_of("MemTotal:")?, bytes_of("MemAvailable:")?);
    (6 * available < all).then(|| format!("out of memory: {} of {} are available", bytes(available), bytes(all)))
}

/// Returns the number after a name at the start of a line.
fn number_after(text: &str, name: &str) -> io::Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| io::Error::other(format!("no number after {name:?}")))
}

/// HMACs of a handshake: each end makes its proof and checks the other's.
pub const PROOFS: f64 = 4.0;

/// Returns the time of one HMAC-SHA256 of a handshake's length.
pub fn proof_seconds() -> f64 {
    /// Bytes of a token that the launcher made.
    const TOKEN: [u8; 64] = [7; 64];
    /// The name of the side, and the first messages of both (see the handshake of burn-megatron-comm).
    const SIGNED: [u8; 9 + 82 + 40] = [9; 9 + 82 + 40];
    /// Proofs that are timed together.
    const TIMED: u32 = 1_000;
    let prove = || {
        let hmac = Hmac::<Sha256>::new_from_slice(black_box(&TOKEN)).expect("HMAC takes keys of any length");
        black_box(hmac.chain_update(black_box(&SIGNED)).finalize());
    };
    let time = |_| {
        let begun = Instant::now();
        (0..TIMED).for_each(|_| prove());
        begun.elapsed().as_secs_f64() / f64::from(TIMED)
    };
    // The fastest of many, which other programs have interrupted least.
    (0..50).map(time).fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_counted() {
        let before = usage().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let [sockets, threads, resident, _] = usage().unwrap();
        assert!(sockets > before[0] && threads.1 > 0.0 && resident.1 > 0.0);
        drop(listener);
    }
}
