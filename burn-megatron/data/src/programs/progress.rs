//! `ProgressReport`: a bar on a terminal, lines elsewhere.

use std::cell::Cell;
use std::fmt;
use std::io::IsTerminal;
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

use super::Interrupt;
use crate::preprocess::{Observer, Progress};

/// Reports how far a run is, on standard error.
#[derive(Debug)]
pub struct ProgressReport {
    interrupt: Interrupt,
    start: Instant,
    /// Documents between two lines.
    log_interval: u64,
    logged: Cell<u64>,
    /// `None` where standard error is no terminal.
    bar: Option<ProgressBar>,
}

impl ProgressReport {
    /// Begins to measure time.
    pub fn new(log_interval: u64, interrupt: Interrupt) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template("{bar:24} {percent:>3}% of {total_bytes}, {msg}, {eta} left")
                .expect("the template is constant");
            ProgressBar::new(0).with_style(style)
        });
        Self {
            interrupt,
            start: Instant::now(),
            log_interval,
            logged: Cell::new(0),
            bar,
        }
    }

    /// Removes the bar, and returns the speed up to now.
    pub fn finish(&self, progress: &Progress) -> String {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        self.speed(progress)
    }

    fn speed(&self, progress: &Progress) -> String {
        let seconds = self.start.elapsed().as_secs_f64().max(1e-9);
        let megabytes = progress.text_bytes as f64 / 1e6 / seconds;
        format!(
            "{megabytes:.1} MB/s, {:.0} documents/s",
            progress.documents as f64 / seconds
        )
    }

    fn left(&self, progress: &Progress) -> String {
        let seconds = self.start.elapsed().as_secs_f64();
        let left = progress.bytes_total.saturating_sub(progress.bytes_read) as f64;
        format!("{:.0} s left", seconds * left / progress.bytes_read.max(1) as f64)
    }
}

impl Observer for ProgressReport {
    fn progressed(&self, progress: &Progress) {
        if let Some(bar) = &self.bar {
            bar.set_length(progress.bytes_total);
            bar.set_position(progress.bytes_read);
            bar.set_message(self.speed(progress));
        } else if progress.documents / self.log_interval > self.logged.get() / self.log_interval {
            self.logged.set(progress.documents);
            let (speed, left) = (self.speed(progress), self.left(progress));
            eprintln!("processed {} documents ({speed}), {left}", progress.documents);
        }
    }

    fn is_stopped(&self) -> bool {
        self.interrupt.is_set()
    }
}

/// Bytes for people: `1.5 MB`.
#[derive(Debug, Clone, Copy)]
pub struct Bytes(pub u64);

impl fmt::Display for Bytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.0 as f64;
        match self.0 {
            0..1_000 => write!(formatter, "{} bytes", self.0),
            1_000..1_000_000 => write!(formatter, "{:.1} kB", bytes / 1e3),
            1_000_000..1_000_000_000 => write!(formatter, "{:.1} MB", bytes / 1e6),
            _ => write!(formatter, "{:.2} GB", bytes / 1e9),
        }
    }
}
