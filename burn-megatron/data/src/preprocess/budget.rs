//! `ByteBudget`: how much text is between reader and writer.

use parking_lot::{Condvar, Mutex};

/// Bytes that may be taken by several and are given back.
pub(super) struct ByteBudget {
    state: Mutex<State>,
    changed: Condvar,
    limit: usize,
}

struct State {
    taken: usize,
    closed: bool,
}

impl ByteBudget {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            state: Mutex::new(State {
                taken: 0,
                closed: false,
            }),
            changed: Condvar::new(),
            limit,
        }
    }

    /// Waits until these bytes are free, or all are, and takes them. Returns `false` once the budget is closed.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let mut state = self.state.lock();
        while !state.closed && state.taken > 0 && state.taken.saturating_add(bytes) > self.limit {
            self.changed.wait(&mut state);
        }
        state.taken += bytes;
        !state.closed
    }

    pub(super) fn give_back(&self, bytes: usize) {
        self.state.lock().taken -= bytes;
        self.changed.notify_all();
    }

    /// Ends all waiting: nothing more is to be read.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state.lock().closed
    }
}
