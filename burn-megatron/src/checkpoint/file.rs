//! [`open_file`]: opens what somebody has left in a folder. Called for the index and for shards, and by readers of
//! other formats.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a file for reading.
///
/// # Errors
/// The operating system refuses; something that is no regular file is there, such as a pipe, which nobody waits for.
pub fn open_file(path: &Path) -> io::Result<File> {
    // Of no effect on files; without it, opening a pipe waits for somebody to write to it.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "expected a file"))
    }
}
