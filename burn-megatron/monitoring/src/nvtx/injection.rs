//! How a program and a tool that watches it find each other in NVTX 3.
//!
//! The tool's library has a function `InitializeInjectionNvtx2`. The program calls it with a function that returns
//! tables by number: 1 is that of callbacks, 3 that of versions. The table of callbacks has a function that returns,
//! for each module of NVTX, a list of pointers to function pointers; into those the tool writes its functions. What it
//! leaves empty does nothing. Numbers and layouts are those of `nvtxDetail/nvtxTypes.h`, which promises to keep them.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::mem::{size_of, transmute};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicPtr, Ordering};

use libloading::Library;

/// Where a tool says which library to load.
const PATH: &str = if cfg!(target_pointer_width = "32") {
    "NVTX_INJECTION32_PATH"
} else {
    "NVTX_INJECTION64_PATH"
};
/// The version of NVTX whose tables these are.
const NVTX_VERSION: u32 = 3;
const TABLE_OF_CALLBACKS: u32 = 1;
const TABLE_OF_VERSIONS: u32 = 3;
/// In the module `core`.
const RANGE_PUSH: usize = 9;
const RANGE_POP: usize = 11;
/// The most functions of a module, and an end that is null.
const MAX_FUNCTIONS: usize = 17;
/// Functions of each module, number 0 of which stands for none: `core`, `cuda`, `opencl`, `cudart`, `core2`, `sync`.
const FUNCTIONS: [usize; 7] = [0, 16, 9, 15, 7, 16, 7];
const CORE: usize = 1;

/// Begins a range with a name that ends in a zero byte.
pub type Push = unsafe extern "C" fn(*const c_char) -> c_int;
/// Ends the thread's last range.
pub type Pop = unsafe extern "C" fn() -> c_int;
/// Returns tables, by number.
pub type ExportTables = unsafe extern "C" fn(u32) -> *const c_void;
/// The function that a tool's library has.
pub type Initialize = unsafe extern "C" fn(ExportTables) -> c_int;

/// A function pointer that a tool writes, null before.
type Slot = AtomicPtr<c_void>;

#[repr(C)]
struct Callbacks {
    struct_size: usize,
    module_functions: unsafe extern "C" fn(c_int, *mut *const *const Slot, *mut c_uint) -> c_int,
}

#[repr(C)]
struct Versions {
    struct_size: usize,
    version: u32,
    reserved: u32,
    set_injection_version: unsafe extern "C" fn(u32),
}

/// A list of pointers to slots; null for number 0 and at the end.
struct Pointers([[*const Slot; MAX_FUNCTIONS]; FUNCTIONS.len()]);

// SAFETY: the pointers are to statics, and never change.
unsafe impl Send for Pointers {}
// SAFETY: as above.
unsafe impl Sync for Pointers {}

static SLOTS: [[Slot; MAX_FUNCTIONS]; FUNCTIONS.len()] =
    [const { [const { AtomicPtr::new(ptr::null_mut()) }; MAX_FUNCTIONS] }; FUNCTIONS.len()];
static POINTERS: OnceLock<Pointers> = OnceLock::new();
static ATTACHED: OnceLock<Option<(Push, Pop)>> = OnceLock::new();

static CALLBACKS: Callbacks = Callbacks {
    struct_size: size_of::<Callbacks>(),
    module_functions,
};
static VERSIONS: Versions = Versions {
    struct_size: size_of::<Versions>(),
    version: NVTX_VERSION,
    reserved: 0,
    set_injection_version,
};

/// Loads the library that the environment names and attaches it, the first time; returns its functions for ranges, if
/// it has both.
pub fn attach() -> Option<(Push, Pop)> {
    *ATTACHED.get_or_init(|| {
        let path = std::env::var_os(PATH).filter(|path| !path.is_empty())?;
        // SAFETY: whoever starts this process under a tool names the tool's library, as for any program with NVTX.
        let library = unsafe { Library::new(&path) };
        let library = match library {
            Ok(library) => library,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "{PATH} names no library that can be loaded");
                return None;
            }
        };
        // SAFETY: the name and the type are those of nvtxTypes.h.
        let initialize = unsafe { library.get::<Initialize>(b"InitializeInjectionNvtx2\0") };
        let functions = match initialize {
            // SAFETY: the library is a tool's, and stays loaded if it takes part.
            Ok(initialize) => unsafe { attach_to(*initialize) },
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "{PATH} names no tool for NVTX");
                None
            }
        };
        if functions.is_some() {
            std::mem::forget(library);
        }
        functions
    })
}

/// Lets a tool fill the tables of this process; returns its functions for ranges, if it takes part and has both.
///
/// # Safety
/// `initialize` is a function of NVTX's type and meaning, and what it writes stays valid if it returns other than 0.
pub unsafe fn attach_to(initialize: Initialize) -> Option<(Push, Pop)> {
    // SAFETY: the caller's promise.
    if unsafe { initialize(export_tables) } == 0 {
        return None;
    }
    let [push, pop] = [RANGE_PUSH, RANGE_POP].map(|function| SLOTS[CORE][function].load(Ordering::Acquire));
    if push.is_null() || pop.is_null() {
        return None;
    }
    // SAFETY: what a tool writes into these slots has these types, by nvtxTypes.h.
    Some(unsafe { (transmute::<*mut c_void, Push>(push), transmute::<*mut c_void, Pop>(pop)) })
}

unsafe extern "C" fn export_tables(number: u32) -> *const c_void {
    match number {
        TABLE_OF_CALLBACKS => (&raw const CALLBACKS).cast(),
        TABLE_OF_VERSIONS => (&raw const VERSIONS).cast(),
        _ => ptr::null(),
    }
}

/// Returns 1 and the list of a module's functions with its length, or 0.
unsafe extern "C" fn module_functions(module: c_int, list: *mut *const *const Slot, length: *mut c_uint) -> c_int {
    let known = usize::try_from(module).ok().filter(|module| *module > 0);
    let Some((module, count)) = known.and_then(|module| Some((module, *FUNCTIONS.get(module)?))) else {
        return 0;
    };
    let pointers = POINTERS.get_or_init(|| {
        let of_module = |module: usize| {
            std::array::from_fn(|function| {
                if (1..FUNCTIONS[module]).contains(&function) {
                    &raw const SLOTS[module][function]
                } else {
                    ptr::null()
                }
            })
        };
        Pointers(std::array::from_fn(of_module))
    });
    // SAFETY: the tool gives places for the results, or null where it wants none.
    unsafe {
        if !length.is_null() {
            // At most 17.
            *length = count as c_uint;
        }
        if !list.is_null() {
            *list = pointers.0[module].as_ptr();
        }
    }
    1
}

/// The tool's version, which changes nothing here.
unsafe extern "C" fn set_injection_version(_version: u32) {}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    static PUSHES: AtomicUsize = AtomicUsize::new(0);
    static POPS: AtomicUsize = AtomicUsize::new(0);

    unsafe extern "C" fn push(_: *const c_char) -> c_int {
        PUSHES.fetch_add(1, Ordering::Relaxed);
        0
    }

    unsafe extern "C" fn pop() -> c_int {
        POPS.fetch_add(1, Ordering::Relaxed);
        0
    }

    /// A tool, as nvtxTypes.h describes it from the other side.
    unsafe extern "C" fn initialize(tables: ExportTables) -> c_int {
        #[repr(C)]
        struct TheirCallbacks {
            size: usize,
            functions: unsafe extern "C" fn(c_int, *mut *mut *mut *mut c_void, *mut c_uint) -> c_int,
        }
        #[repr(C)]
        struct TheirVersions {
            size: usize,
            version: u32,
            reserved: u32,
            set: unsafe extern "C" fn(u32),
        }
        // SAFETY: the layouts are those of the header, and the pointers to statics.
        unsafe {
            assert!(tables(0).is_null() && tables(2).is_null() && tables(4).is_null());
            let versions = &*tables(3).cast::<TheirVersions>();
            assert_eq!((versions.size, versions.version, versions.reserved), (24, 3, 0));
            (versions.set)(2);
            let callbacks = &*tables(1).cast::<TheirCallbacks>();
            assert_eq!(callbacks.size, 16);
            for (module, expected) in [
                (0, None),
                (7, None),
                (-1, None),
                (2, Some(9)),
                (5, Some(16)),
                (6, Some(7)),
            ] {
                let (mut list, mut length) = (ptr::null_mut(), 0);
                let is_there = (callbacks.functions)(module, &raw mut list, &raw mut length) == 1;
                assert_eq!(is_there.then_some(length), expected, "module {module}");
            }
            let (mut list, mut length) = (ptr::null_mut(), 0);
            assert_eq!((callbacks.functions)(1, &raw mut list, &raw mut length), 1);
            assert_eq!(length, 16);
            let list = std::slice::from_raw_parts(list, 17);
            assert!(list[0].is_null() && list[16].is_null() && list[1..16].iter().all(|slot| !slot.is_null()));
            *list[9] = push as *mut c_void;
            *list[11] = pop as *mut c_void;
        }
        1
    }

    unsafe extern "C" fn refuse(_: ExportTables) -> c_int {
        0
    }

    #[test]
    fn a_tool_attaches_its_functions() {
        // SAFETY: both are tools of this test.
        unsafe {
            assert!(attach_to(refuse).is_none());
            let (push, pop) = attach_to(initialize).expect("the tool takes part");
            push(c"range".as_ptr());
            pop();
            pop();
        }
        assert_eq!((PUSHES.load(Ordering::Relaxed), POPS.load(Ordering::Relaxed)), (1, 2));
    }
}
