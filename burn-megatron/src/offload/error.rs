//! What can go wrong with a file of offloaded tensors.

use std::io;
use std::path::PathBuf;

use super::Offloaded;

/// What can go wrong with a file of offloaded tensors, or with what is asked of it.
#[derive(Debug, thiserror::Error)]
pub enum OffloadError {
    /// A folder that is not there, or in which no file can be made.
    #[error(
        "no file for {what} can be made in {path}, which --nvme-path names: {source}",
        path = .path.display()
    )]
    Folder {
        /// What is to be in it.
        what: Offloaded,
        /// The folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A disk that is too small.
    #[error(
        "{what} of rank {rank} would take {needed} bytes of {path}, which --nvme-path names and which has {available} \
         bytes free: name a folder on a larger disk, or offload less ({flag})",
        path = .path.display(),
        flag = .what.flag_for_less()
    )]
    NoSpace {
        /// What was to be in it.
        what: Offloaded,
        /// The folder.
        path: PathBuf,
        /// Whose it is.
        rank: usize,
        /// Bytes of the file.
        needed: u64,
        /// Bytes that are free.
        available: u64,
    },
    /// A read or a write that failed, such as one of a disk that has become full.
    #[error(
        "cannot {action} {bytes} bytes at {offset} of {path}, the file of {what} (already unlinked; it \
         is freed when the process ends): {source}",
        path = .path.display()
    )]
    Transfer {
        /// What is in the file.
        what: Offloaded,
        /// Read or write.
        action: &'static str,
        /// The file, by the name that it was made with.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// How many.
        bytes: usize,
        /// What the system says.
        source: io::Error,
    },
    /// An optimizer of whole matrices, whose momentum is to be updated elsewhere.
    #[error(
        "Muon's state cannot be offloaded, for it updates whole matrices: leave out \
         --offload-optimizer and --optimizer-cpu-offload, or train without muon"
    )]
    WholeMatrices,
    /// An optimizer of sums over whole parameters.
    #[error(
        "Adafactor's state cannot be offloaded, for it updates by sums over whole parameters: leave out \
         --offload-optimizer and --optimizer-cpu-offload, or train without adafactor"
    )]
    WholeParameters,
    /// A share that is none.
    #[error("the share of the optimizer that is offloaded must be from 0 to 1, got {fraction}")]
    Fraction {
        /// What was given.
        fraction: f64,
    },
}
