//! Memory of a process that trains on the CPU: what it has allocated, and how freed memory is kept.
//!
//! A training program calls [`keep_freed_memory`] first thing, makes [`CountingAllocator`] its global allocator and
//! asks [`peak_bytes`]: CPU backends have no figure of their own. Buffers that the ranks of a node share are no
//! allocator's, and are counted where they are made: each by the rank that owns it.

use std::alloc::{GlobalAlloc, Layout};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::collectives::shared_memory_bytes;

static CURRENT: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

/// A global allocator that counts the bytes another one hands out.
///
/// ```
/// use burn_megatron::training::memory::{CountingAllocator, peak_bytes};
///
/// #[global_allocator]
/// static ALLOCATOR: CountingAllocator<std::alloc::System> = CountingAllocator(std::alloc::System);
///
/// let numbers = vec![1u8; 1 << 20];
/// assert!(peak_bytes() >= numbers.len());
/// ```
#[derive(Debug, Default)]
pub struct CountingAllocator<A>(pub A);

/// The most bytes that were allocated at once, in shared buffers of this process or by the allocator; 0 where
/// [`CountingAllocator`] is not the global allocator.
pub fn peak_bytes() -> usize {
    PEAK.load(Relaxed)
}

/// Restarts [`peak_bytes`] with what is allocated now.
pub fn restart_peak() {
    PEAK.store(CURRENT.load(Relaxed), Relaxed);
}

/// The bytes that are allocated now; 0 where [`CountingAllocator`] is not the global allocator.
pub fn allocated_bytes() -> usize {
    CURRENT.load(Relaxed)
}

/// The bytes of memory that this machine has, where the system tells.
pub fn machine_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Lets the system allocator keep what is freed, instead of giving it back and asking for it again.
///
/// A training step frees and allocates the same large tensors over and over. If they are given back, every page of them
/// is faulted in and cleared again. That was 40% of the step time of the bundled GPT on two cores. This has no effect
/// if the C library is not glibc.
pub fn keep_freed_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        const GIB: libc::c_int = 1 << 30;
        /// The largest that older versions of glibc take.
        const LARGEST_OF_OLD: libc::c_int = 32 << 20;
        // SAFETY: mallopt has no memory-safety conditions. A value that it refuses leaves the default in force.
        unsafe {
            let is_set = libc::mallopt(libc::M_MMAP_THRESHOLD, GIB) == 1
                || libc::mallopt(libc::M_MMAP_THRESHOLD, LARGEST_OF_OLD) == 1;
            if is_set {
                libc::mallopt(libc::M_TRIM_THRESHOLD, libc::c_int::MAX);
                libc::mallopt(libc::M_TOP_PAD, 64 << 20);
            }
        }
    }
}

fn add(bytes: usize) {
    // A shared buffer that is made shows with the next allocation, which is never far.
    let now = CURRENT.fetch_add(bytes, Relaxed) + bytes + shared_memory_bytes();
    if now > PEAK.load(Relaxed) {
        PEAK.fetch_max(now, Relaxed);
    }
}

fn remove(bytes: usize) {
    CURRENT.fetch_sub(bytes, Relaxed);
}

// SAFETY: every call goes to the inner allocator with its arguments unchanged; counting touches two atomics only.
unsafe impl<A: GlobalAlloc> GlobalAlloc for CountingAllocator<A> {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's obligations are the inner allocator's.
        let pointer = unsafe { self.0.alloc(layout) };
        if !pointer.is_null() {
            add(layout.size());
        }
        pointer
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's obligations are the inner allocator's.
        let pointer = unsafe { self.0.alloc_zeroed(layout) };
        if !pointer.is_null() {
            add(layout.size());
        }
        pointer
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's obligations are the inner allocator's.
        unsafe { self.0.dealloc(pointer, layout) };
        remove(layout.size());
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // SAFETY: the caller's obligations are the inner allocator's.
        let moved = unsafe { self.0.realloc(pointer, layout, new_size) };
        if !moved.is_null() {
            remove(layout.size());
            add(new_size);
        }
        moved
    }
}
