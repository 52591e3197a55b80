//! [`open_file`]: opens what somebody has left in a folder.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a file for reading.
///
/// # Errors
/// When the operating system refuses, or the path is not a regular file. Opening a pipe does not block.
pub fn open_file(path: &Path) -> io::Result<File> {
    // Has no effect on regular files. Without it, opening a pipe waits for a writer.
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "expected a file"))
    }
}
