//! Names and changes of folders: which checkpoints there are, the lock, the temporary folder and how it takes its
//! place.
//!
//! A checkpoint comes to be by one rename, so that a folder of the right name is whole whenever a process is killed.

use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::error::CheckpointError;
use super::index::INDEX_NAME;
use crate::launch::{host_identity, host_name};

const LOCK_NAME: &str = ".lock";
/// The most that is read of a lock file.
const MAX_HOLDER_BYTES: u64 = 256;

/// Returns the name of the folder of an iteration.
pub(super) fn iteration_name(iteration: u64) -> String {
    format!("iter_{iteration:07}")
}

/// Returns the iteration of a folder's name.
pub(super) fn parse_iteration(name: &str) -> Option<u64> {
    let iteration = name.strip_prefix("iter_")?.parse().ok()?;
    (iteration_name(iteration) == name).then_some(iteration)
}

/// Returns the checkpoints in a folder, by iteration, ascending; none where there is no folder.
///
/// They go by their names alone: each has come to be whole, and what has been damaged since is for its reader to tell.
///
/// # Errors
/// The folder is a file, or cannot be read.
pub(super) fn list_checkpoints(directory: &Path) -> Result<Vec<(u64, PathBuf)>, CheckpointError> {
    let entries = entries(directory)?.into_iter();
    let mut found: Vec<(u64, PathBuf)> = entries
        .filter_map(|(name, path)| Some((parse_iteration(&name)?, path)))
        .collect();
    found.sort_unstable();
    Ok(found)
}

/// Returns names and paths of what is in a folder; nothing where there is no folder.
fn entries(directory: &Path) -> Result<Vec<(String, PathBuf)>, CheckpointError> {
    let listing = match fs::read_dir(directory) {
        Ok(listing) => listing,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => {
            return Err(CheckpointError::NotAFolder {
                path: directory.to_owned(),
                expected: "the folder of checkpoints that was given to a save",
            });
        }
        Err(error) => return Err(CheckpointError::file("list", directory)(error)),
    };
    let named = listing.map(|entry| {
        let entry = entry.map_err(CheckpointError::file("list", directory))?;
        Ok((entry.file_name().to_string_lossy().into_owned(), entry.path()))
    });
    named.collect()
}

/// The folder of a run's checkpoints, held against other runs until it is dropped.
#[derive(Debug)]
pub(super) struct SaveDirectory {
    path: PathBuf,
    /// Locked as long as it is open.
    _lock: File,
}

impl SaveDirectory {
    /// Makes the folder if it is not there, locks it, and removes what killed runs have left, as far as it can be
    /// removed.
    ///
    /// # Errors
    /// Another run holds it; something else is in its place; it cannot be written to.
    pub fn hold(path: &Path) -> Result<Self, CheckpointError> {
        let not_a_folder = || CheckpointError::NotAFolder {
            path: path.to_owned(),
            expected: "a folder to save to, or nothing",
        };
        if path.exists() && !path.is_dir() {
            return Err(not_a_folder());
        }
        make_folder(path, sync_folder).map_err(|error| match &error {
            CheckpointError::File { source, .. } if source.kind() == io::ErrorKind::NotADirectory => not_a_folder(),
            _ => error,
        })?;
        let lock = lock(path)?;
        remove_leftovers(path)?;
        Ok(Self {
            path: path.to_owned(),
            _lock: lock,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns what has the name of an iteration's checkpoint, if there is something.
    pub fn checkpoint_of(&self, iteration: u64) -> Option<PathBuf> {
        let place = self.path.join(iteration_name(iteration));
        place.symlink_metadata().is_ok().then_some(place)
    }

    /// Makes a folder for a checkpoint that is being written.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn begin(&self, iteration: u64) -> Result<Draft, CheckpointError> {
        let random = getrandom::u64()
            .map_err(|error| CheckpointError::file("name a folder at random in", &self.path)(error.into()))?;
        let name = Temporary::Partial.name(iteration, random);
        let path = self.path.join(&name);
        fs::create_dir(&path).map_err(CheckpointError::file("make folder", &path))?;
        Ok(Draft {
            name,
            path,
            iteration,
            random,
        })
    }

    /// Puts a draft, which is complete, in its place. One that is there already is replaced.
    ///
    /// # Errors
    /// The operating system refuses. What was there before still is, except where a file system cannot exchange two
    /// folders (some network file systems) and the process is killed between two renames: then the next run puts it
    /// back.
    pub fn commit(&self, draft: Draft) -> Result<PathBuf, CheckpointError> {
        self.commit_with(draft, exchange)
    }

    fn commit_with(
        &self,
        draft: Draft,
        exchange: impl FnOnce(&Path, &Path) -> io::Result<bool>,
    ) -> Result<PathBuf, CheckpointError> {
        let place = self.path.join(iteration_name(draft.iteration));
        let refused = || CheckpointError::file("rename the finished checkpoint to", &place);
        sync_folder(&draft.path)?;
        if !place.exists() {
            fs::rename(&draft.path, &place).map_err(refused())?;
        } else if !place.is_dir() {
            return Err(CheckpointError::NotAFolder {
                path: place,
                expected: "a checkpoint to replace, or nothing",
            });
        } else if !exchange(&draft.path, &place).map_err(refused())? {
            let aside = self.path.join(Temporary::Replaced.name(draft.iteration, draft.random));
            fs::rename(&place, &aside).map_err(refused())?;
            fs::rename(&draft.path, &place).map_err(refused())?;
            sync_folder(&self.path)?;
            remove_or_warn(&aside);
        }
        sync_folder(&self.path)?;
        // After an exchange the draft's path holds what was replaced; dropping the draft removes it.
        drop(draft);
        Ok(place)
    }

    /// Returns the checkpoint of the highest iteration, if that is above `iteration`.
    ///
    /// # Errors
    /// The folder cannot be read.
    pub fn later_than(&self, iteration: u64) -> Result<Option<PathBuf>, CheckpointError> {
        let highest = list_checkpoints(&self.path)?.pop();
        Ok(highest.filter(|(found, _)| *found > iteration).map(|(_, path)| path))
    }

    /// Removes the oldest checkpoints up to the iteration just written, but for the `keep` newest of them, at least
    /// one.
    ///
    /// Those of later iterations are another run's, or of a time to which this run has gone back: they do not count and
    /// stay. So do folders without an index, which are for people to look at.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn prune(&self, keep: usize, written: u64) -> Result<(), CheckpointError> {
        let mut found = list_checkpoints(&self.path)?;
        found.retain(|(iteration, path)| {
            let is_whole = path.join(INDEX_NAME).is_file();
            if !is_whole {
                tracing::warn!(path = %path.display(), "it has no {INDEX_NAME}: it is no checkpoint that counts, and \
                                                        stays");
            }
            is_whole && *iteration <= written
        });
        let beyond = found.len().saturating_sub(keep.max(1));
        for (iteration, path) in found.into_iter().take(beyond) {
            // Renamed first, so that a kill leaves no folder that looks like a checkpoint and is none.
            let aside = self.path.join(Temporary::Partial.name(iteration, written));
            fs::rename(&path, &aside).map_err(CheckpointError::file("remove", &path))?;
            remove_or_warn(&aside);
        }
        Ok(())
    }
}

/// A checkpoint that is being written. Dropping it removes it.
#[derive(Debug)]
pub(super) struct Draft {
    pub name: String,
    pub path: PathBuf,
    iteration: u64,
    random: u64,
}

impl Drop for Draft {
    fn drop(&mut self) {
        if self.path.exists() {
            remove_or_warn(&self.path);
        }
    }
}

fn remove_or_warn(path: &Path) {
    if let Err(error) = fs::remove_dir_all(path) {
        tracing::warn!(path = %path.display(), %error, "a temporary folder stays until a later run can remove it");
    }
}

/// What a hidden folder is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Temporary {
    /// Being written, or being removed.
    Partial,
    /// Moved out of the way of its successor.
    Replaced,
}

impl Temporary {
    fn name(self, iteration: u64, random: u64) -> String {
        let kind = match self {
            Temporary::Partial => "partial",
            Temporary::Replaced => "replaced",
        };
        format!(".{}.{kind}-{random:016x}", iteration_name(iteration))
    }

    /// Returns what a name says, if it is one of ours.
    fn parse(name: &str) -> Option<(Self, u64)> {
        let (iteration, rest) = name.strip_prefix('.')?.split_once('.')?;
        let iteration = parse_iteration(iteration)?;
        let (_, random) = rest.split_once('-')?;
        let random = u64::from_str_radix(random, 16).ok()?;
        [Temporary::Partial, Temporary::Replaced]
            .into_iter()
            .find(|kind| kind.name(iteration, random) == name)
            .map(|kind| (kind, iteration))
    }
}

/// Removes the folders of killed runs, where it can; the lock must be held. One that was moved aside for a successor
/// which never came goes back.
fn remove_leftovers(directory: &Path) -> Result<(), CheckpointError> {
    for (name, path) in entries(directory)? {
        let Some((kind, iteration)) = Temporary::parse(&name) else {
            continue;
        };
        let place = directory.join(iteration_name(iteration));
        if kind == Temporary::Replaced && !place.exists() {
            fs::rename(&path, &place).map_err(CheckpointError::file("put back", &path))?;
        } else {
            // Such as one on a network file system of which a reader still has files open.
            remove_or_warn(&path);
        }
    }
    Ok(())
}

/// Makes a folder, and those above it, where they are missing. `sync` brings the names in a folder down to the disk: it
/// gets each folder in which one was made, or a checkpoint could be whole on the disk and in no folder that is.
fn make_folder(path: &Path, mut sync: impl FnMut(&Path) -> Result<(), CheckpointError>) -> Result<(), CheckpointError> {
    let is_missing = |folder: &&Path| !folder.as_os_str().is_empty() && !folder.exists();
    let missing: Vec<&Path> = path.ancestors().take_while(is_missing).collect();
    fs::create_dir_all(path).map_err(CheckpointError::file("make folder", path))?;
    for folder in missing.into_iter().rev() {
        let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty());
        sync(parent.unwrap_or(Path::new(".")))?;
    }
    Ok(())
}

fn lock(directory: &Path) -> Result<File, CheckpointError> {
    let path = directory.join(LOCK_NAME);
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.open(&path).map_err(CheckpointError::file("open", &path))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut holder = String::new();
            // The holder may be writing its name just now.
            let _ = file.take(MAX_HOLDER_BYTES).read_to_string(&mut holder);
            let holder = match holder.trim() {
                "" => "a process that has not said its name".to_owned(),
                holder => holder.to_owned(),
            };
            return Err(CheckpointError::Locked {
                directory: directory.to_owned(),
                holder,
            });
        }
        Err(TryLockError::Error(error)) => return Err(CheckpointError::file("lock", &path)(error)),
    }
    let host = host_identity();
    let holder = format!("process {} on host {}\n", std::process::id(), host_name(&host));
    let write = || {
        file.set_len(0)?;
        (&file).write_all(holder.as_bytes())?;
        file.sync_all()
    };
    write().map_err(CheckpointError::file("write", &path))?;
    Ok(file)
}

/// Exchanges two folders in one step; false where the file system cannot.
fn exchange(first: &Path, second: &Path) -> io::Result<bool> {
    match renameat_with(CWD, first, CWD, second, RenameFlags::EXCHANGE) {
        Ok(()) => Ok(true),
        Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Brings the names in a folder down to the disk.
fn sync_folder(path: &Path) -> Result<(), CheckpointError> {
    let sync = || File::open(path)?.sync_all();
    sync().map_err(CheckpointError::file("sync folder", path))
}

#[cfg(test)]
mod tests;
