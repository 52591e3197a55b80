//! [`OffloadFile`]: a rank's file for offloaded tensors. It has a name only while it is made, so that it goes with the
//! process, whatever ends that.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Once};

use rustix::fs::{FallocateFlags, OFlags, fallocate, fcntl_getfl, fcntl_setfl, fstatvfs};
use rustix::io::Errno;

use super::buffer::{ALIGNMENT, Buffer};
use super::ring::OnRing;
use super::transfers::{Direction, OnThreads, Ticket, Transfer, Transfers};
use super::{OffloadError, Offloaded};

/// A file that is read and written in whole blocks while something else is computed.
pub(super) struct OffloadFile {
    what: Offloaded,
    /// What it was called.
    path: PathBuf,
    file: Arc<File>,
    transfers: Box<dyn Transfers>,
}

impl OffloadFile {
    /// Makes the file of a rank in a folder, with room for some bytes, all 0.
    ///
    /// # Errors
    /// When there is no such folder, no file can be made or written in it, or its disk has less room.
    pub fn create(what: Offloaded, folder: &Path, rank: usize, bytes: u64) -> Result<Self, OffloadError> {
        let of_folder = |source: io::Error| OffloadError::Folder {
            what,
            path: folder.to_owned(),
            source,
        };
        let (path, file) = new_file(what, folder, rank).map_err(of_folder)?;
        // The file stays until it is closed.
        std::fs::remove_file(&path).map_err(of_folder)?;
        let bytes = bytes.max(ALIGNMENT as u64);
        allocate(&file, bytes).map_err(|error| match error {
            AllocationError::NoSpace { available } => OffloadError::NoSpace {
                what,
                path: folder.to_owned(),
                rank,
                needed: bytes,
                available,
            },
            AllocationError::Other(error) => OffloadError::Transfer {
                what,
                action: "reserve",
                path: path.clone(),
                offset: 0,
                bytes: bytes as usize,
                source: error.into(),
            },
        })?;
        let file = Arc::new(file);
        let mut reasons = Vec::new();
        let transfers: Box<dyn Transfers> = match OnRing::new(&file) {
            Ok(ring) => Box::new(ring),
            Err(error) => {
                reasons.push(format!(
                    "threads read and write it, for this kernel or sandbox has no io_uring ({error})"
                ));
                Box::new(OnThreads::new(&file).map_err(of_folder)?)
            }
        };
        let mut made = Self {
            what,
            path,
            file,
            transfers,
        };
        if let Err(error) = made.set_direct(true).and_then(|()| made.try_block()) {
            reasons.push(format!(
                "it goes through the page cache, for its file system takes no O_DIRECT ({error})"
            ));
            let _ = made.set_direct(false);
            made.try_block().map_err(of_folder)?;
        }
        warn_once(what, &made.path, rank, &reasons);
        Ok(made)
    }

    fn set_direct(&self, is_direct: bool) -> io::Result<()> {
        let mut flags = fcntl_getfl(&*self.file)?;
        flags.set(OFlags::DIRECT, is_direct);
        Ok(fcntl_setfl(&*self.file, flags)?)
    }

    /// Writes the first block, and reads it.
    fn try_block(&mut self) -> io::Result<()> {
        for direction in [Direction::Write, Direction::Read] {
            let (offset, buffer) = (0, Buffer::new(ALIGNMENT));
            let ticket = self.transfers.start(Transfer {
                direction,
                offset,
                buffer,
            });
            self.transfers.wait(ticket).1?;
        }
        Ok(())
    }

    /// Starts to fill a buffer from a place on. Place and length are multiples of [`ALIGNMENT`].
    pub fn read_start(&mut self, offset: u64, buffer: Buffer) -> Ticket {
        let direction = Direction::Read;
        self.transfers.start(Transfer {
            direction,
            offset,
            buffer,
        })
    }

    /// Starts to write a buffer from a place on. Place and length are multiples of [`ALIGNMENT`].
    pub fn write_start(&mut self, offset: u64, buffer: Buffer) -> Ticket {
        let direction = Direction::Write;
        self.transfers.start(Transfer {
            direction,
            offset,
            buffer,
        })
    }

    /// Waits for a transfer, and returns its buffer.
    ///
    /// # Errors
    /// When it has failed.
    pub fn wait(&mut self, ticket: Ticket) -> Result<Buffer, OffloadError> {
        let (transfer, result) = self.transfers.wait(ticket);
        let Transfer {
            direction,
            offset,
            buffer,
        } = transfer;
        match result {
            Ok(()) => Ok(buffer),
            Err(error) => Err(self.failed(direction, offset, buffer.bytes().len(), error)),
        }
    }

    /// Returns some bytes, wherever they are. Nothing of them may be on its way.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn read_now(&self, offset: u64, length: usize) -> Result<Vec<u8>, OffloadError> {
        let begin = offset / ALIGNMENT as u64 * ALIGNMENT as u64;
        let before = (offset - begin) as usize;
        let mut blocks = Buffer::new((before + length).next_multiple_of(ALIGNMENT));
        let result = self.file.read_exact_at(blocks.bytes_mut(), begin);
        result.map_err(|error| self.failed(Direction::Read, offset, length, error))?;
        Ok(blocks.bytes()[before..before + length].to_vec())
    }

    fn failed(&self, direction: Direction, offset: u64, bytes: usize, source: io::Error) -> OffloadError {
        OffloadError::Transfer {
            what: self.what,
            action: match direction {
                Direction::Read => "read",
                Direction::Write => "write",
            },
            path: self.path.clone(),
            offset,
            bytes,
            source,
        }
    }
}

/// Checks that a file can be made in a folder.
///
/// # Errors
/// When it cannot.
pub(crate) fn check_folder(what: Offloaded, folder: &Path) -> Result<(), OffloadError> {
    let made = new_file(what, folder, 0).and_then(|(path, _)| std::fs::remove_file(path));
    made.map_err(|source| OffloadError::Folder {
        what,
        path: folder.to_owned(),
        source,
    })
}

/// Makes a file that says whose it is, for its owner alone.
fn new_file(what: Offloaded, folder: &Path, rank: usize) -> io::Result<(PathBuf, File)> {
    let (what, process) = (what.file_name(), std::process::id());
    let mut number = 0;
    loop {
        let path = folder.join(format!("{what}-rank-{rank}-process-{process}-{number}"));
        let mut options = OpenOptions::new();
        match options.read(true).write(true).create_new(true).mode(0o600).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            made => return Ok((path, made?)),
        }
    }
}

enum AllocationError {
    NoSpace { available: u64 },
    Other(Errno),
}

/// Reserves the bytes, so that no other file takes them; where the file system cannot, checks that they are free.
fn allocate(file: &File, bytes: u64) -> Result<(), AllocationError> {
    let space = fstatvfs(file).map_err(AllocationError::Other)?;
    let available = space.f_bavail.saturating_mul(space.f_frsize);
    let no_space = AllocationError::NoSpace { available };
    if available < bytes {
        return Err(no_space);
    }
    loop {
        return match fallocate(file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => Ok(()),
            Err(Errno::INTR) => continue,
            Err(Errno::NOSPC) => Err(no_space),
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => rustix::fs::ftruncate(file, bytes).map_err(AllocationError::Other),
            Err(error) => Err(AllocationError::Other(error)),
        };
    }
}

/// Says why a file is not read and written in the best way, if there is a reason: once in a process for each kind of
/// file, and as a warning on the first rank, for the others have the same reason.
fn warn_once(what: Offloaded, path: &Path, rank: usize, reasons: &[String]) {
    static SAID: [Once; 2] = [const { Once::new() }; 2];
    if reasons.is_empty() {
        return;
    }
    SAID[what as usize].call_once(|| {
        let (path, reasons) = (path.display(), reasons.join("; "));
        if rank == 0 {
            tracing::warn!(%path, "{what}: read and written more slowly than could be: {reasons}");
        } else {
            tracing::info!(%path, rank, "{what}: read and written by other means: {reasons}");
        }
    });
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const WHAT: Offloaded = Offloaded::OptimizerState;
    const BLOCK: u64 = ALIGNMENT as u64;

    fn filled(blocks: usize, seed: usize) -> Buffer {
        let mut buffer = Buffer::new(blocks * ALIGNMENT);
        let pattern: Vec<u8> = (0..251).map(|place| ((place * 7 + seed) % 251) as u8).collect();
        for bytes in buffer.bytes_mut().chunks_mut(251) {
            bytes.copy_from_slice(&pattern[..bytes.len()]);
        }
        buffer
    }

    /// A file of each kind.
    fn both(file: &Arc<File>) -> Vec<(&'static str, OffloadFile)> {
        let on_threads: Box<dyn Transfers> = Box::new(OnThreads::new(file).expect("threads"));
        let mut kinds = vec![("threads", on_threads)];
        match OnRing::new(file) {
            Ok(ring) => kinds.push(("ring", Box::new(ring))),
            Err(error) => eprintln!("without io_uring: {error}"),
        }
        let of_kind = |(kind, transfers)| {
            let (path, file) = (PathBuf::from("the file"), file.clone());
            (
                kind,
                OffloadFile {
                    what: WHAT,
                    path,
                    file,
                    transfers,
                },
            )
        };
        kinds.into_iter().map(of_kind).collect()
    }

    #[test]
    fn what_is_written_is_read_again_while_other_blocks_are_written() {
        let folder = TempDir::new().expect("a folder");
        let (_, file) = new_file(WHAT, folder.path(), 0).expect("a file");
        assert!(allocate(&file, 5000 * BLOCK).is_ok());
        for (kind, mut file) in both(&Arc::new(file)) {
            for is_direct in [true, false] {
                if file.set_direct(is_direct).is_err() {
                    continue;
                }
                // One of many parts, and small ones.
                let writes = [(3, 3000, 1), (0, 3, 2), (3003, 1, 3)];
                let tickets = writes.map(|(block, blocks, seed)| file.write_start(block * BLOCK, filled(blocks, seed)));
                for ticket in tickets.into_iter().rev() {
                    file.wait(ticket).expect("there is room");
                }
                let reads = writes.map(|(block, blocks, _)| {
                    (file.read_start(block * BLOCK, Buffer::new(blocks * ALIGNMENT)), blocks)
                });
                let ahead = file.write_start(4000 * BLOCK, filled(8, 4));
                for ((ticket, blocks), (_, _, seed)) in reads.into_iter().zip(writes) {
                    let read = file.wait(ticket).expect("it was written");
                    assert!(read.bytes() == filled(blocks, seed).bytes(), "{kind}, {is_direct}");
                }
                file.wait(ahead).expect("there is room");
                let odd = file.read_now(4 * BLOCK + 17, 9000).expect("it was written");
                assert!(odd == filled(3000, 1).bytes()[ALIGNMENT + 17..][..9000]);
            }
        }
    }

    #[test]
    fn a_file_leaves_no_name_and_has_room_from_the_beginning() {
        let folder = TempDir::new().expect("a folder");
        let mut file = OffloadFile::create(WHAT, folder.path(), 3, 10 * BLOCK).expect("a file");
        assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 0);
        assert!(file.path.to_string_lossy().contains("rank-3-process-"));
        let ticket = file.read_start(9 * BLOCK, Buffer::new(ALIGNMENT));
        assert!(
            file.wait(ticket)
                .expect("it has room")
                .bytes()
                .iter()
                .all(|&byte| byte == 0)
        );
    }

    #[test]
    fn a_full_disk_is_an_error_that_names_the_file_and_the_bytes() {
        let full = OpenOptions::new().read(true).write(true).open("/dev/full");
        for (kind, mut file) in both(&Arc::new(full.expect("the system has it"))) {
            let ticket = file.write_start(2 * BLOCK, filled(5000, 1));
            let said = file.wait(ticket).expect_err("it is full").to_string();
            let expected = "cannot write 20480000 bytes at 8192 of the file";
            assert!(
                said.starts_with(expected) && said.contains("No space left"),
                "{kind}: {said}"
            );
        }
    }

    #[test]
    fn a_file_that_was_cut_short_is_an_error() {
        let folder = TempDir::new().expect("a folder");
        let (_, file) = new_file(WHAT, folder.path(), 0).expect("a file");
        assert!(allocate(&file, 9 * BLOCK).is_ok());
        let file = Arc::new(file);
        for (kind, mut state) in both(&file) {
            file.set_len(3 * BLOCK + 100).expect("it is ours");
            let ticket = state.read_start(BLOCK, Buffer::new(4 * ALIGNMENT));
            let said = state.wait(ticket).expect_err("it is cut").to_string();
            assert!(
                said.starts_with("cannot read 16384 bytes at 4096 of the file"),
                "{kind}: {said}"
            );
            assert!(state.read_now(7 * BLOCK, 5).is_err());
            // And is none for the blocks that are there.
            let ticket = state.read_start(BLOCK, Buffer::new(2 * ALIGNMENT));
            assert!(state.wait(ticket).is_ok());
        }
    }

    #[test]
    fn transfers_that_no_one_waits_for_end_before_their_memory_goes() {
        let folder = TempDir::new().expect("a folder");
        let (_, file) = new_file(WHAT, folder.path(), 0).expect("a file");
        let file = Arc::new(file);
        for (_, mut state) in both(&file) {
            state.write_start(0, filled(2000, 5));
            drop(state);
            let state = both(&file).remove(0).1;
            assert!(state.read_now(0, 2000 * ALIGNMENT).expect("it was written") == filled(2000, 5).bytes());
        }
    }

    #[test]
    fn a_folder_that_takes_no_file_and_a_disk_that_is_too_small_are_errors() {
        let folder = TempDir::new().expect("a folder");
        let missing = folder.path().join("missing");
        let said = OffloadFile::create(WHAT, &missing, 0, 1)
            .err()
            .expect("it is missing")
            .to_string();
        assert!(said.contains("/missing, which --nvme-path names"), "{said}");
        // Of the kernel's, which takes no file from root either.
        let said = OffloadFile::create(WHAT, Path::new("/proc"), 0, 1)
            .err()
            .expect("it takes none")
            .to_string();
        assert!(
            said.contains("no file for the optimizer's state can be made in /proc"),
            "{said}"
        );
        let error = OffloadFile::create(WHAT, folder.path(), 7, 1 << 62).err();
        let Some(OffloadError::NoSpace {
            rank,
            needed,
            available,
            ..
        }) = error
        else {
            panic!("{error:?}");
        };
        assert_eq!((rank, needed), (7, 1 << 62));
        assert!(available > 0);
        assert_eq!(std::fs::read_dir(folder.path()).expect("it is there").count(), 0);
    }
}
