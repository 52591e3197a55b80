//! Work that a GPU has not done, out of memory above all: [`check_work`] says whether there is any.
//!
//! CubeCL computes on threads of its own. It skips what cannot be done, such as a kernel whose output has found no
//! memory, and all that depends on it, and whoever reads that is refused: burn panics, and a call of NCCL fails. A
//! panic on its own threads it logs, and continues without what was to be done, so that a program that reads on gets
//! old numbers. The first of these is noted, by a hook where it is a panic.

use std::fmt;
use std::panic::PanicHookInfo;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Once, OnceLock};

use burn_megatron_comm::launch::report_failure;
use cudarc::driver::result::{ctx, mem_get_info, primary_ctx};

use super::driver::{chosen, handle};

/// CubeCL's words for an allocation that has failed, up to the number of bytes: for now, and for ever.
const NO_MEMORY: [&str; 2] = ["out of device memory allocating ", "can't allocate buffer of size: "];
/// How the names of CubeCL's threads begin: those that launch, and those that fuse operations before.
const THREADS: [&str; 2] = ["DSD-", "DSU-"];

static FIRST: OnceLock<LostWork> = OnceLock::new();
static ENDS_PROCESS: AtomicBool = AtomicBool::new(false);

/// Why a GPU has not done what it was given.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LostWork {
    /// An allocation has failed.
    #[error(
        "out of GPU memory: asked for {}{}; use a smaller micro-batch (--micro-batch-size), recompute activations in \
         the backward pass (--recompute-granularity full), share each layer or the layers over more ranks \
         (--tensor-model-parallel-size, --pipeline-model-parallel-size), or shard the optimizer over data-parallel \
         ranks (--use-distributed-optimizer)",
        mebibytes(*asked),
        memory.map_or_else(String::new, |memory| format!(", {memory}"))
    )]
    OutOfMemory {
        /// The bytes of the allocation.
        asked: u64,
        /// The device's, where the driver says it.
        memory: Option<DeviceMemory>,
    },
    /// A thread of CubeCL has panicked, or CubeCL has refused some work.
    #[error("work on the GPU was lost, so that its numbers cannot be trusted: {0}")]
    Panicked(String),
}

/// A device's memory, all processes taken together, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceMemory {
    /// Bytes that are not in use.
    pub free: u64,
    /// Bytes of all its memory.
    pub total: u64,
}

impl fmt::Display for DeviceMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { free, total } = *self;
        let used = total.saturating_sub(free);
        let [used, total, free] = [used, total, free].map(mebibytes);
        write!(formatter, "with {used} of {total} in use and {free} free")
    }
}

/// Ends this process, with code 1, as soon as a GPU has lost work, after saying so to the other ranks and on stderr.
/// For programs, whose other threads need not come to an end; [`check_work`] tells a library's caller.
pub fn end_process_on_lost_work() {
    ENDS_PROCESS.store(true, Ordering::Release);
}

/// Checks that the GPU has done all that it was given. What was queued and not yet waited for is not known: call it
/// after a number has been read, before it is used.
///
/// [`DistributedDataParallel`](crate::data_parallel::DistributedDataParallel) and the trainer call it in every step.
///
/// # Errors
/// What was lost first. It stays lost: the process cannot continue.
pub fn check_work() -> Result<(), LostWork> {
    FIRST.get().map_or(Ok(()), |lost| Err(lost.clone()))
}

/// Notes from now on what CubeCL's threads lose. Later calls do nothing.
pub(super) fn watch() {
    static WATCHED: Once = Once::new();
    WATCHED.call_once(|| {
        let previous = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| match LostWork::of(panic) {
            None => previous(panic),
            Some(lost) => lost.note(),
        }));
    });
}

/// Notes why CubeCL has not written what a call was to read or write, and returns the message for it.
pub(crate) fn note_lost(why: &str) -> String {
    let lost = match bytes_asked(why) {
        Some(asked) => LostWork::out_of_memory(asked),
        None => {
            let (words, _) = why.split_once("Backtrace:").unwrap_or((why, ""));
            LostWork::Panicked(words.split_whitespace().collect::<Vec<_>>().join(" "))
        }
    };
    let message = lost.to_string();
    lost.note();
    message
}

impl LostWork {
    fn out_of_memory(asked: u64) -> Self {
        let memory = device_memory();
        Self::OutOfMemory { asked, memory }
    }

    /// Returns what a panic loses: any on CubeCL's threads, and elsewhere one that quotes a failed allocation.
    fn of(panic: &PanicHookInfo<'_>) -> Option<Self> {
        let message = panic.payload_as_str().unwrap_or("(no message)");
        if let Some(asked) = bytes_asked(message) {
            return Some(Self::out_of_memory(asked));
        }
        let thread = std::thread::current();
        let is_of_cubecl = thread
            .name()
            .is_some_and(|name| THREADS.iter().any(|of| name.starts_with(of)));
        let location = panic.location().map(|location| format!(" at {location}"));
        // CubeCL's errors have a backtrace below.
        let first_line = message.lines().next().unwrap_or_default();
        is_of_cubecl.then(|| Self::Panicked(format!("{first_line}{}", location.unwrap_or_default())))
    }

    /// Reports the first; the others follow from it.
    fn note(self) {
        let text = self.to_string();
        if FIRST.set(self).is_err() {
            return;
        }
        report_failure(&text);
        if ENDS_PROCESS.load(Ordering::Acquire) {
            // SAFETY: ends the process at once. Handlers at exit, such as the driver's, would meet the main thread
            // amidst its calls.
            unsafe { libc::_exit(1) };
        }
    }
}

/// Returns the memory of this process's device, on any thread.
fn device_memory() -> Option<DeviceMemory> {
    let read = || mem_get_info().ok();
    let (free, total) = read().or_else(|| {
        let device = handle(chosen()?).ok()?;
        // SAFETY: the device is the driver's; this thread has no context, and is left without one.
        unsafe {
            ctx::set_current(primary_ctx::retain(device).ok()?).ok()?;
            let memory = read();
            let _ = (ctx::set_current(std::ptr::null_mut()), primary_ctx::release(device));
            memory
        }
    })?;
    Some(DeviceMemory {
        free: free as u64,
        total: total as u64,
    })
}

/// Returns the size of the allocation that a message quotes.
fn bytes_asked(message: &str) -> Option<u64> {
    let (_, rest) = NO_MEMORY.iter().find_map(|words| message.split_once(words))?;
    let digits = rest.split(|letter: char| !letter.is_ascii_digit()).next()?;
    digits.parse().ok()
}

fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_allocation_is_read_from_cubecls_words() {
        let quoted =
            "called `Result::unwrap()` on an `Err` value: can't allocate buffer of size: 268435456\n   0: main";
        assert_eq!(bytes_asked(quoted), Some(268_435_456));
        let quoted = "failed: out of device memory allocating 4096 bytes\n   0: main";
        assert_eq!(bytes_asked(quoted), Some(4096));
        assert_eq!(bytes_asked("can't allocate buffer of size: many"), None);
        assert_eq!(bytes_asked("index out of bounds"), None);
    }

    #[test]
    fn the_message_says_what_was_asked_what_there_is_and_what_to_change() {
        let memory = DeviceMemory {
            free: 16 << 20,
            total: 64 << 20,
        };
        let lost = LostWork::OutOfMemory {
            asked: 256 << 20,
            memory: Some(memory),
        };
        let text = lost.to_string();
        for part in [
            "asked for 256.0 MiB, with 48.0 MiB of 64.0 MiB in use and 16.0 MiB free",
            "--micro-batch-size",
            "--recompute-granularity full",
            "--tensor-model-parallel-size",
            "--use-distributed-optimizer",
        ] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }
}
