//! Index arrays that one process builds and all others map: files in a folder, named after what they are an index of.
//!
//! A file's name is the SHA-256 of its description, which has everything that the arrays depend on. It is written to a
//! temporary name, synchronised and renamed, so it is there whole or not at all; of processes that want it at the same
//! time one builds, under a lock, and the others wait. A file that is cut off, changed or of something else is built
//! again: its description, the lengths of its arrays and the checksums of their contents must be right.

mod array;
mod file;
mod lock;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

pub(crate) use array::IndexArray;
pub(crate) use file::{ArrayLayout, IndexFile, IndexWriter};

use crate::hexadecimal;
use crate::samples::SampleError;
use lock::FolderLock;

/// A folder of index files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexCache {
    folder: PathBuf,
    lock_timeout: Duration,
}

impl IndexCache {
    /// How long a process waits for another that builds the same index: a billion samples take minutes.
    pub const DEFAULT_LOCK_TIMEOUT: Duration = Duration::from_secs(30 * 60);

    /// Returns the cache in `folder`, which is made with the first index.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            lock_timeout: Self::DEFAULT_LOCK_TIMEOUT,
        }
    }

    /// Returns the cache in the folder `{prefix}/cache`, where Megatron-LM has it if none is named.
    pub fn next_to(prefix: &Path) -> Self {
        Self::new(prefix.join("cache"))
    }

    /// Returns the cache with another wait for a process that builds the same index.
    pub fn with_lock_timeout(self, lock_timeout: Duration) -> Self {
        Self { lock_timeout, ..self }
    }

    /// Returns the folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Returns the path of the index of this description.
    pub(crate) fn path(&self, kind: &str, description: &str) -> PathBuf {
        let name = hexadecimal(&Sha256::digest(description));
        self.folder.join(format!("{name}-{kind}.index"))
    }

    /// Maps the index of this description; if there is none, or none that is whole, `build` writes it first.
    pub(crate) fn open_or_build(
        &self,
        kind: &str,
        description: &str,
        layout: &[ArrayLayout],
        build: impl FnOnce(&mut IndexWriter) -> Result<(), SampleError>,
    ) -> Result<IndexFile, SampleError> {
        let path = self.path(kind, description);
        if let Some(index) = IndexFile::open(&path, description, layout)? {
            return Ok(index);
        }
        fs::create_dir_all(&self.folder).map_err(SampleError::cache("create", &self.folder))?;
        let lock = FolderLock::take(&path.with_extension("lock"), self.lock_timeout)?;
        // Another process may have built it in the meantime.
        if let Some(index) = IndexFile::open(&path, description, layout)? {
            return Ok(index);
        }
        if lock.is_exclusive() {
            remove_leftovers(&path);
        }
        let mut writer = IndexWriter::create(&path, description, layout)?;
        build(&mut writer)?;
        writer.finish()?;
        // The name too must outlast a power cut.
        let synchronised = File::open(&self.folder).and_then(|folder| folder.sync_all());
        synchronised.map_err(SampleError::cache("synchronise", &self.folder))?;
        let index = IndexFile::open(&path, description, layout)?;
        index.ok_or_else(|| {
            let changed = std::io::Error::other("it is not what has been written a moment ago");
            SampleError::cache("read", &path)(changed)
        })
    }
}

/// Removes what processes that were killed have left of this index. Only the holder of the lock may.
fn remove_leftovers(path: &Path) {
    let (Some(folder), Some(stem)) = (path.parent(), path.file_stem()) else {
        return;
    };
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name();
        let name = Path::new(&name);
        if name.extension().is_some_and(|extension| extension == "tmp")
            && name.as_os_str().as_encoded_bytes().starts_with(stem.as_encoded_bytes())
        {
            // One that cannot be removed takes space, nothing else.
            let _ = fs::remove_file(entry.path());
        }
    }
}

#[cfg(test)]
mod tests;
