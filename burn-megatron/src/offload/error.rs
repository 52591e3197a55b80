//! What can go wrong with a file of offloaded tensors.

use std::io;
use std::path::PathBuf;

use super::Offloaded;

/// What can go wrong with a file of offloaded tensors, or with what is asked of it.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum OffloadError {
    /// A folder that is not there, or in which no file can be made.
    #[error(
        "no file for {what} can be made in {path}, which --nvme-path names: {source}",
        path = .path.display()
    )]
    Folder {
        what: Offloaded,
        path: PathBuf,
        source: io::Error,
    },
    #[error(
        "{what} of rank {rank} would take {needed} bytes of {path}, which --nvme-path names and which has {available} \
         bytes free: name a folder on a larger disk, or offload less ({flag})",
        path = .path.display(),
        flag = .what.flag_for_less()
    )]
    NoSpace {
        what: Offloaded,
        path: PathBuf,
        rank: usize,
        needed: u64,
        available: u64,
    },
    /// A read or a write that failed, such as one of a disk that has become full.
    #[error(
        "cannot {action} {bytes} bytes at {offset} of {path}, the file of {what} (already unlinked; it \
         is freed when the process ends): {source}",
        path = .path.display()
    )]
    Transfer {
        what: Offloaded,
        /// Read or write.
        action: &'static str,
        /// The file, by the name that it was made with.
        path: PathBuf,
        offset: u64,
        bytes: usize,
        source: io::Error,
    },
    #[error(
        "Muon's state cannot be offloaded, for it updates whole matrices: leave out \
         --offload-optimizer and --optimizer-cpu-offload, or train without muon"
    )]
    WholeMatrices,
    #[error(
        "Adafactor's state cannot be offloaded, for it updates by sums over whole parameters: leave out \
         --offload-optimizer and --optimizer-cpu-offload, or train without adafactor"
    )]
    WholeParameters,
    #[error("the share of the optimizer that is offloaded must be from 0 to 1, got {fraction}")]
    Fraction { fraction: f64 },
}
