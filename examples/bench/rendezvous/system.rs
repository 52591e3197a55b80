//! What Linux says of this process, and the time.

use std::fs;
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

use examples::figures::bytes;

use crate::rendezvous::messages::Usage;

/// Descriptors below the limit at which a process counts as being out of them: some are open only for a moment.
const SPARE_DESCRIPTORS: usize = 4;

/// The part of the machine's memory that is left to others.
const SPARE_MEMORY: f64 = 1.0 / 6.0;

/// Returns the seconds since 1970: the same clock in all processes.
pub fn now() -> f64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("the clock is set").as_secs_f64()
}

/// Returns what this process uses.
///
/// # Errors
/// When `/proc` does not say so.
pub fn usage() -> io::Result<Usage> {
    let mut sockets = 0;
    for entry in fs::read_dir("/proc/self/fd")? {
        // One that was closed meanwhile has no target.
        let target = fs::read_link(entry?.path()).unwrap_or_default();
        sockets += usize::from(target.to_string_lossy().starts_with("socket:"));
    }
    let status = fs::read_to_string("/proc/self/status")?;
    let io = fs::read_to_string("/proc/self/io")?;
    Ok(Usage {
        sockets,
        threads: number_after(&status, "Threads:")? as usize,
        resident: number_after(&status, "VmRSS:")? * 1024,
        writes: number_after(&io, "syscw:")?,
        ..Usage::default()
    })
}

/// Returns what is to be said of this process if it is out of descriptors.
pub fn out_of_descriptors() -> Option<String> {
    // `Max open files            20000                20000                files`
    let limits = fs::read_to_string("/proc/self/limits");
    let limit = match limits.and_then(|limits| number_after(&limits, "Max open files")) {
        Ok(limit) => limit,
        Err(error) => return is_no_descriptor(&error).then(|| format!("out of descriptors: {error}")),
    };
    match fs::read_dir("/proc/self/fd").map(Iterator::count) {
        Ok(open) if open + SPARE_DESCRIPTORS < limit as usize => None,
        Ok(open) => Some(format!("out of descriptors: {open} of {limit} are open")),
        Err(error) => is_no_descriptor(&error).then(|| format!("out of descriptors: {error}, the limit is {limit}")),
    }
}

/// Returns what is to be said of this machine if it is short of memory.
pub fn out_of_memory() -> Option<String> {
    let memory = fs::read_to_string("/proc/meminfo").ok()?;
    let bytes_of = |name| number_after(&memory, name).ok().map(|kib| 1024 * kib);
    let (all, available) = (bytes_of("MemTotal:")?, bytes_of("MemAvailable:")?);
    let is_short = (available as f64) < SPARE_MEMORY * all as f64;
    is_short.then(|| format!("out of memory: {} of {} are available", bytes(available), bytes(all)))
}

fn is_no_descriptor(error: &io::Error) -> bool {
    const EMFILE: i32 = 24;
    error.raw_os_error() == Some(EMFILE)
}

/// Returns the number after a name at the start of a line.
fn number_after(text: &str, name: &str) -> io::Result<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
    number.ok_or_else(|| io::Error::other(format!("no number after {name:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_socket_is_counted() {
        let before = usage().unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let after = usage().unwrap();
        assert!(after.sockets > before.sockets && after.resident > 0 && after.threads > 0);
        assert_eq!(out_of_descriptors(), None);
        drop(listener);
    }
}
