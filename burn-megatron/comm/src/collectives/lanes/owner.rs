//! [`LaneOwner`]: which thread makes the calls of a lane.
//!
//! Ranks match the calls of a lane by their order alone. Two threads of one rank that make calls at their own pace are
//! in one order on one rank and in another on the next: the first thread's buffer is then added to the second thread's,
//! and no rank can tell. So the calls of a lane belong to one thread until it hands them over. The operating system
//! decides nothing then: what the program says decides, and it says the same on every rank.
//!
//! A thread that has ended returns the calls to a thread that handed them over before, which is how a program that
//! spawns a thread, and joins it, continues. It returns them to no other thread: two threads that make one call each
//! and end may still come in any order.

use crate::collectives::call::CallDescriptor;
use parking_lot::{Mutex, MutexGuard};
use std::fmt;
use std::panic::Location;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::{Duration, Instant};

/// How long a call waits for the end of a thread that its own thread has handed over to: a scope returns, and a thread
/// that was not joined has sent its result, a moment before the thread has ended.
const END_LIMIT: Duration = Duration::from_secs(1);
/// How often it looks.
const END_INTERVAL: Duration = Duration::from_millis(1);

/// The thread that makes the calls of a lane.
#[derive(Debug)]
pub(crate) struct LaneOwner {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// `None` if the next thread that makes a call becomes the owner.
    holder: Option<Holder>,
    /// The threads that have handed over, in that order, up to the one that the holder has the calls from.
    lenders: Vec<Caller>,
}

#[derive(Debug)]
struct Holder {
    caller: Caller,
    last_call: Option<LastCall>,
}

/// A call as it was made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LastCall {
    pub call: CallDescriptor,
    pub at: &'static Location<'static>,
}

/// Why a thread may not make a call.
#[derive(Debug)]
pub(crate) struct Intrusion {
    /// The thread that makes the call.
    pub thread: String,
    /// The thread that the calls belong to.
    pub owner: String,
    pub owner_has_ended: bool,
    /// `None` if it has made none.
    pub last_call: Option<LastCall>,
}

impl LaneOwner {
    /// Returns the owner of a lane whose calls belong to the first thread that makes one.
    pub fn first_caller() -> Self {
        Self::new(None)
    }

    /// Returns the owner of a lane whose calls belong to this thread.
    pub fn this_thread() -> Self {
        Self::new(Some(Holder {
            caller: Caller::current(),
            last_call: None,
        }))
    }

    fn new(holder: Option<Holder>) -> Self {
        let lenders = Vec::new();
        Self {
            state: Mutex::new(State { holder, lenders }),
        }
    }

    /// Notes that this thread makes `call`.
    ///
    /// # Errors
    /// When the calls belong to another thread.
    pub fn admit(&self, call: &CallDescriptor, at: &'static Location<'static>) -> Result<(), Intrusion> {
        let caller = Caller::current();
        let mut state = self.settled(&caller);
        let last_call = Some(LastCall { call: *call, at });
        match &mut state.holder {
            Some(holder) if holder.caller == caller => holder.last_call = last_call,
            Some(holder) => {
                return Err(Intrusion {
                    thread: caller.to_string(),
                    owner: holder.caller.to_string(),
                    owner_has_ended: holder.caller.has_ended(),
                    last_call: holder.last_call,
                });
            }
            None => {
                state.forget_lenders_from(&caller);
                state.holder = Some(Holder { caller, last_call });
            }
        }
        Ok(())
    }

    /// Lets the next thread that makes a call be the owner, if this thread is.
    pub fn hand_over(&self) {
        let caller = Caller::current();
        let mut state = self.settled(&caller);
        if state.holder.as_ref().is_some_and(|holder| holder.caller == caller) {
            state.holder = None;
            state.lenders.retain(|lender| !lender.has_ended());
            state.lenders.push(caller);
        }
    }

    /// Returns the state once it is clear whether the calls return to `caller`.
    fn settled(&self, caller: &Caller) -> MutexGuard<'_, State> {
        let begun = Instant::now();
        loop {
            let mut state = self.state.lock();
            let is_lent = state.lenders.contains(caller);
            match &state.holder {
                Some(holder) if is_lent && holder.caller.has_ended() => {
                    state.forget_lenders_from(caller);
                    state.holder = Some(Holder {
                        caller: caller.clone(),
                        last_call: None,
                    });
                    return state;
                }
                Some(holder) if is_lent && holder.caller != *caller && begun.elapsed() < END_LIMIT => {}
                _ => return state,
            }
            drop(state);
            thread::sleep(END_INTERVAL);
        }
    }
}

impl State {
    fn forget_lenders_from(&mut self, caller: &Caller) {
        if let Some(place) = self.lenders.iter().position(|lender| lender == caller) {
            self.lenders.truncate(place);
        }
    }
}

/// A thread, and whether it lives.
#[derive(Clone, Debug)]
struct Caller {
    name: Arc<str>,
    life: Weak<Life>,
}

/// Lives as long as its thread.
#[derive(Debug)]
struct Life {
    name: Arc<str>,
}

impl Life {
    fn of_this_thread() -> Arc<Self> {
        let thread = thread::current();
        let name = match thread.name() {
            Some(name) => format!("{name:?} ({:?})", thread.id()),
            None => format!("{:?}", thread.id()),
        };
        Arc::new(Self { name: name.into() })
    }
}

thread_local! {
    static LIFE: Arc<Life> = Life::of_this_thread();
}

impl Caller {
    fn current() -> Self {
        // A thread that is ending has none any more, and owns nothing for longer than one call.
        let life = LIFE.try_with(Arc::clone).unwrap_or_else(|_| Life::of_this_thread());
        Self {
            name: life.name.clone(),
            life: Arc::downgrade(&life),
        }
    }

    fn has_ended(&self) -> bool {
        self.life.strong_count() == 0
    }
}

impl PartialEq for Caller {
    fn eq(&self, other: &Self) -> bool {
        self.life.ptr_eq(&other.life)
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::Operation;
    use crate::collectives::process_group::describe;
    use std::thread::{scope, spawn};

    /// Makes a call on this thread.
    fn call(owner: &LaneOwner) -> Result<(), Intrusion> {
        owner.admit(&describe::<f32>(Operation::AllReduce, 4), Location::caller())
    }

    /// Makes a call on a thread that ends after it.
    fn call_elsewhere(owner: &Arc<LaneOwner>) -> Result<(), Intrusion> {
        let owner = owner.clone();
        spawn(move || call(&owner)).join().unwrap()
    }

    #[test]
    fn another_thread_is_refused_whether_or_not_the_calls_overlap() {
        let owner = Arc::new(LaneOwner::this_thread());
        let refused = call_elsewhere(&owner).unwrap_err();
        assert!(refused.last_call.is_none() && !refused.owner_has_ended, "{refused:?}");
        assert!(refused.owner.contains("another_thread_is_refused"), "{refused:?}");
        call(&owner).unwrap();
        let refused = call_elsewhere(&owner).unwrap_err();
        assert_eq!(refused.last_call.unwrap().call.operation, Operation::AllReduce);
        assert_ne!(refused.thread, refused.owner);
        call(&owner).unwrap();
    }

    #[test]
    fn the_first_caller_of_a_lane_without_an_owner_is_its_owner() {
        let owner = Arc::new(LaneOwner::first_caller());
        call(&owner).unwrap();
        call_elsewhere(&owner).unwrap_err();
        call(&owner).unwrap();
    }

    #[test]
    fn calls_that_were_handed_over_return_when_the_thread_has_ended() {
        let owner = Arc::new(LaneOwner::this_thread());
        for _ in 0..3 {
            owner.hand_over();
            call_elsewhere(&owner).unwrap();
            // A second thread in turn, of which another rank may see the call first.
            assert!(call_elsewhere(&owner).unwrap_err().owner_has_ended);
            call(&owner).unwrap();
        }
        // A scope returns before its threads have quite ended.
        for _ in 0..100 {
            owner.hand_over();
            scope(|scope| _ = scope.spawn(|| call(&owner).unwrap()));
            call(&owner).unwrap();
        }
    }

    #[test]
    fn calls_return_over_several_threads() {
        let owner = Arc::new(LaneOwner::this_thread());
        owner.hand_over();
        let between = owner.clone();
        spawn(move || {
            call(&between).unwrap();
            between.hand_over();
            call_elsewhere(&between).unwrap();
        })
        .join()
        .unwrap();
        call(&owner).unwrap();
        assert!(owner.state.lock().lenders.is_empty());
    }

    #[test]
    fn a_thread_that_owns_nothing_hands_nothing_over() {
        let owner = Arc::new(LaneOwner::this_thread());
        let other = owner.clone();
        spawn(move || other.hand_over()).join().unwrap();
        call_elsewhere(&owner).unwrap_err();
        call(&owner).unwrap();
    }

    #[test]
    fn a_thread_that_has_handed_over_is_refused_while_the_other_lives() {
        let owner = LaneOwner::this_thread();
        owner.hand_over();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        scope(|scope| {
            let (called, has_called) = std::sync::mpsc::channel();
            let owner = &owner;
            scope.spawn(move || {
                call(owner).unwrap();
                called.send(()).unwrap();
                wait.recv().unwrap();
                owner.hand_over();
            });
            has_called.recv().unwrap();
            assert!(!call(owner).unwrap_err().owner_has_ended);
            done.send(()).unwrap();
        });
        call(&owner).unwrap();
    }
}
