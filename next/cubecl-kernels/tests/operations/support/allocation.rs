//! What a thread has allocated: the memory of a backend that has no figure of its own.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static NOW: Cell<isize> = const { Cell::new(0) };
    static MOST: Cell<isize> = const { Cell::new(0) };
}

/// The system's allocator, counting for each thread what it allocates and frees.
pub struct ThreadAllocator;

/// Restarts [`most_bytes`] from what the thread has allocated now.
pub fn restart() {
    MOST.set(NOW.get());
}

/// The most bytes that this thread had allocated at once, less all that it had freed of others'.
pub fn most_bytes() -> isize {
    MOST.get()
}

fn add(bytes: isize) {
    // A thread at its end may have no cells any more.
    let _ = NOW.try_with(|now| {
        now.set(now.get() + bytes);
        let _ = MOST.try_with(|most| most.set(most.get().max(now.get())));
    });
}

// SAFETY: all is the system's allocator's, which is called with what was given; counting allocates nothing, as the
// cells are constants to begin with and have nothing to drop.
unsafe impl GlobalAlloc for ThreadAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        add(-(layout.size() as isize));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        add(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // Both exist while the one is copied to the other.
        add(size as isize);
        // SAFETY: as the caller promises.
        let moved = unsafe { System.realloc(pointer, layout, size) };
        add(-(layout.size() as isize));
        moved
    }
}
