//! NVTX ranges, which Nsight Systems shows above what the GPU does.
//!
//! NVTX 3 is headers only: a program that a tool watches loads the tool's library, which the environment variable
//! `NVTX_INJECTION64_PATH` names, and gives it a table that it fills with its functions; see [`injection`]. NVTX 2 is
//! the library `libnvToolsExt.so.1`, which came with CUDA up to version 12 and does that itself. Both are looked for at
//! run time, in this order; without either, a range costs one comparison.

pub mod injection;

use std::ffi::CString;
use std::marker::PhantomData;

use libloading::Library;

use injection::{Pop, Push};

/// The library of NVTX 2.
const LIBRARY: &str = "libnvToolsExt.so.1";

/// Where ranges go, if anywhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nvtx {
    calls: Option<Calls>,
}

/// Functions of a library that is never unloaded.
#[derive(Clone, Copy, Debug)]
struct Calls {
    push: Push,
    pop: Pop,
    source: &'static str,
}

/// A range that ends when this is dropped, on the thread on which it began.
#[must_use = "the range ends when this is dropped"]
#[derive(Debug)]
pub struct NvtxRange {
    nvtx: Nvtx,
    /// A range belongs to its thread.
    _of_thread: PhantomData<*const ()>,
}

impl Nvtx {
    /// Looks for a tool that watches this process.
    pub fn load() -> Self {
        let attached = injection::attach().map(|(push, pop)| Calls {
            push,
            pop,
            source: "NVTX 3, the tool of NVTX_INJECTION64_PATH",
        });
        Self {
            calls: attached.or_else(load_version_2),
        }
    }

    /// Returns one that does nothing.
    pub fn none() -> Self {
        Self::default()
    }

    /// Through what ranges go, if anywhere.
    pub fn source(&self) -> Option<&'static str> {
        self.calls.map(|calls| calls.source)
    }

    /// Begins a range within those that this thread has begun; it ends with what is returned.
    pub fn range(&self, name: &str) -> NvtxRange {
        self.push(name);
        NvtxRange {
            nvtx: *self,
            _of_thread: PhantomData,
        }
    }

    /// Begins a range within those that this thread has begun, which [`pop`](Self::pop) ends on this thread.
    pub fn push(&self, name: &str) {
        if let Some(calls) = self.calls {
            // A name ends at a zero byte.
            let name = CString::new(name.split('\0').next().unwrap_or_default()).unwrap_or_default();
            // SAFETY: the function takes a string that ends in a zero byte, and copies it; its library is never
            // unloaded.
            unsafe { (calls.push)(name.as_ptr()) };
        }
    }

    /// Ends the range that this thread began last; does nothing if there is none.
    pub fn pop(&self) {
        if let Some(calls) = self.calls {
            // SAFETY: may be called at any time; the library is never unloaded.
            unsafe { (calls.pop)() };
        }
    }
}

impl Drop for NvtxRange {
    fn drop(&mut self) {
        self.nvtx.pop();
    }
}

fn load_version_2() -> Option<Calls> {
    // SAFETY: NVIDIA's library may be loaded at any time on any thread; its initialisation is a load of the tool.
    let library = unsafe { Library::new(LIBRARY) }.ok()?;
    // SAFETY: the names and types are those of nvToolsExt.h, version 2 and 3.
    let calls = unsafe {
        Calls {
            push: *library.get::<Push>(b"nvtxRangePushA\0").ok()?,
            pop: *library.get::<Pop>(b"nvtxRangePop\0").ok()?,
            source: "NVTX 2, libnvToolsExt.so.1",
        }
    };
    // Tools do not expect to be unloaded.
    std::mem::forget(library);
    Some(calls)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::ffi::{CStr, c_char, c_int};

    use super::*;

    thread_local! {
        static RANGES: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
    }

    unsafe extern "C" fn push(name: *const c_char) -> c_int {
        // SAFETY: `range` gives a string.
        let name = unsafe { CStr::from_ptr(name) }.to_str().unwrap().to_owned();
        RANGES.with_borrow_mut(|ranges| ranges.push(name));
        0
    }

    unsafe extern "C" fn pop() -> c_int {
        RANGES.with_borrow_mut(|ranges| ranges.push("end".to_owned()));
        0
    }

    #[test]
    fn ranges_begin_and_end_within_each_other() {
        let nvtx = Nvtx {
            calls: Some(Calls {
                push,
                pop,
                source: "a test",
            }),
        };
        assert_eq!(nvtx.source(), Some("a test"));
        {
            let _step = nvtx.range("step 3");
            for name in ["forward", "back\0ward"] {
                let _inner = nvtx.range(name);
            }
        }
        let expected = ["step 3", "forward", "end", "back", "end", "end"];
        RANGES.with_borrow(|ranges| assert_eq!(*ranges, expected));
        drop(Nvtx::none().range("nothing"));
        assert_eq!(Nvtx::none().source(), None);
        RANGES.with_borrow(|ranges| assert_eq!(*ranges, expected));
    }
}
