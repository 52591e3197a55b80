//! `Descriptors`: what callers describe a product with, of one kind each, and how the value of an attribute is read.

use std::ffi::c_void;
use std::sync::Arc;

use parking_lot::Mutex;

use super::error::{Error, Outcome};
use crate::exported::Out;
use crate::handles::Handles;

/// The descriptors of one kind that were created and not destroyed.
pub struct Descriptors<T> {
    known: Handles<Mutex<T>>,
    name: &'static str,
}

impl<T: Copy> Descriptors<T> {
    /// Descriptors whose handles differ from those of other kinds.
    pub const fn new(kind: u8, name: &'static str) -> Self {
        let known = Handles::new(kind);
        Self { known, name }
    }

    /// Creates one, and writes its handle.
    pub fn create(&self, handle: Out<*mut c_void>, value: T) -> Outcome {
        handle.give(self.known.insert(Arc::new(Mutex::new(value))))
    }

    /// What it says now.
    pub fn value(&self, handle: *mut c_void) -> Outcome<T> {
        let known = self.known.get(handle).ok_or_else(|| self.unknown())?;
        let value = known.lock();
        Ok(*value)
    }

    pub fn change(&self, handle: *mut c_void, change: impl FnOnce(&mut T) -> Outcome) -> Outcome {
        let known = self.known.get(handle).ok_or_else(|| self.unknown())?;
        let mut value = known.lock();
        change(&mut value)
    }

    pub fn destroy(&self, handle: *mut c_void) -> Outcome {
        self.known.remove(handle).map(drop).ok_or_else(|| self.unknown())
    }

    fn unknown(&self) -> Error {
        Error::invalid(format!("no {}, or one that was destroyed", self.name))
    }

    /// What is said of an attribute that has no effect here.
    pub fn unsupported(&self, attribute: u32) -> Error {
        Error::unsupported(format!("the attribute {attribute} of a {}", self.name))
    }
}

/// Reads an attribute's value; `bytes` must be the size of a `T`.
///
/// # Safety
///
/// The pointer must be null or point to `bytes` bytes, which must be a valid `T` if that is the size of one.
pub unsafe fn take<T: Copy>(value: *const c_void, bytes: usize) -> Outcome<T> {
    if value.is_null() || bytes != size_of::<T>() {
        let text = format!(
            "an attribute of {} bytes, given as {bytes} at {value:p}",
            size_of::<T>()
        );
        return Err(Error::invalid(text));
    }
    // SAFETY: the caller's, and not null.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}
