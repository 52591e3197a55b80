//! Other processes: those that carry a marker in their environment, and signals to them.
#![allow(dead_code, reason = "each of the two uses a part of it")]

use std::fs;
use std::io;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// The processes that have this variable with this value; none that has ended and waits to be reaped.
pub fn processes_with(variable: &str, value: &str) -> Vec<u32> {
    let pids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| variable_of(*pid, variable).is_some_and(|found| found == value))
        .collect()
}

/// A variable of a process's environment, if the process has it and a thread that runs: the first may have ended before
/// one that is still writing.
pub fn variable_of(pid: u32, variable: &str) -> Option<String> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).ok()?.flatten();
    let mut environments = threads.filter_map(|thread| fs::read(thread.path().join("environ")).ok());
    environments.find_map(|environment| {
        let mut entries = environment.split(|byte| *byte == 0);
        let found = entries.find_map(|entry| entry.strip_prefix(variable.as_bytes())?.strip_prefix(b"="))?;
        Some(String::from_utf8_lossy(found).into_owned())
    })
}

/// Asks the kernel to kill a launcher, and with it its ranks, when the thread that watches it is gone. Called between
/// fork and exec.
pub fn die_with_parent() -> io::Result<()> {
    // SAFETY: prctl with PR_SET_PDEATHSIG takes a signal number and touches no memory of this process.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL as libc::c_ulong) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Waits until a claim holds; false when it does not within the limit.
pub fn wait_until(limit: Duration, claim: impl Fn() -> bool) -> bool {
    let begun = Instant::now();
    while !claim() {
        if begun.elapsed() > limit {
            return false;
        }
        sleep(Duration::from_millis(3));
    }
    true
}

pub fn send(pid: u32, signal: i32) {
    // SAFETY: kill takes two numbers and touches no memory of this process.
    unsafe { libc::kill(pid as libc::pid_t, signal) };
}
