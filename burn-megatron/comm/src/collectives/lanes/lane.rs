//! A lane: calls that happen one after the other, in the order in which they were made.
//!
//! A group has one lane for its collectives, one for its sends to each peer and one for its
//! receives from each peer. Lanes do not wait for each other, so two ranks that each start a large
//! send and then receive cannot block one another.
//!
//! Every call takes the next ticket and runs when its number is served, as in a shop. A blocking
//! call waits for its number and runs on the caller's thread; an asynchronous call is left in a
//! queue for the lane's thread, which is started by the first of them. The ticket is also the
//! call's sequence number, which ranks compare.

use super::owner::LaneOwner;
use super::pending::Awaited;
use parking_lot::{Condvar, Mutex};
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

/// An asynchronous call, given its ticket.
pub(crate) type Job = Box<dyn FnOnce(u64) + Send>;

/// Calls in the order in which they were made.
pub(crate) struct Lane {
    state: Mutex<LaneState>,
    changed: Condvar,
    /// All calls with lower tickets are waited for by somebody.
    awaited_up_to: Arc<AtomicU64>,
    /// The thread that makes the calls, which is not the lane's.
    pub owner: LaneOwner,
}

struct LaneState {
    /// The ticket of the next call that is made.
    next_ticket: u64,
    /// The ticket whose call may run, or runs.
    serving: u64,
    /// Asynchronous calls that have not begun, by ticket, ascending.
    jobs: VecDeque<(u64, Job)>,
    has_thread: bool,
    closed: bool,
}

impl LaneState {
    fn take_ticket(&mut self) -> u64 {
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        ticket
    }

    fn is_idle(&self) -> bool {
        self.serving == self.next_ticket
    }

    fn next_job_may_run(&self) -> bool {
        self.jobs.front().is_some_and(|(ticket, _)| *ticket == self.serving)
    }
}

impl Lane {
    /// Returns an empty lane, without a thread.
    pub fn new(owner: LaneOwner) -> Arc<Self> {
        Arc::new(Self {
            state: Mutex::new(LaneState {
                next_ticket: 0,
                serving: 0,
                jobs: VecDeque::new(),
                has_thread: false,
                closed: false,
            }),
            changed: Condvar::new(),
            awaited_up_to: Arc::default(),
            owner,
        })
    }

    /// Returns whether a thread waits for the call of a ticket, or for a later one.
    pub fn awaited(&self, ticket: u64) -> Awaited {
        Awaited::new(self.awaited_up_to.clone(), ticket)
    }

    /// Runs a call on this thread, after all calls made before it.
    pub fn run<R>(&self, operate: impl FnOnce(u64) -> R) -> R {
        let mut state = self.state.lock();
        let ticket = state.take_ticket();
        self.awaited(ticket).set();
        while state.serving != ticket {
            self.changed.wait(&mut state);
        }
        drop(state);
        let _turn = Turn { lane: self };
        operate(ticket)
    }

    /// Leaves a call for the lane's thread, which runs it after all calls made before it; returns its ticket.
    ///
    /// # Errors
    /// When the thread cannot be started.
    pub fn submit(self: &Arc<Self>, thread_name: &str, job: Job) -> io::Result<u64> {
        let mut state = self.state.lock();
        if !state.has_thread {
            let lane = self.clone();
            std::thread::Builder::new()
                .name(thread_name.to_string())
                .spawn(move || lane.run_jobs())?;
            state.has_thread = true;
        }
        let ticket = state.take_ticket();
        state.jobs.push_back((ticket, job));
        self.changed.notify_all();
        Ok(ticket)
    }

    /// Waits until every call has run, at most until `deadline`; returns whether they have.
    pub fn drain(&self, deadline: Instant) -> bool {
        let mut state = self.state.lock();
        while !state.is_idle() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.changed.wait_for(&mut state, left);
        }
        true
    }

    /// Lets the lane's thread end when its queue is empty.
    pub fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    /// The lane's thread.
    fn run_jobs(&self) {
        loop {
            let mut state = self.state.lock();
            let (ticket, job) = loop {
                if state.next_job_may_run()
                    && let Some(job) = state.jobs.pop_front()
                {
                    break job;
                }
                if state.closed && state.jobs.is_empty() {
                    return;
                }
                self.changed.wait(&mut state);
            };
            drop(state);
            let _turn = Turn { lane: self };
            // A panic has poisoned the group on its way; the calls after it must still learn of it.
            let _ = catch_unwind(AssertUnwindSafe(|| job(ticket)));
        }
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock();
        formatter
            .debug_struct("Lane")
            .field("made", &state.next_ticket)
            .field("served", &state.serving)
            .finish()
    }
}

/// The right to run a call; serves the next ticket when dropped, even by a panic.
struct Turn<'a> {
    lane: &'a Lane,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.lane.state.lock().serving += 1;
        self.lane.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn blocking_and_queued_calls_run_in_the_order_they_were_made() {
        let lane = Lane::new(LaneOwner::first_caller());
        let (sender, order) = mpsc::channel();
        for round in 0..20u64 {
            let sender_job = sender.clone();
            let job = move |ticket| {
                std::thread::sleep(Duration::from_micros(200));
                sender_job.send(ticket).unwrap();
            };
            lane.submit("lane", Box::new(job)).unwrap();
            if round % 3 == 0 {
                lane.run(|ticket| sender.send(ticket).unwrap());
            }
        }
        assert!(lane.drain(Instant::now() + Duration::from_secs(5)));
        lane.close();
        let order: Vec<u64> = order.try_iter().collect();
        assert_eq!(order, (0..27).collect::<Vec<_>>());
    }

    #[test]
    fn a_panic_does_not_stop_the_calls_after_it() {
        let lane = Lane::new(LaneOwner::first_caller());
        lane.submit("lane", Box::new(|_| std::panic::resume_unwind(Box::new("planted"))))
            .unwrap();
        assert_eq!(lane.run(|ticket| ticket), 1);
        lane.close();
    }
}
