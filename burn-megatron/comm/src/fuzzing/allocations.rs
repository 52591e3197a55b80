//! An allocator that counts, so that a test sees how much memory a call takes.
//!
//! A program that wants to see it makes [`Counting`] its global allocator. Each thread counts for itself, so tests that
//! run at the same time do not see each other; what a call allocates on other threads is not seen.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    // Bytes allocated less bytes freed, and the most that this has been: both without destructors, and made without
    // allocating, as an allocator needs.
    static CURRENT: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counting.
pub struct Counting;

/// Counts, except in a thread that is just ending.
fn note(change: isize) {
    let _ = CURRENT.try_with(|current| {
        current.set(current.get() + change);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(current.get())));
    });
}

// SAFETY: hands every call on to the system's allocator as it is.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        note(-(layout.size() as isize));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        // Both may exist for a moment.
        note(new_size as isize);
        note(-(layout.size() as isize));
        // SAFETY: as the caller promises.
        unsafe { System.realloc(pointer, layout, new_size) }
    }
}

/// Runs `body` and returns the most bytes that it held at a time, on this thread, beyond those held before.
pub fn peak_of(body: impl FnOnce()) -> usize {
    let before = CURRENT.get();
    PEAK.set(before);
    body();
    usize::try_from(PEAK.get() - before).unwrap_or(0)
}
