//! A counter in shared memory that one rank raises and others wait for.
//!
//! # Spinning, then sleeping
//!
//! A waiter first looks at the counter again and again, because the other rank is usually about to
//! raise it and a sleep costs more than that takes. In between it yields, and at last it sleeps on
//! a futex. The futex is not PRIVATE: the ranks are different processes.
//!
//! A wake-up is a system call, so it is made only when somebody sleeps. Both sides use
//! sequentially consistent operations in opposite order,
//!
//! ```text
//! waiter: sleepers += 1; look at value; futex_wait     raiser: value = n; look at sleepers; futex_wake
//! ```
//!
//! so at least one of them sees the other: either the waiter sees the new value, or the raiser
//! sees the sleeper. A value that changes between the waiter's look and its sleep makes
//! `futex_wait` return at once, since the kernel compares it again. And every sleep is short, so
//! that the waiter looks at the failure signal and its timeout.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::Timespec;
use rustix::thread::futex::{self, Flags};

/// A counter, modulo 2^32, of which at most one rank is the writer.
#[repr(C)]
pub(in super::super) struct Flag {
    value: AtomicU32,
    /// Ranks that sleep, or are about to, until the value changes.
    sleepers: AtomicU32,
}

impl Flag {
    /// Returns the counter. What the writer wrote before raising it is visible afterwards.
    pub fn value(&self) -> u32 {
        self.value.load(Ordering::Acquire)
    }

    /// Returns whether the counter is at or beyond `target`; they are never 2^31 apart.
    pub fn has_reached(&self, target: u32) -> bool {
        has_reached(self.value(), target)
    }

    /// Sets the counter and wakes who sleeps on it.
    pub fn raise(&self, value: u32) {
        self.value.store(value, Ordering::SeqCst);
        if self.sleepers.load(Ordering::SeqCst) > 0 {
            self.wake();
        }
    }

    /// Wakes who sleeps on the counter, although it has not changed.
    pub fn wake(&self) {
        // Fails for no address of this process.
        let _ = futex::wake(&self.value, Flags::empty(), i32::MAX as u32);
    }

    /// Sets a counter that no rank waits for.
    pub fn set(&self, value: u32) {
        self.value.store(value, Ordering::Release);
    }

    /// Sleeps until the counter changes, unless it has reached `target`; at most for `limit`.
    pub fn sleep(&self, target: u32, limit: Duration) {
        self.sleepers.fetch_add(1, Ordering::SeqCst);
        let value = self.value.load(Ordering::SeqCst);
        if !has_reached(value, target) {
            let limit = Timespec::try_from(limit).ok();
            // Errors (a changed value, a signal, the time) all mean: look again.
            let _ = futex::wait(&self.value, Flags::empty(), value, limit.as_ref());
        }
        self.sleepers.fetch_sub(1, Ordering::SeqCst);
    }
}

fn has_reached(value: u32, target: u32) -> bool {
    value.wrapping_sub(target) as i32 >= 0
}

/// How long a waiter looks before it sleeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spinning {
    /// Rounds of [`LOOKS`] looks, after each of which the processor is yielded.
    rounds: u32,
}

/// Looks with a pause instruction between them: about a microsecond. Not more in one go, even with
/// a core for each rank: when another program takes a core, both ranks share the other, and the one
/// that looks keeps the one waited for from running.
const LOOKS: u32 = 20;

impl Spinning {
    /// Returns what suits `ranks` ranks on this node: with a core for each, the one waited for
    /// runs; with fewer cores it may need this one for longer than it pays to look.
    pub fn for_ranks(ranks: usize) -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        // 60 are about 60 to 100 µs, more than a chunk takes.
        let rounds = if ranks <= cores { 60 } else { 20 };
        Spinning { rounds }
    }

    /// Looks at the counter until it has reached `target` or it is time to sleep; returns whether
    /// it has.
    pub fn wait(&self, flag: &Flag, target: u32) -> bool {
        for _ in 0..self.rounds {
            for _ in 0..LOOKS {
                if flag.has_reached(target) {
                    return true;
                }
                std::hint::spin_loop();
            }
            std::thread::yield_now();
        }
        flag.has_reached(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    fn flag(value: u32) -> Flag {
        Flag {
            value: AtomicU32::new(value),
            sleepers: AtomicU32::new(0),
        }
    }

    #[test]
    fn counters_compare_across_the_wrap() {
        assert!(flag(3).has_reached(3));
        assert!(flag(2).has_reached(u32::MAX));
        assert!(!flag(u32::MAX).has_reached(2));
    }

    #[test]
    fn raising_wakes_a_sleeper_before_its_limit() {
        let flag = flag(0);
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| {
                let start = Instant::now();
                while !flag.has_reached(1) {
                    flag.sleep(1, Duration::from_secs(20));
                }
                start.elapsed()
            });
            std::thread::sleep(Duration::from_millis(30));
            flag.raise(1);
            assert!(sleeper.join().unwrap() < Duration::from_secs(10));
        });
    }
}
