//! Spreads threads that work together over cores.
//!
//! Linux may wake a thread on the core of the thread that wakes it, even if another core is idle, and takes
//! milliseconds to move it. Threads that compute for a millisecond at a time then share one core.

/// The core that the calling thread runs on, if that is known.
pub(crate) fn current_core() -> Option<usize> {
    #[cfg(target_os = "linux")]
    return Some(rustix::thread::sched_getcpu());
    #[cfg(not(target_os = "linux"))]
    return None;
}

/// Moves the calling thread to another of the cores that it may run on, if it runs on this one.
pub(crate) fn leave_core(core: Option<usize>) {
    #[cfg(target_os = "linux")]
    if core.is_some_and(|core| core == rustix::thread::sched_getcpu()) {
        // Refused with more cores than the call has bits for: the thread stays where it is.
        let _ = core.map(move_away);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = core;
}

#[cfg(target_os = "linux")]
fn move_away(core: usize) -> rustix::io::Result<()> {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    if core >= CpuSet::MAX_CPU {
        return Ok(());
    }
    let allowed = sched_getaffinity(None)?;
    let mut others = allowed;
    others.unset(core);
    if others.count() == 0 {
        return Ok(());
    }
    sched_setaffinity(None, &others)?;
    sched_setaffinity(None, &allowed)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::thread::sched_getaffinity;

    use super::*;

    #[test]
    fn a_thread_leaves_a_core_and_may_come_back() {
        let before = sched_getaffinity(None).expect("it may be asked for");
        for _ in 0..100 {
            leave_core(current_core());
        }
        assert_eq!(sched_getaffinity(None).expect("it may be asked for"), before);
    }
}
