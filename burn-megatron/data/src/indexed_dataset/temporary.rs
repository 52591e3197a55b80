//! `TemporaryFile`: a file that gets its name only when it is whole.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{IndexedDatasetError, with_suffix};

/// A file under a temporary name, removed when dropped.
///
/// The name is that of the file with `.tmp`: what a killed program left is overwritten by the next one. A lock keeps
/// two programs from writing the same file.
#[derive(Debug)]
pub(super) struct TemporaryFile {
    file: File,
    /// `None` once the file has its name, or never had one.
    path: Option<PathBuf>,
    target: PathBuf,
}

impl TemporaryFile {
    /// Creates an empty file that will be `target`.
    pub(super) fn create(target: &Path) -> Result<Self, IndexedDatasetError> {
        let path = with_suffix(target, ".tmp");
        let failed = |action| IndexedDatasetError::file(action, &path);
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
                .map_err(failed("create"))?;
            match file.try_lock() {
                // Some network file systems have no locks.
                Ok(()) | Err(TryLockError::Error(_)) => {}
                Err(TryLockError::WouldBlock) => return Err(IndexedDatasetError::Busy { path }),
            }
            // Between opening and locking, its writer may have renamed or removed it.
            if !is_at(&file, &path).map_err(failed("look up"))? {
                continue;
            }
            file.set_len(0).map_err(failed("empty"))?;
            return Ok(Self {
                file,
                path: Some(path),
                target: target.to_owned(),
            });
        }
    }

    /// Creates an empty file without a name, next to `target`: whatever happens, nothing of it is left.
    pub(super) fn create_unnamed(target: &Path) -> Result<Self, IndexedDatasetError> {
        let mut file = Self::create(target)?;
        let path = file.path.take().expect("just created");
        fs::remove_file(&path).map_err(IndexedDatasetError::file("remove", &path))?;
        Ok(file)
    }

    /// Returns the open file.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Returns the name that the file will have.
    pub(super) fn target(&self) -> &Path {
        &self.target
    }

    /// Waits until the disk has everything.
    pub(super) fn sync(&self) -> Result<(), IndexedDatasetError> {
        self.file
            .sync_all()
            .map_err(IndexedDatasetError::file("write", &self.target))
    }

    /// Gives the file its name.
    pub(super) fn rename(mut self) -> Result<(), IndexedDatasetError> {
        if let Some(path) = &self.path {
            fs::rename(path, &self.target).map_err(IndexedDatasetError::file("rename to", &self.target))?;
            self.path = None;
        }
        Ok(())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Nothing is left to do about a failure.
            let _ = fs::remove_file(path);
        }
    }
}

/// Removes a file if there is one.
pub(super) fn remove_if_present(path: &Path) -> Result<(), IndexedDatasetError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(IndexedDatasetError::file("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Waits until the disk has the names in the folder of a file.
pub(super) fn sync_folder(path: &Path) -> Result<(), IndexedDatasetError> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    File::open(folder)
        .and_then(|folder| folder.sync_all())
        .map_err(IndexedDatasetError::file("write", folder))
}

/// Returns whether an open file is the one of this name.
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    let open = file.metadata()?;
    match fs::metadata(path) {
        Ok(named) => Ok((open.dev(), open.ino()) == (named.dev(), named.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}
