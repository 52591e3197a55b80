//! The multiprocessors that NCCL's kernels hold: a block of theirs stays on one until the other ranks have come.

use std::ffi::c_uint;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::number_in_environment;
use crate::Architecture;

/// The number of `CUdevice_attribute` that asks for them.
pub const ATTRIBUTE: c_uint = 16;
/// Time between two looks at whether a kernel that waits for them is to end.
const SLICE: Duration = Duration::from_millis(20);

/// A device's multiprocessors.
#[derive(Debug)]
pub struct Multiprocessors {
    /// Their number.
    pub count: usize,
    free: Mutex<usize>,
    changed: Condvar,
}

/// What a kernel holds; let go when dropped.
#[derive(Debug)]
pub struct Held<'a> {
    of: &'a Multiprocessors,
    blocks: usize,
}

impl Multiprocessors {
    /// Returns those of a GPU: `CUDA_EMULATOR_MULTIPROCESSORS`, or those of its architecture.
    pub fn new(architecture: Architecture) -> Self {
        let asked = number_in_environment("CUDA_EMULATOR_MULTIPROCESSORS");
        let count = asked.unwrap_or(architecture.multiprocessors());
        Self {
            count,
            free: Mutex::new(count),
            changed: Condvar::new(),
        }
    }

    /// Holds one for each of `blocks`: those that are free at once, and the others as they become free, while the first
    /// wait on theirs. With fewer than asked for when `is_ended` says so.
    pub fn hold(&self, blocks: usize, is_ended: impl Fn() -> bool) -> Held<'_> {
        let mut held = Held { of: self, blocks: 0 };
        let mut free = self.free.lock();
        loop {
            let more = (blocks - held.blocks).min(*free);
            *free -= more;
            held.blocks += more;
            if held.blocks == blocks || is_ended() {
                break;
            }
            self.changed.wait_for(&mut free, SLICE);
        }
        drop(free);
        held
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.of.free.lock() += self.blocks;
        self.of.changed.notify_all();
    }
}
