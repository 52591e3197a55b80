//! [`TensorBoardError`].

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why an event file cannot be written.
#[derive(Debug, Error)]
pub enum TensorBoardError {
    /// The folder is not there and cannot be made.
    #[error("cannot make the folder {} for TensorBoard: {source}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file cannot be created.
    #[error("cannot create the event file {}: {source}", path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file cannot be written on, as on a full disk.
    #[error("cannot write to the event file {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// No thread for the writer.
    #[error("cannot start the thread that writes {}: {source}", path.display())]
    Thread {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}
