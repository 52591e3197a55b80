//! The shared segment of a group: made by its first rank, mapped by the others, without a name that could be left over.
//!
//! The first choice is a memfd, which never has a name: the others open it as
//! `/proc/{pid}/fd/{number}`. Where that is not possible (a process namespace per rank, no
//! `/proc`) a file in /dev/shm takes its place and is unlinked as soon as all have mapped it. For
//! each kind the first rank offers a path, every rank says whether it has mapped it, and only if
//! all have is it used.

use super::super::super::health::GroupHealth;
use super::layout::{CHUNK_BYTES, Header, Layout, MailboxControl, RING_BYTES, RankBlock, TREE_RING_BYTES};
use crate::collectives::rendezvous::{OfGroup, Rendezvous, agree_all, gather_all};
use memmap2::{MmapOptions, MmapRaw};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
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
    /// Returns the segment of each group, mapped by all its ranks, or why none of the `backings` is. Collective over
    /// each of the groups.
    ///
    /// # Errors
    /// When a rank does not come or fails.
    pub fn connect_all(
        groups: &[(&Rendezvous, &GroupHealth)],
        backings: &[Backing],
    ) -> Result<Vec<Result<Self, String>>, OfGroup> {
        let mut segments: Vec<Option<Self>> = groups.iter().map(|_| None).collect();
        let mut refusals = vec![Vec::new(); groups.len()];
        for &backing in backings {
            let open: Vec<usize> = (0..groups.len()).filter(|&index| segments[index].is_none()).collect();
            let tried: Vec<_> = open.iter().map(|&index| groups[index]).collect();
            let attempts = Self::attempt_all(&tried, backing).map_err(|of_group| of_group.among(&open))?;
            for (index, attempt) in open.into_iter().zip(attempts) {
                match attempt {
                    Ok(segment) => segments[index] = Some(segment),
                    Err(refusal) => {
                        let (_, health) = groups[index];
                        tracing::warn!(group = %health.label, %backing, refusal, "no shared segment");
                        refusals[index].push(refusal);
                    }
                }
            }
        }
        let results = segments.into_iter().zip(refusals);
        let results = results
            .map(|(segment, refusals)| segment.ok_or_else(|| format!("no shared memory: {}", refusals.join("; "))));
        Ok(results.collect())
    }

    /// Tries one kind of backing. Every rank of a group returns the same: its segment, or why not all have it.
    fn attempt_all(
        groups: &[(&Rendezvous, &GroupHealth)],
        backing: Backing,
    ) -> Result<Vec<Result<Self, String>>, OfGroup> {
        // Live until all ranks have answered: the files may then lose their names, or be closed.
        let mut sources: Vec<Option<Source>> = groups.iter().map(|_| None).collect();
        let made: Vec<Option<Result<Self, String>>> = groups
            .iter()
            .zip(&mut sources)
            .map(|((rendezvous, health), source)| {
                (health.label.rank == 0).then(|| Self::create(rendezvous, health, backing, source))
            })
            .collect();
        let paths: Vec<Vec<u8>> = made
            .iter()
            .zip(&sources)
            .map(|(made, source)| match (made, source) {
                (Some(Ok(_)), Some(source)) => source.path.to_string_lossy().into_owned().into_bytes(),
                _ => vec![],
            })
            .collect();
        let rendezvous = groups.iter().map(|(rendezvous, _)| *rendezvous);
        let offers = gather_all(
            &format!("{backing}/offer"),
            rendezvous.clone().zip(paths.iter().map(|path| &**path)),
        )?;
        let mapped: Vec<Result<Self, String>> = made
            .into_iter()
            .zip(offers)
            .zip(groups)
            .map(|((made, offers), (rendezvous, health))| {
                made.unwrap_or_else(|| {
                    let path = String::from_utf8_lossy(offers.values().next().unwrap_or_default()).into_owned();
                    let layout = Layout::new(health.label.size());
                    Self::open(Path::new(&path), layout, rendezvous.digest())
                        .map_err(|error| format!("cannot open {path:?}: {error}"))
                })
            })
            .collect();
        let statements = mapped
            .iter()
            .map(|mapped| mapped.as_ref().map_or_else(String::as_str, |_| "mapped"));
        let agreements = agree_all(&backing.to_string(), rendezvous.zip(statements))?;
        let results = agreements.into_iter().zip(mapped);
        Ok(results.map(|(agreement, mapped)| agreement.and(mapped)).collect())
    }

    /// Makes the segment of a group, and leaves what it is made of in `source`.
    fn create(
        rendezvous: &Rendezvous,
        health: &GroupHealth,
        backing: Backing,
        source: &mut Option<Source>,
    ) -> Result<Self, String> {
        let layout = Layout::new(health.label.size());
        Source::create(backing, &rendezvous.unique_name(), layout.total())
            .and_then(|created| {
                let segment = Self::map(&source.insert(created).file, layout)?;
                segment.write_digest(rendezvous.digest());
                Ok(segment)
            })
            .map_err(|error| format!("cannot create: {error}"))
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
        self.ring(self.layout.mailbox(from, to), RING_BYTES)
    }

    /// Returns the progress and the ring of the tree from one rank to another, one of which is the first.
    pub fn tree_ring(&self, from: usize, to: usize) -> (&MailboxControl, Area<'_>) {
        self.ring(self.layout.tree_ring(from, to), TREE_RING_BYTES)
    }

    fn ring(&self, offset: usize, length: usize) -> (&MailboxControl, Area<'_>) {
        let control_size = size_of::<MailboxControl>();
        // SAFETY: as in `header`; the layout aligns mailboxes and rings of the tree.
        let control = unsafe { &*self.at(offset, control_size).cast() };
        (control, self.bytes(offset + control_size, length))
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
/// business of `collective`, `mailbox` and `ring`.
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
        let file = File::from(memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?);
        file.set_len(size as u64)?;
        // No process can then cut the file short under our mapping.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let path = format!("/proc/{}/fd/{}", std::process::id(), file.as_raw_fd());
        Ok(Self {
            file,
            path: path.into(),
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
