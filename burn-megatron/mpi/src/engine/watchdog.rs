//! A bound for the two calls into MPI that have none and cannot be left to a thread: `library` makes them through
//! [`watched`].

use std::fmt::Arguments;
use std::io::{self, Write};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Time between two looks at whether it is too late.
const SLICE: Duration = Duration::from_millis(50);

/// Returns what `call` returns. Until then, another thread asks `is_late` again and again, with the time so far; when
/// it is, that thread runs `end`, which is to end the process: a call into MPI cannot be interrupted.
///
/// # Errors
/// When there can be no such thread; then there was no call either.
pub(super) fn watched<R>(
    mut is_late: impl FnMut(Duration) -> bool + Send + 'static,
    end: impl FnOnce() + Send + 'static,
    call: impl FnOnce() -> R,
) -> io::Result<R> {
    let (returned, has_returned) = mpsc::channel::<()>();
    let watch = move || {
        let start = Instant::now();
        while let Err(RecvTimeoutError::Timeout) = has_returned.recv_timeout(SLICE) {
            if is_late(start.elapsed()) {
                return end();
            }
        }
    };
    std::thread::Builder::new().name("watch MPI".to_owned()).spawn(watch)?;
    let result = call();
    drop(returned);
    Ok(result)
}

/// Prints a line and ends this process at once: whatever runs at a proper end might wait for the call that hangs.
pub(super) fn end_process(line: Arguments<'_>, code: i32) -> ! {
    // Stderr may have no reader any more. In one piece: other ranks write to the same pipe.
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
    // SAFETY: ends the process; no code runs afterwards.
    unsafe { libc::_exit(code) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    #[test]
    fn a_call_that_does_not_return_is_ended_and_one_that_does_is_not() {
        let limit = Duration::from_millis(200);
        let (ended, has_ended) = mpsc::channel();
        let start = Instant::now();
        let end = move || ended.send(()).unwrap();
        watched(move |time| time > limit, end, || has_ended.recv().unwrap()).unwrap();
        assert!(start.elapsed() >= limit);

        let has_ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&has_ended);
        let end = move || end.store(true, Ordering::Relaxed);
        assert_eq!(watched(move |time| time > limit, end, || 7).unwrap(), 7);
        std::thread::sleep(2 * limit);
        assert!(!has_ended.load(Ordering::Relaxed));
    }
}
