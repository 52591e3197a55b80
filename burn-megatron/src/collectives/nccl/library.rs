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
/// The first version that takes a bound on the thread blocks of its kernels.
const WITH_CTAS: c_int = 21_700;

/// The first version that takes several ranks on one GPU, where this variable is 1.
const WITH_SHARED_GPUS: (c_int, &str) = (23_000, "NCCL_MULTI_RANK_GPU_ENABLE");

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

/// The first fields of `ncclConfig_t`, as they are since 2.18: a later library gives the others their defaults, and an
/// earlier one reads those that it knows.
#[repr(C)]
pub(super) struct Config {
    size: usize,
    magic: c_uint,
    version: c_uint,
    blocking: c_int,
    cluster_size: c_int,
    min_ctas: c_int,
    max_ctas: c_int,
    net_name: *const c_char,
    split_share: c_int,
    /// A field of 2.25, which the version above excludes.
    traffic_class: c_int,
}

impl Config {
    /// The value of a field that is not set.
    const UNDEFINED: c_int = c_int::MIN;
    /// The size in the versions before [`WITH_CTAS`], which end with `blocking`.
    const SHORT: usize = 24;

    /// Returns that of a communicator of this version of NCCL whose calls return before they are done, and whose
    /// kernels have at most `max_ctas` thread blocks; versions before [`WITH_CTAS`] do not bound them.
    pub fn non_blocking(version: c_int, max_ctas: u16) -> Self {
        let (size, version) = if version < WITH_CTAS {
            (Self::SHORT, OLDEST)
        } else {
            (size_of::<Self>(), WITH_CTAS)
        };
        Self {
            size,
            magic: 0xcafe_beef,
            version: version as c_uint,
            blocking: 0,
            cluster_size: Self::UNDEFINED,
            min_ctas: Self::UNDEFINED,
            max_ctas: max_ctas.into(),
            net_name: std::ptr::null(),
            split_share: Self::UNDEFINED,
            traffic_class: Self::UNDEFINED,
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
        if version < WITH_CTAS {
            tracing::warn!(
                "NCCL {} does not bound the multiprocessors of each communicator, as {} and later do: set \
                 NCCL_MAX_NCHANNELS=4 if a pipeline hangs",
                dotted(version),
                dotted(WITH_CTAS)
            );
        }
        Ok(library)
    }

    /// Returns whether it takes several ranks on one GPU.
    pub fn takes_shared_gpus(&self) -> bool {
        let (version, variable) = WITH_SHARED_GPUS;
        self.version >= version && std::env::var(variable).is_ok_and(|value| value == "1")
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
pub(super) fn dotted(version: c_int) -> String {
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
        assert_eq!(size_of::<Config>(), 48);
        // The first version of the structure, and the one that bounds the blocks, of which 2.17 has no more.
        assert_eq!(
            std::mem::offset_of!(Config, cluster_size),
            Config::non_blocking(OLDEST, 4).size - 4
        );
        assert_eq!(std::mem::offset_of!(Config, split_share), 40);
        let config = Config::non_blocking(22_809, 4);
        assert_eq!((config.size, config.version, config.max_ctas), (48, 21_700, 4));
        assert_eq!((config.min_ctas, config.cluster_size), (c_int::MIN, c_int::MIN));
        assert_eq!(size_of::<UniqueId>(), 128);
    }
}
