//! [`Recorded`]: the counters as a program reads them from the driver that it has loaded.
//!
//! The library that counts is not the one that this code is linked into: that is loaded under the driver's name, and
//! exports [`cuda_emulator_recorded`].

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_void};
use std::io;

use super::tally;

/// The driver, and what the emulator's exports in addition.
const DRIVER: &CStr = c"libcuda.so.1";
const FUNCTION: &CStr = c"cuda_emulator_recorded";

/// Calls of one kind, name and thread.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// `launch`, `matmul`, `nccl`, `copy`, `memset`, `wait`, `record`, `host wait`, `module`, `allocation` or `free`.
    pub kind: String,
    /// The kernel, the shape of a product, NCCL's operation, from where to where.
    pub name: String,
    /// The thread that called.
    pub thread: String,
}

/// Memory of one place, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// Allocated now.
    pub used: u64,
    /// The most that was allocated at any time.
    pub peak: u64,
}

/// What has been recorded since the process began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Calls and bytes.
    pub calls: BTreeMap<Row, (u64, u64)>,
    /// By place: `device` and `pinned`. A process that records uses one device.
    pub memory: BTreeMap<String, Memory>,
}

impl Recorded {
    /// Reads the counters of this process's driver.
    ///
    /// # Errors
    /// When the driver is not the emulator, or does not record.
    pub fn now() -> io::Result<Self> {
        // SAFETY: opens the driver that the process has loaded, or would load.
        let library = unsafe { libc::dlopen(DRIVER.as_ptr(), libc::RTLD_NOW) };
        if library.is_null() {
            return Err(io::Error::other("there is no CUDA driver, and no emulator of one"));
        }
        // SAFETY: the library is open, and stays so.
        let function = unsafe { libc::dlsym(library, FUNCTION.as_ptr()) };
        if function.is_null() {
            return Err(io::Error::other("the CUDA driver of this process is not the emulator"));
        }
        // SAFETY: the emulator exports it with this type.
        let function =
            unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_char, usize) -> usize>(function) };
        let mut text: Vec<u8> = Vec::new();
        loop {
            // SAFETY: there is room for `text.len()` bytes.
            let bytes = unsafe { function(text.as_mut_ptr().cast(), text.len()) };
            if bytes == 0 {
                let what = format!("the emulator does not record: {} is not 1", super::VARIABLE);
                return Err(io::Error::other(what));
            }
            if bytes <= text.len() {
                text.truncate(bytes);
                return Self::parse(&String::from_utf8_lossy(&text));
            }
            // More calls may be counted meanwhile.
            text.resize(2 * bytes, 0);
        }
    }

    fn parse(text: &str) -> io::Result<Self> {
        let mut recorded = Self::default();
        for line in text.lines() {
            let odd = || io::Error::other(format!("the emulator's counters have the line {line:?}"));
            let number = |text: &str| text.parse::<u64>().map_err(|_| odd());
            match line.split('\t').collect::<Vec<_>>()[..] {
                ["memory", place, used, peak] => {
                    let (used, peak) = (number(used)?, number(peak)?);
                    recorded.memory.insert(place.to_owned(), Memory { used, peak });
                }
                [kind, name, thread, calls, bytes] => {
                    let [kind, name, thread] = [kind, name, thread].map(str::to_owned);
                    let row = Row { kind, name, thread };
                    recorded.calls.insert(row, (number(calls)?, number(bytes)?));
                }
                _ => return Err(odd()),
            }
        }
        Ok(recorded)
    }
}

/// Writes as much of the counters' text as there is room for, and returns its length in bytes: zero if nothing is
/// recorded.
///
/// # Safety
///
/// `to` must have room for `room` bytes.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuda_emulator_recorded(to: *mut c_char, room: usize) -> usize {
    let text = if super::is_on() { tally::text() } else { String::new() };
    if room > 0 {
        // SAFETY: the caller's.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr().cast(), to, text.len().min(room)) };
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_the_counters_is_read_again() {
        let text = "launch\tadd\tmain\t3\t0\nmemory\tdevice\t512\t1024\n";
        let recorded = Recorded::parse(text).expect("it is what the emulator writes");
        let row = Row {
            kind: "launch".to_owned(),
            name: "add".to_owned(),
            thread: "main".to_owned(),
        };
        assert_eq!(recorded.calls, BTreeMap::from([(row, (3, 0))]));
        let memory = Memory { used: 512, peak: 1024 };
        assert_eq!(recorded.memory, BTreeMap::from([("device".to_owned(), memory)]));
        assert!(Recorded::parse("launch\tadd").is_err());
    }
}
