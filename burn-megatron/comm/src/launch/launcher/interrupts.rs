//! [`Interrupts`]: SIGINT and SIGTERM, for whichever start of the ranks is under way.

use std::sync::{Arc, mpsc};
use std::thread;

use parking_lot::Mutex;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use super::event::Event;
use crate::launch::error::LaunchError;

/// Turns SIGINT and SIGTERM into events, on a thread that ends when this is dropped. The signals stay caught.
pub(super) struct Interrupts {
    handle: Handle,
    listener: Arc<Mutex<Listener>>,
}

struct Listener {
    events: mpsc::Sender<Event>,
    /// The first signal that has come.
    signal: Option<i32>,
}

impl Interrupts {
    /// Tells `events` of signals from now on.
    ///
    /// # Errors
    /// Signals cannot be watched for.
    pub(super) fn watch(events: mpsc::Sender<Event>) -> Result<Interrupts, LaunchError> {
        let failed = |source| LaunchError::System {
            action: "cannot watch for SIGINT and SIGTERM".into(),
            source,
        };
        let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(failed)?;
        let handle = signals.handle();
        let listener = Arc::new(Mutex::new(Listener { events, signal: None }));
        let heard = Arc::clone(&listener);
        let forward = move || {
            for signal in signals.forever() {
                let mut listener = heard.lock();
                listener.signal.get_or_insert(signal);
                // The ranks that it was for may have ended; the next ones hear of it.
                let _ = listener.events.send(Event::Interrupted(signal));
            }
        };
        thread::Builder::new()
            .name("launcher-signals".into())
            .spawn(forward)
            .map_err(failed)?;
        Ok(Interrupts { handle, listener })
    }

    /// Tells `events` from now on, also of a signal that has come before.
    pub(super) fn tell(&self, events: mpsc::Sender<Event>) {
        let mut listener = self.listener.lock();
        if let Some(signal) = listener.signal {
            let _ = events.send(Event::Interrupted(signal));
        }
        listener.events = events;
    }

    /// Returns the first signal that has come.
    pub(super) fn signal(&self) -> Option<i32> {
        self.listener.lock().signal
    }
}

impl Drop for Interrupts {
    fn drop(&mut self) {
        self.handle.close();
    }
}
