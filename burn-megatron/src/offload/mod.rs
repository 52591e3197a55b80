//! Tensors that are not where the module is: in host memory, or in a file.
//!
//! In a file, those of a bucket are read and written together: the next bucket's are read and those of the one before
//! it written while one is in use, so that memory holds those of three buckets.
//!
//! In order of who uses whom: a `Buffer` that disks take, `Transfers` of one, on threads or by the kernel's io_uring,
//! the `OffloadFile` that they are of, what is where in it (`FileLayout`), the buckets that come and go
//! (`DiskTensors`), and the tensors there or in memory (`TensorStore`).

mod buffer;
mod disk;
mod error;
mod layout;
mod offload_file;
mod ring;
mod tensor_store;
mod transfers;

use std::fmt;

pub use error::OffloadError;
pub(crate) use offload_file::check_folder;
pub(crate) use tensor_store::{PieceTensors, TensorStore, part_of};

/// What is offloaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offloaded {
    /// The optimizer's state, main values included.
    OptimizerState,
    /// This rank's shards of the parameters.
    Parameters,
}

impl Offloaded {
    /// The flag that offloads less of it.
    fn flag_for_less(self) -> &'static str {
        match self {
            Self::OptimizerState => "--optimizer-offload-fraction",
            Self::Parameters => "--offload-param cpu",
        }
    }

    /// What its file is called while it has a name.
    fn file_name(self) -> &'static str {
        match self {
            Self::OptimizerState => "optimizer-state",
            Self::Parameters => "parameters",
        }
    }
}

impl fmt::Display for Offloaded {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::OptimizerState => "the optimizer's state",
            Self::Parameters => "the parameters",
        })
    }
}
