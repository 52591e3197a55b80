//! [`DeviceEngine`]: what takes a group's calls on the memory of a device.

use std::any::Any;
use std::fmt::Debug;
use std::time::Instant;

/// Takes a group's calls on memory that is not the host's.
pub trait DeviceEngine: Any + Debug + Send + Sync {
    /// Returns the payload bytes that this rank has sent.
    fn bytes_communicated(&self) -> u64;

    /// Waits for calls that were started; at `deadline` they end at the latest.
    fn stop(&self, deadline: Instant);

    /// Ends the engine. The group has failed, or was dropped: what still waits for other ranks notices.
    fn close(&self);
}
