//! [`TensorBoardError`].

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why an event file cannot be written.
#[derive(Debug, Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum TensorBoardError {
    #[error("cannot make the folder {} for TensorBoard: {source}", path.display())]
    Folder { path: PathBuf, source: io::Error },
    #[error("cannot create the event file {}: {source}", path.display())]
    Create { path: PathBuf, source: io::Error },
    /// The file cannot be written on, as on a full disk.
    #[error("cannot write to the event file {}: {source}", path.display())]
    Write { path: PathBuf, source: io::Error },
    #[error("cannot start the thread that writes {}: {source}", path.display())]
    Thread { path: PathBuf, source: io::Error },
}
