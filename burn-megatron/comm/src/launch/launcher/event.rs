//! [`Event`]: what the launcher's loop is informed of.

/// What the launcher's loop is informed of.
#[derive(Debug)]
pub(super) enum Event {
    /// A rank's process has ended and can be reaped.
    Ended { rank: usize },
    /// The store knows of a failure.
    FailureReported,
    /// The launcher got SIGINT or SIGTERM.
    Interrupted(i32),
}
