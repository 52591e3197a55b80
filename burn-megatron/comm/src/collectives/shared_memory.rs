//! [`SharedMemory`]: memory that all ranks of a group have mapped. `host::shared_memory::exposed` makes it, and says
//! who may touch it when.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use memmap2::MmapRaw;

/// What the parts of this process's ranks take together.
static OWN_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Returns the bytes of the shared buffers that this process owns now.
///
/// They are no part of what its allocator hands out. In `/proc/PID/status` they count as `RssShmem`, with those pages
/// of the other ranks' buffers that this process has touched: after an all-reduce over n ranks an n-th of each. So
/// `RssShmem`, summed over the ranks of a node, exceeds the memory that is taken; `Pss_Shmem` in
/// `/proc/PID/smaps_rollup` does not.
pub fn shared_memory_bytes() -> usize {
    OWN_BYTES.load(Ordering::Relaxed)
}

/// Memory of all ranks of a group, as one of them has mapped it: a part of the same length for each.
pub struct SharedMemory {
    /// By group index.
    parts: Vec<MmapRaw>,
    rank: usize,
    length: usize,
}

impl SharedMemory {
    pub(super) fn new(parts: Vec<MmapRaw>, rank: usize, length: usize) -> Self {
        OWN_BYTES.fetch_add(length, Ordering::Relaxed);
        Self { parts, rank, length }
    }

    /// Returns this rank's part. Not to be called inside a call that other ranks take part in.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: mapped for as long as `self` lives, initialised (the file was zeros), and between calls this rank's
        // alone; a call that uses slices of it has taken the value.
        unsafe { &*self.slice(self.rank, 0..self.length) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`.
        unsafe { &mut *self.slice(self.rank, 0..self.length) }
    }

    /// Returns the length of one part.
    pub(super) fn length(&self) -> usize {
        self.length
    }

    /// Returns where bytes of the rank's part are, which may be dereferenced as long as `self` lives, by who may touch
    /// them.
    ///
    /// # Panics
    /// When they are out of bounds.
    pub(super) fn slice(&self, rank: usize, range: Range<usize>) -> *mut [u8] {
        let length = self.length;
        assert!(range.start <= range.end && range.end <= length, "{range:?} of {length}");
        // SAFETY: inside the mapping, which `map` has made of `length` bytes.
        let start = unsafe { self.parts[rank].as_mut_ptr().add(range.start) };
        std::ptr::slice_from_raw_parts_mut(start, range.len())
    }

    /// Copies bytes of one rank's part to the same place in another's.
    ///
    /// # Safety
    /// This rank may touch these bytes of both, now.
    ///
    /// # Panics
    /// When they are out of bounds.
    pub(super) unsafe fn copy(&self, from: usize, to: usize, range: Range<usize>) {
        let (from, to) = (self.slice(from, range.clone()), self.slice(to, range));
        // SAFETY: in bounds, and the caller has both for itself; were they one rank's, it would be a copy onto itself.
        unsafe { to.cast::<u8>().copy_from(from.cast::<u8>(), from.len()) };
    }
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        OWN_BYTES.fetch_sub(self.length, Ordering::Relaxed);
    }
}

impl fmt::Debug for SharedMemory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (length, ranks) = (self.length, self.parts.len());
        write!(formatter, "SharedMemory({length} bytes of each of {ranks} ranks)")
    }
}
