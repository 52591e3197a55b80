//! How functions are exported: [`exported!`] for what is the same of all, [`Out`] for the pointers that they write to.

use std::ffi::c_void;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// What a library's functions fail with.
pub trait Failure {
    /// A pointer to write to is null.
    fn null() -> Self;

    fn panicked() -> Self;

    /// Keeps or says what no code can, and returns the code.
    fn into_code(self) -> u32;
}

/// Runs what an exported function does, and returns its code: nothing unwinds into the caller.
pub fn returned<E: Failure>(call: impl FnOnce() -> Result<(), E>) -> u32 {
    let outcome = catch_unwind(AssertUnwindSafe(call)).unwrap_or_else(|_| Err(E::panicked()));
    outcome.map_or_else(Failure::into_code, |()| 0)
}

/// Exports functions under their names. A body ends with the `Outcome` that is in scope, of which the caller sees the
/// code.
macro_rules! exported {
    ($($(#[$attribute:meta])* fn $name:ident($($argument:ident: $type:ty),* $(,)?) $body:block)*) => {
        $(
            $(#[$attribute])*
            #[unsafe(no_mangle)]
            unsafe extern "C" fn $name($($argument: $type),*) -> u32 {
                $crate::exported::returned(|| -> Outcome { $body })
            }
        )*
    };
}
pub(crate) use exported;

/// A caller's pointer that a result is written to: null, or to where a `T` may be written.
///
/// The functions that take one are unsafe: who calls them vouches for it.
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    pub fn is_null(&self) -> bool {
        self.0.is_null()
    }

    pub fn give<E: Failure>(&self, value: T) -> Result<(), E> {
        if self.is_null() {
            return Err(E::null());
        }
        // SAFETY: the caller's, and not null.
        unsafe { self.0.write(value) };
        Ok(())
    }

    /// As [`give`](Self::give), where the caller need not ask for the value.
    pub fn give_if_asked(&self, value: T) {
        if !self.is_null() {
            // SAFETY: the caller's, and not null.
            unsafe { self.0.write(value) };
        }
    }
}

impl Out<c_void> {
    /// # Safety
    ///
    /// It must be null or point to where a `T` may be written.
    pub unsafe fn of<T>(&self) -> Out<T> {
        Out(self.0.cast())
    }
}
