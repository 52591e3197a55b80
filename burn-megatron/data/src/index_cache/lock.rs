//! `FolderLock`: one builder at a time.

use std::fs::{File, OpenOptions, TryLockError};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use crate::samples::SampleError;

const POLL: Duration = Duration::from_millis(20);

/// The lock of a file, until it is dropped or the process ends, however it ends.
pub(super) struct FolderLock {
    /// `None` if the file system has no locks. Then several processes may build the same index, and the last one's
    /// stays.
    file: Option<File>,
}

impl FolderLock {
    /// Takes the lock, for which the file is made; it stays, as removing it would let two processes hold it.
    ///
    /// # Errors
    /// The file cannot be made, or another process holds the lock for `timeout`.
    pub(super) fn take(path: &Path, timeout: Duration) -> Result<Self, SampleError> {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path);
        let file = file.map_err(SampleError::cache("create", path))?;
        let start = Instant::now();
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(Self { file: Some(file) }),
                Err(TryLockError::Error(_)) => return Ok(Self { file: None }),
                Err(TryLockError::WouldBlock) if start.elapsed() >= timeout => {
                    return Err(SampleError::CacheLocked {
                        path: path.to_path_buf(),
                        waited: timeout,
                    });
                }
                Err(TryLockError::WouldBlock) => thread::sleep(POLL),
            }
        }
    }

    /// Whether no other process has the lock: not known where the file system has none.
    pub(super) fn is_exclusive(&self) -> bool {
        self.file.is_some()
    }
}
