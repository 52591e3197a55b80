//! Medians of wall time and of the processors' time, for the benches here.
//!
//! On a machine that others work on too, the processors' time says more than the wall's.

use std::time::{Duration, Instant};

/// What a run took.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Median on the wall.
    pub wall: Duration,
    /// Shortest on the wall.
    pub best: Duration,
    /// Median of all threads' time together.
    pub processors: Duration,
}

/// Times a function: two runs to warm up, then `runs`.
pub fn times<T>(runs: usize, mut function: impl FnMut() -> T) -> Times {
    times_of_prepared(runs, || (), |()| function())
}

/// Times a function as [`times`], without what prepares each of its runs.
pub fn times_of_prepared<S, T>(runs: usize, mut prepare: impl FnMut() -> S, mut function: impl FnMut(S) -> T) -> Times {
    let mut walls = Vec::new();
    let mut processors = Vec::new();
    for run in 0..runs + 2 {
        let prepared = prepare();
        let (start, before) = (Instant::now(), of_process());
        std::hint::black_box(function(prepared));
        if run >= 2 {
            walls.push(start.elapsed());
            processors.push(of_process() - before);
        }
    }
    walls.sort();
    processors.sort();
    Times {
        wall: walls[walls.len() / 2],
        best: walls[0],
        processors: processors[processors.len() / 2],
    }
}

fn of_process() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a timespec that lives through the call.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    assert_eq!(status, 0, "the process has a clock");
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
