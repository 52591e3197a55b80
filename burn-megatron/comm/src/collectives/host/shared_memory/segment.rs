//! The shared segment of a group: made by its first rank, mapped by the others, without a name that could be left over.
//!
//! The first choice is a memfd, which never has a name: the others open it as
//! `/proc/{pid}/fd/{number}`. Where that is not possible (a process namespace per rank, no
//! `/proc`) a file in /dev/shm takes its place and is unlinked as soon as all have mapped it. For
//! each kind the first rank offers a path, every rank says whether it has mapped it, and only if
//! all have is it used.

use super::super::super::error::CollectiveError;
use super::super::super::health::GroupHealth;
use super::layout::{CHUNK_BYTES, Header, Layout, MailboxControl, RING_BYTES, RankBlock};
use crate::collectives::rendezvous::Rendezvous;
use memmap2::{MmapOptions, MmapRaw};
use std::ffi::CString;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

/// What holds the segment's memory, in the order in which it is tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::VariantArray)]
pub(super) enum Backing {
    /// An anonymous file.
    #[strum(serialize = "memfd")]
    Memfd,
    /// A file in /dev/shm, unlinked once all have mapped it.
    #[strum(serialize = "shm-file")]
    NamedFile,
}

/// The mapped segment of one group.
pub(super) struct Segment {
    map: MmapRaw,
    layout: Layout,
}

impl Segment {
    /// Returns the segment of the group, mapped by all its ranks. Collective.
    ///
    /// # Errors
    /// When none of the `backings` can be mapped by all ranks; when a rank does not come or fails.
    pub fn connect(
        rendezvous: &Rendezvous,
        health: &GroupHealth,
        backings: &[Backing],
    ) -> Result<Self, CollectiveError> {
        let mut refusals = Vec::new();
        for &backing in backings {
            match Self::attempt(rendezvous, health, backing)? {
                Ok(segment) => return Ok(segment),
                Err(refusal) => {
                    tracing::warn!(group = %health.label, %backing, refusal, "no shared segment");
                    refusals.push(refusal);
                }
            }
        }
        let what = format!("no shared memory: {}", refusals.join("; "));
        Err(health.label.no_agreement(what))
    }

    /// Tries one kind of backing. Every rank returns the same: its segment, or why not all have it.
    fn attempt(
        rendezvous: &Rendezvous,
        health: &GroupHealth,
        backing: Backing,
    ) -> Result<Result<Self, String>, CollectiveError> {
        let layout = Layout::new(health.label.size());
        let offer_key = format!("{backing}/offer");
        // Lives until all ranks have answered: the file may then lose its name, or be closed.
        let mut source = None;
        let mapped = if health.label.rank == 0 {
            let mapped = Source::create(backing, &rendezvous.unique_name(), layout.total())
                .and_then(|created| {
                    let segment = Self::map(&source.insert(created).file, layout)?;
                    segment.write_digest(rendezvous.digest());
                    Ok(segment)
                })
                .map_err(|error| format!("cannot create: {error}"));
            let path = match (&mapped, &source) {
                (Ok(_), Some(source)) => source.path.to_string_lossy().into_owned(),
                _ => String::new(),
            };
            rendezvous.publish(&offer_key, path.as_bytes())?;
            mapped
        } else {
            let path = String::from_utf8_lossy(&rendezvous.wait(&offer_key, 0)?).into_owned();
            Self::open(Path::new(&path), layout, rendezvous.digest())
                .map_err(|error| format!("cannot open {path:?}: {error}"))
        };
        let statement = mapped.as_ref().map_or_else(String::as_str, |_| "mapped");
        let agreement = rendezvous.agree(&backing.to_string(), statement)?;
        drop(source);
        Ok(agreement.and(mapped))
    }

    /// Maps the segment that another rank has made.
    fn open(path: &Path, layout: Layout, digest: [u8; 32]) -> io::Result<Self> {
        let file = open_file(path, layout.total())?;
        let segment = Self::map(&file, layout)?;
        if segment.digest() != digest {
            return Err(io::Error::other("not this group's segment: wrong digest"));
        }
        Ok(segment)
    }

    fn map(file: &File, layout: Layout) -> io::Result<Self> {
        let map = MmapOptions::new().len(layout.total()).map_raw(file)?;
        Ok(Self { map, layout })
    }

    fn write_digest(&self, digest: [u8; 32]) {
        for (byte, value) in self.header().digest.iter().zip(digest) {
            byte.store(value, Ordering::Release);
        }
    }

    fn digest(&self) -> [u8; 32] {
        std::array::from_fn(|index| self.header().digest[index].load(Ordering::Acquire))
    }

    fn header(&self) -> &Header {
        // SAFETY: `at` checks that the header is inside the mapping; a header is made of atomics, for which any bytes
        // are valid; the mapping lives as long as `self`.
        unsafe { &*self.at(0, size_of::<Header>()).cast() }
    }

    /// Returns what the rank with this group index tells the others.
    pub fn rank_block(&self, rank: usize) -> &RankBlock {
        let offset = self.layout.rank_block(rank);
        // SAFETY: as in `header`; the layout aligns rank blocks.
        unsafe { &*self.at(offset, size_of::<RankBlock>()).cast() }
    }

    /// Returns a staging area of the rank with this group index.
    pub fn area(&self, rank: usize, slot: usize) -> Area<'_> {
        let offset = self.layout.area(rank, slot);
        self.bytes(offset, CHUNK_BYTES)
    }

    /// Returns the progress and the ring of the mailbox from one rank to another.
    pub fn mailbox(&self, from: usize, to: usize) -> (&MailboxControl, Area<'_>) {
        let offset = self.layout.mailbox(from, to);
        let control_size = size_of::<MailboxControl>();
        // SAFETY: as in `header`; the layout aligns mailboxes.
        let control = unsafe { &*self.at(offset, control_size).cast() };
        (control, self.bytes(offset + control_size, RING_BYTES))
    }

    fn bytes(&self, offset: usize, length: usize) -> Area<'_> {
        Area {
            start: self.at(offset, length),
            length,
            _segment: std::marker::PhantomData,
        }
    }

    fn at(&self, offset: usize, length: usize) -> *mut u8 {
        let size = self.map.len();
        assert!(offset + length <= size, "{offset} + {length} of {size} bytes");
        // SAFETY: inside the mapping, as just checked.
        unsafe { self.map.as_mut_ptr().add(offset) }
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Segment({} bytes)", self.map.len())
    }
}

/// Bytes of the segment that pass from rank to rank; who may touch which bytes when is the
/// business of `collective` and `mailbox`.
#[derive(Clone, Copy)]
pub(in super::super) struct Area<'a> {
    start: *mut u8,
    length: usize,
    _segment: std::marker::PhantomData<&'a Segment>,
}

impl<'a> Area<'a> {
    /// Copies `bytes` into the area.
    ///
    /// # Safety
    /// No one else may read or write these bytes at the same time.
    ///
    /// # Panics
    /// When they do not fit.
    pub unsafe fn write(&self, offset: usize, bytes: &[u8]) {
        self.check(offset, bytes.len());
        // SAFETY: in bounds, and the caller has the bytes for itself; a slice of ordinary memory
        // does not overlap the mapping unless it was made from it, which the caller rules out.
        unsafe {
            self.start
                .add(offset)
                .copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
        }
    }

    /// Returns bytes of the area.
    ///
    /// # Safety
    /// These bytes must not be written while the result lives.
    ///
    /// # Panics
    /// When they are out of bounds.
    pub unsafe fn read(&self, offset: usize, length: usize) -> &'a [u8] {
        self.check(offset, length);
        // SAFETY: in bounds, initialised (the file was zeros), and the caller rules out writers.
        unsafe { std::slice::from_raw_parts(self.start.add(offset), length) }
    }

    fn check(&self, offset: usize, length: usize) {
        let size = self.length;
        let fits = offset.checked_add(length).is_some_and(|end| end <= size);
        assert!(fits, "{offset} + {length} of {size} bytes");
    }
}

/// Opens the memory of `size` bytes that another rank has made.
pub(super) fn open_file(path: &Path, size: usize) -> io::Result<File> {
    // Should the path lead to something else (a pipe, say), opening it must not block.
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(path)?;
    let metadata = file.metadata()?;
    // A page beyond the end of the file would be a fatal signal.
    if !metadata.is_file() || metadata.len() != size as u64 {
        return Err(io::Error::other("not this group's segment: wrong size"));
    }
    Ok(file)
}

/// The segment's file on the rank that made it. Unlinks it when dropped, if it has a name.
pub(super) struct Source {
    pub file: File,
    /// Where the other ranks open it.
    pub path: PathBuf,
    backing: Backing,
}

impl Source {
    pub fn create(backing: Backing, name: &str, size: usize) -> io::Result<Self> {
        match backing {
            Backing::Memfd => Self::create_memfd(name, size),
            Backing::NamedFile => Self::create_named(name, size),
        }
    }

    fn create_memfd(name: &str, size: usize) -> io::Result<Self> {
        let name = CString::new(name)?;
        // SAFETY: `name` is a string with an end; the call has no other requirement.
        let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor that has no other owner.
        let file = unsafe { File::from_raw_fd(fd) };
        file.set_len(size as u64)?;
        let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
        // SAFETY: an integer command on an open descriptor. No process can then cut the file short under our mapping.
        if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, seals) } < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            file,
            path: format!("/proc/{}/fd/{fd}", std::process::id()).into(),
            backing: Backing::Memfd,
        })
    }

    fn create_named(name: &str, size: usize) -> io::Result<Self> {
        let path = Path::new("/dev/shm").join(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        // From here on dropping removes the name.
        let source = Self {
            file,
            path,
            backing: Backing::NamedFile,
        };
        source.file.set_len(size as u64)?;
        // /dev/shm may be small: lack of room is an error here, a fatal signal later.
        // SAFETY: integer arguments on an open descriptor.
        match unsafe { libc::posix_fallocate(source.file.as_raw_fd(), 0, size as libc::off_t) } {
            0 => Ok(source),
            code => Err(io::Error::from_raw_os_error(code)),
        }
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if self.backing == Backing::NamedFile
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove shared memory");
        }
    }
}
