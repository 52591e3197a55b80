//! NCCL's functions, found at run time under NVIDIA's names for the library, those of a toolkit and of a Python wheel
//! alike.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::sync::OnceLock;

use libloading::Library as SharedObject;

use crate::cuda::CudaError;
use crate::cuda::libraries::looked_for;

/// The names that the library has. Packages for running programs have the first only.
const NAMES: [&str; 2] = ["libnccl.so.2", "libnccl.so"];
/// The oldest version with what is called here: non-blocking communicators.
const OLDEST: c_int = 21_400;

/// A communicator.
pub(super) type Comm = *mut c_void;
/// A CUDA stream.
pub(super) type Stream = *mut c_void;

/// What a function of NCCL returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Status(c_int);

impl Status {
    pub const SUCCESS: Self = Self(0);
    pub const IN_PROGRESS: Self = Self(7);
}

/// `ncclUniqueId`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(super) struct UniqueId(pub [u8; UniqueId::BYTES]);

impl UniqueId {
    pub const BYTES: usize = 128;
}

/// The first fields of `ncclConfig_t`, as they were in the first version that had it: a later library gives the others
/// their defaults.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
}

impl Config {
    /// Of a communicator whose calls return before they are done.
    pub fn non_blocking() -> Self {
        Self {
            size: size_of::<Self>(),
            magic: 0xcafe_beef,
            version: OLDEST as c_uint,
            blocking: 0,
        }
    }
}

/// `ncclDataType_t`.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(super) enum DataType {
    Uint8 = 1,
    Int32 = 2,
    Int64 = 4,
    Float16 = 6,
    Float32 = 7,
    Float64 = 8,
    Bfloat16 = 9,
}

/// `ncclRedOp_t`.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(super) enum Reduction {
    Sum = 0,
    Max = 2,
    Average = 4,
}

macro_rules! functions {
    ($($field:ident = $symbol:literal: fn($($argument:ty),*) -> $result:ty;)*) => {
        /// The functions, as `nccl.h` declares them.
        pub(super) struct Library {
            $(pub $field: unsafe extern "C" fn($($argument),*) -> $result,)*
            /// As the library says it: 22809 for 2.28.9.
            pub version: c_int,
            _object: SharedObject,
        }

        impl Library {
            /// Finds all functions.
            fn with_functions(object: SharedObject) -> Result<Self, libloading::Error> {
                // SAFETY: the symbols of NCCL have these types: see `nccl.h`.
                unsafe {
                    Ok(Self {
                        $($field: *object.get::<unsafe extern "C" fn($($argument),*) -> $result>($symbol)?,)*
                        version: 0,
                        _object: object,
                    })
                }
            }
        }
    };
}

functions! {
    get_version = c"ncclGetVersion": fn(*mut c_int) -> Status;
    get_unique_id = c"ncclGetUniqueId": fn(*mut UniqueId) -> Status;
    comm_init = c"ncclCommInitRankConfig": fn(*mut Comm, c_int, UniqueId, c_int, *mut Config) -> Status;
    comm_get_async_error = c"ncclCommGetAsyncError": fn(Comm, *mut Status) -> Status;
    comm_finalize = c"ncclCommFinalize": fn(Comm) -> Status;
    comm_destroy = c"ncclCommDestroy": fn(Comm) -> Status;
    comm_abort = c"ncclCommAbort": fn(Comm) -> Status;
    get_error_string = c"ncclGetErrorString": fn(Status) -> *const c_char;
    get_last_error = c"ncclGetLastError": fn(Comm) -> *const c_char;
    all_reduce = c"ncclAllReduce": fn(*const c_void, *mut c_void, usize, DataType, Reduction, Comm, Stream) -> Status;
    all_gather = c"ncclAllGather": fn(*const c_void, *mut c_void, usize, DataType, Comm, Stream) -> Status;
    reduce_scatter = c"ncclReduceScatter":
        fn(*const c_void, *mut c_void, usize, DataType, Reduction, Comm, Stream) -> Status;
    broadcast = c"ncclBroadcast": fn(*const c_void, *mut c_void, usize, DataType, c_int, Comm, Stream) -> Status;
    group_start = c"ncclGroupStart": fn() -> Status;
    group_end = c"ncclGroupEnd": fn() -> Status;
    send = c"ncclSend": fn(*const c_void, usize, DataType, c_int, Comm, Stream) -> Status;
    recv = c"ncclRecv": fn(*mut c_void, usize, DataType, c_int, Comm, Stream) -> Status;
}

impl std::fmt::Debug for Library {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Library")
            .field("version", &self.version)
            .finish()
    }
}

impl Library {
    /// Returns NCCL, opened once.
    ///
    /// # Errors
    /// [`CudaError::Missing`], with the names and places that were tried, or what the library lacks.
    pub fn find() -> Result<&'static Self, CudaError> {
        static FOUND: OnceLock<Result<Library, String>> = OnceLock::new();
        let found = FOUND.get_or_init(Self::open).as_ref();
        found.map_err(|looked| CudaError::Missing {
            what: "no NCCL, over which GPUs communicate",
            looked: looked.clone(),
            remedy: "put the folder of libnccl.so.2 on LD_LIBRARY_PATH, or build without the feature nccl",
        })
    }

    fn open() -> Result<Self, String> {
        // SAFETY: NVIDIA's library, whose initialisers only prepare itself.
        let object = NAMES
            .into_iter()
            .find_map(|name| unsafe { SharedObject::new(name) }.ok());
        let object = object.ok_or_else(|| looked_for(&NAMES.map(str::to_owned)))?;
        let mut library = Self::with_functions(object).map_err(|error| format!("it is too old or damaged: {error}"))?;
        let mut version = 0;
        // SAFETY: writes one number.
        let status = unsafe { (library.get_version)(&raw mut version) };
        if status != Status::SUCCESS || version < OLDEST {
            return Err(format!(
                "version {}, expected at least {}",
                dotted(version),
                dotted(OLDEST)
            ));
        }
        library.version = version;
        tracing::info!(version = dotted(version), "NCCL");
        Ok(library)
    }

    /// Returns the version as people write it.
    pub fn version_text(&self) -> String {
        dotted(self.version)
    }

    /// Returns what went wrong, in NCCL's words; `comm` may be null.
    pub fn describe(&self, status: Status, comm: Comm) -> String {
        let text = |pointer: *const c_char| {
            if pointer.is_null() {
                String::new()
            } else {
                // SAFETY: NCCL returns null or a string that ends with a zero and stays where it is.
                unsafe { CStr::from_ptr(pointer) }.to_string_lossy().trim().to_owned()
            }
        };
        // SAFETY: both take any status, and null for a communicator that is not there.
        let (kind, last) = unsafe { (text((self.get_error_string)(status)), text((self.get_last_error)(comm))) };
        if last.is_empty() {
            kind
        } else {
            format!("{kind} ({last})")
        }
    }
}

/// Returns a version as people write it.
fn dotted(version: c_int) -> String {
    format!("{}.{}.{}", version / 10_000, version / 100 % 100, version % 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_written_with_dots() {
        assert_eq!(dotted(22_809), "2.28.9");
        assert_eq!(dotted(OLDEST), "2.14.0");
    }

    #[test]
    fn the_configuration_is_that_of_the_header() {
        // The size that the first version of the structure had.
        assert_eq!(size_of::<Config>(), 24);
        assert_eq!(size_of::<UniqueId>(), 128);
    }
}
