//! `Interrupt`: SIGINT and SIGTERM as a wish to stop.

use std::io;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

/// Remembers which signal came. After the first one, a second ends the program at once.
#[derive(Debug, Clone)]
pub struct Interrupt {
    signal: Arc<AtomicUsize>,
}

impl Interrupt {
    /// Begins to catch signals.
    ///
    /// # Errors
    /// If the operating system refuses.
    pub fn register() -> io::Result<Self> {
        let signal = Arc::new(AtomicUsize::new(0));
        for number in [SIGINT, SIGTERM] {
            let armed = Arc::new(false.into());
            // In this order: the first signal arms what the second meets.
            flag::register_conditional_shutdown(number, 128 + number, Arc::clone(&armed))?;
            flag::register(number, armed)?;
            flag::register_usize(number, signal.clone(), number as usize)?;
        }
        Ok(Self { signal })
    }

    /// Returns whether a signal came.
    pub fn is_set(&self) -> bool {
        self.signal.load(Ordering::Relaxed) != 0
    }

    /// Returns the exit code for the signal: 128 and its number, as shells have it.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(128 + self.signal.load(Ordering::Relaxed) as u8)
    }
}
