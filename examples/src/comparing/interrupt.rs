//! `Interrupt`: remembers Ctrl-C and SIGTERM, also between two jobs, when no launcher listens.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Context as _;
use signal_hook::consts::{SIGINT, SIGTERM};

/// The last signal that asked this process to stop.
pub struct Interrupt {
    signal: Arc<AtomicUsize>,
}

/// The reason to stop that a signal is.
#[derive(Debug, thiserror::Error)]
#[error("interrupted by signal {signal}; nothing was written")]
pub struct Interrupted {
    signal: usize,
}

impl Interrupt {
    /// Remembers signals from now on.
    pub fn install() -> anyhow::Result<Self> {
        let signal = Arc::new(AtomicUsize::new(0));
        for number in [SIGINT, SIGTERM] {
            signal_hook::flag::register_usize(number, signal.clone(), number as usize)
                .with_context(|| format!("cannot install the handler of signal {number}"))?;
        }
        Ok(Self { signal })
    }

    /// Fails when this process was asked to stop.
    pub fn check(&self) -> Result<(), Interrupted> {
        match self.signal.load(Ordering::Relaxed) {
            0 => Ok(()),
            signal => Err(Interrupted { signal }),
        }
    }
}

impl Interrupted {
    /// The exit code that a shell gives a program that a signal ended.
    pub fn exit_code(&self) -> u8 {
        128 + self.signal as u8
    }
}
