//! The folder of one program's kernels: a file of those that are known, and a folder for each process that runs.
//!
//! A process holds a lock in its own folder for as long as it lives, and that of the common one while it looks at the
//! folders of others. Those that no process holds are taken over and removed.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::stored::{Kernels, MAX_BYTES};

/// The file that is locked, in both kinds of folders.
const LOCK: &str = "in_use";
/// How the names of processes' folders begin.
const PROCESS: &str = "process-";
/// Folders of other programs, architectures or versions that are kept: those used last.
const KEPT: usize = 7;
/// What must be free on the disk: CubeCL panics where it cannot write a kernel.
const FREE_BYTES: u64 = 2 * MAX_BYTES as u64;
/// Longest wait for other processes that start.
const LOCK_LIMIT: Duration = Duration::from_secs(20);

/// A process's folder.
#[derive(Debug)]
pub(super) struct Opened {
    /// For CubeCL.
    pub path: PathBuf,
    /// The kernels in it.
    pub kernels: usize,
    /// Held as long as the process uses it.
    pub lock: File,
}

/// Makes a folder for this process, with the kernels that others have compiled.
pub(super) fn open(root: &Path, key: &str) -> io::Result<Opened> {
    let folder = root.join(key);
    fs::create_dir_all(&folder)?;
    check_free(&folder, FREE_BYTES)?;
    let common = lock_within(&folder, LOCK_LIMIT)?;
    // By this, the folders used last are known.
    common.set_modified(SystemTime::now())?;
    let kernels = take_over(&folder)?;
    let (path, lock) = new_process(&folder)?;
    remove_old(root, key);
    drop(common);
    kernels.give_to_cubecl(&path);
    Ok(Opened {
        path,
        kernels: kernels.len(),
        lock,
    })
}

/// Checks that a folder's disk has room.
fn check_free(folder: &Path, expected: u64) -> io::Result<()> {
    let disk = rustix::fs::statvfs(folder)?;
    let free = disk.f_bavail.saturating_mul(disk.f_frsize);
    if free >= expected {
        return Ok(());
    }
    let mebibytes = |bytes: u64| bytes >> 20;
    let what = format!(
        "the disk of {} has {} MiB free, expected at least {} MiB",
        folder.display(),
        mebibytes(free),
        mebibytes(expected)
    );
    Err(io::Error::new(io::ErrorKind::StorageFull, what))
}

/// Returns all known kernels, after adding those of processes that have ended.
fn take_over(folder: &Path) -> io::Result<Kernels> {
    let mut kernels = Kernels::read(folder);
    let ended: Vec<PathBuf> = processes(folder)?.into_iter().filter(|path| has_ended(path)).collect();
    let mut has_new = false;
    for path in &ended {
        match kernels.add_from_cubecl(path) {
            Ok(added) => has_new |= added,
            Err(error) => tracing::debug!(path = %path.display(), %error, "a process's kernels cannot be read"),
        }
    }
    if has_new {
        kernels.write(folder)?;
    }
    for path in ended {
        fs::remove_dir_all(path)?;
    }
    Ok(kernels)
}

fn processes(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder)?.collect::<io::Result<Vec<_>>>()?;
    let is_process = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().starts_with(PROCESS);
    Ok(entries
        .iter()
        .filter(|entry| is_process(entry))
        .map(fs::DirEntry::path)
        .collect())
}

/// Whether no process holds a folder's lock.
fn has_ended(path: &Path) -> bool {
    try_lock(path).is_ok_and(|lock| lock.is_some())
}

fn new_process(folder: &Path) -> io::Result<(PathBuf, File)> {
    for number in 0.. {
        let path = folder.join(format!("{PROCESS}{}-{number}", std::process::id()));
        match fs::create_dir(&path) {
            Ok(()) => {
                let lock = lock_within(&path, LOCK_LIMIT)?;
                return Ok((path, lock));
            }
            // Of a process with the same number on another machine or in another container, or of one before.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
    unreachable!("a folder has fewer entries than there are numbers")
}

/// Removes the folders that have not been used for longest, except those in use.
fn remove_old(root: &Path, key: &str) {
    let Ok(entries) = fs::read_dir(root) else { return };
    let others = entries.flatten().filter(|entry| entry.file_name() != key);
    let mut others: Vec<(SystemTime, PathBuf)> = others
        .filter_map(|entry| {
            let used = entry.path().join(LOCK).metadata().ok()?.modified().ok()?;
            Some((used, entry.path()))
        })
        .collect();
    others.sort();
    for (_, path) in others.iter().rev().skip(KEPT) {
        if let Err(error) = remove_unused(path) {
            tracing::debug!(path = %path.display(), %error, "old kernels cannot be removed");
        }
    }
}

fn remove_unused(path: &Path) -> io::Result<()> {
    let Some(_lock) = try_lock(path)? else { return Ok(()) };
    if processes(path)?.iter().all(|process| has_ended(process)) {
        fs::remove_dir_all(path)?;
    }
    Ok(())
}

/// Locks a folder, unless another process has.
fn try_lock(folder: &Path) -> io::Result<Option<File>> {
    let file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(folder.join(LOCK))?;
    match file.try_lock() {
        Ok(()) => Ok(Some(file)),
        Err(TryLockError::WouldBlock) => Ok(None),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn lock_within(folder: &Path, limit: Duration) -> io::Result<File> {
    let started = Instant::now();
    loop {
        if let Some(lock) = try_lock(folder)? {
            return Ok(lock);
        }
        if started.elapsed() > limit {
            let what = format!("{} is locked by another process for {limit:?}", folder.display());
            return Err(io::Error::new(io::ErrorKind::TimedOut, what));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_runs_keeps_its_folder_and_one_that_has_ended_does_not() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let first = open(root.path(), "a").expect("the folder is writable");
        let second = open(root.path(), "a").expect("the folder is writable");
        assert!(first.path.is_dir() && first.path != second.path);
        drop(first.lock);
        let third = open(root.path(), "a").expect("the folder is writable");
        assert!(second.path.is_dir() && third.path.is_dir());
        assert!(!first.path.is_dir() || first.path == third.path);
    }

    #[test]
    fn folders_used_long_ago_are_removed_unless_a_process_runs() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let used = open(root.path(), "used").expect("the folder is writable");
        for number in 0..=KEPT {
            drop(open(root.path(), &format!("old-{number}")).expect("the folder is writable"));
        }
        drop(open(root.path(), "new").expect("the folder is writable"));
        let left = |name: &str| root.path().join(name).is_dir();
        assert!(left("used") && left("new") && used.path.is_dir());
        assert!(!left("old-0"), "it was used first");
        assert!((1..=KEPT).all(|number| left(&format!("old-{number}"))));
    }

    #[test]
    fn a_disk_without_room_is_named_with_what_it_has() {
        let root = tempfile::tempdir().expect("a temporary folder");
        check_free(root.path(), 1).expect("a byte is free");
        let error = check_free(root.path(), u64::MAX).expect_err("no disk has as much");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(
            error.to_string().contains(&root.path().display().to_string()),
            "{error}"
        );
    }

    #[test]
    fn a_folder_that_others_hold_is_waited_for_and_then_named() {
        let root = tempfile::tempdir().expect("a temporary folder");
        let held = lock_within(root.path(), LOCK_LIMIT).expect("no other holds it");
        let error = lock_within(root.path(), Duration::from_millis(20)).expect_err("it is held");
        assert!(
            error.to_string().contains(&root.path().display().to_string()),
            "{error}"
        );
        drop(held);
        lock_within(root.path(), LOCK_LIMIT).expect("no other holds it");
    }
}
