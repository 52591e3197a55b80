//! `Handles`: the opaque pointers that callers hold, which are checked before anything is done with them.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;

use parking_lot::RwLock;

/// What the handles of one kind stand for.
///
/// A handle is an address that no processor accepts, so dereferencing one faults at once. No handle is used twice.
pub struct Handles<T> {
    kind: u8,
    known: RwLock<Option<Known<T>>>,
}

struct Known<T> {
    next: usize,
    values: HashMap<usize, Arc<T>>,
}

impl<T> Handles<T> {
    /// Handles whose addresses differ from those of other kinds.
    pub const fn new(kind: u8) -> Self {
        Self {
            kind,
            known: RwLock::new(None),
        }
    }

    pub fn insert(&self, value: Arc<T>) -> *mut c_void {
        let mut known = self.known.write();
        let known = known.get_or_insert_with(|| Known {
            next: 0,
            values: HashMap::new(),
        });
        known.next += 1;
        let handle = (0xE0 | usize::from(self.kind)) << 56 | known.next << 4;
        known.values.insert(handle, value);
        handle as *mut c_void
    }

    pub fn get(&self, handle: *mut c_void) -> Option<Arc<T>> {
        let known = self.known.read();
        known.as_ref()?.values.get(&(handle as usize)).cloned()
    }

    pub fn remove(&self, handle: *mut c_void) -> Option<Arc<T>> {
        let mut known = self.known.write();
        known.as_mut()?.values.remove(&(handle as usize))
    }
}
