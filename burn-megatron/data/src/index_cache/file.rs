//! The file of an index: a header, which says what is in it, and arrays.
//!
//! Header: magic number, a number that shows the byte order, the length of the description, the number of arrays; of
//! each array the bytes of an element, the number of elements and a checksum; the description; a checksum of all this.
//! Arrays begin at multiples of 64 bytes. Numbers are in the machine's byte order: a file of another one is not taken.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind::{NotADirectory, NotFound};
use std::io::{self, Seek, SeekFrom, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytemuck::Pod;
use memmap2::Mmap;
use rayon::prelude::*;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use super::array::IndexArray;
use crate::samples::SampleError;

const MAGIC: [u8; 8] = *b"BMINDEX1";
const BYTE_ORDER: u64 = 0x0102_0304_0506_0708;
const ALIGNMENT: usize = 64;
/// Contents are hashed by blocks of this many bytes, on all cores, and then the hashes.
const BLOCK_BYTES: usize = 1 << 22;

/// The size of an array of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ArrayLayout {
    element_bytes: usize,
    length: usize,
}

impl ArrayLayout {
    /// Returns the layout of `length` elements of type `T`.
    pub(crate) fn of<T: Pod>(length: usize) -> Self {
        Self {
            element_bytes: size_of::<T>(),
            length,
        }
    }

    fn bytes(self) -> usize {
        let bytes = self.element_bytes.checked_mul(self.length);
        bytes.expect("arrays whose lengths fit 32 bits fit the address space")
    }
}

/// A whole index, mapped.
#[derive(Debug)]
pub(crate) struct IndexFile {
    file: Arc<Mmap>,
    arrays: Vec<Range<usize>>,
}

impl IndexFile {
    /// Maps the file; `None` if there is none, or it is not this index, whole.
    ///
    /// # Errors
    /// There is one that cannot be opened.
    pub(super) fn open(path: &Path, description: &str, layout: &[ArrayLayout]) -> Result<Option<Self>, SampleError> {
        let failed = |source| SampleError::cache("read", path)(source);
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if matches!(error.kind(), NotFound | NotADirectory) => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let (arrays, end) = places(description, layout);
        if file.metadata().map_err(failed)?.len() != end as u64 {
            tracing::warn!(path = %path.display(), "an index of another length is built again");
            return Ok(None);
        }
        // SAFETY: files of the cache are replaced by renaming, never written to once they have their name.
        let file = unsafe { Mmap::map(&file) }.map_err(failed)?;
        let checksums: Vec<u64> = arrays.iter().map(|array| checksum(&file[array.clone()])).collect();
        if !file.starts_with(&header(description, layout, &checksums)) {
            tracing::warn!(path = %path.display(), "an index with other contents is built again");
            return Ok(None);
        }
        let file = Arc::new(file);
        Ok(Some(Self { file, arrays }))
    }

    /// Returns an array.
    ///
    /// # Panics
    /// If there is none of this number, or its elements are of another size.
    pub(crate) fn array<T: Pod>(&self, number: usize) -> IndexArray<T> {
        IndexArray::mapped(self.file.clone(), self.arrays[number].clone())
    }
}

/// Writes the arrays of an index, one after the other, to a temporary name.
pub(crate) struct IndexWriter {
    file: File,
    temporary: Temporary,
    path: PathBuf,
    description: String,
    layout: Vec<ArrayLayout>,
    places: Vec<Range<usize>>,
    /// Array that is being written, and the bytes of it that are.
    current: usize,
    written: usize,
    checksums: Vec<u64>,
    blocks: BlockHasher,
}

/// A file that is removed unless it has got its name.
struct Temporary(Option<PathBuf>);

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            // Reported already: what made the index fail.
            let _ = fs::remove_file(path);
        }
    }
}

impl IndexWriter {
    pub(super) fn create(path: &Path, description: &str, layout: &[ArrayLayout]) -> Result<Self, SampleError> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_extension(format!("{}.{number}.tmp", process::id()));
        let file = OpenOptions::new().write(true).create_new(true).open(&temporary);
        let file = file.map_err(SampleError::cache("create", &temporary))?;
        let (places, end) = places(description, layout);
        let mut writer = Self {
            file,
            temporary: Temporary(Some(temporary)),
            path: path.to_path_buf(),
            description: description.to_owned(),
            layout: layout.to_vec(),
            places,
            current: 0,
            written: 0,
            checksums: vec![],
            blocks: BlockHasher::new(),
        };
        writer
            .file
            .set_len(end as u64)
            .map_err(|source| writer.failed(source))?;
        writer.seek(0)?;
        Ok(writer)
    }

    /// Appends to the array that is being written.
    ///
    /// # Panics
    /// If the array gets longer than it was said to be.
    pub(crate) fn write<T: Pod>(&mut self, values: &[T]) -> Result<(), SampleError> {
        let bytes: &[u8] = bytemuck::cast_slice(values);
        let (wanted, written) = (self.places[self.current].len(), self.written + bytes.len());
        assert!(
            written <= wanted,
            "{written} bytes of array {}, which has {wanted}",
            self.current
        );
        self.file.write_all(bytes).map_err(|source| self.failed(source))?;
        self.blocks.update(bytes);
        self.written = written;
        Ok(())
    }

    /// Ends an array; the next is written from now on.
    ///
    /// # Panics
    /// If the array is shorter than it was said to be.
    pub(crate) fn end_array(&mut self) -> Result<(), SampleError> {
        let wanted = self.places[self.current].len();
        assert_eq!(self.written, wanted, "bytes of array {}", self.current);
        let blocks = std::mem::replace(&mut self.blocks, BlockHasher::new());
        self.checksums.push(blocks.finish());
        self.current += 1;
        self.written = 0;
        self.seek(self.current)
    }

    /// Writes the header and gives the file its name.
    pub(super) fn finish(mut self) -> Result<(), SampleError> {
        assert_eq!(self.current, self.layout.len(), "arrays that were written");
        let header = header(&self.description, &self.layout, &self.checksums);
        let written = self.file.seek(SeekFrom::Start(0)).and_then(|_| {
            self.file.write_all(&header)?;
            self.file.sync_all()
        });
        written.map_err(|source| self.failed(source))?;
        if let Some(temporary) = &self.temporary.0 {
            fs::rename(temporary, &self.path).map_err(|source| self.failed(source))?;
        }
        self.temporary.0 = None;
        Ok(())
    }

    fn seek(&mut self, array: usize) -> Result<(), SampleError> {
        let Some(place) = self.places.get(array) else {
            return Ok(());
        };
        let sought = self.file.seek(SeekFrom::Start(place.start as u64));
        sought.map(drop).map_err(|source| self.failed(source))
    }

    fn failed(&self, source: io::Error) -> SampleError {
        SampleError::cache("write", self.temporary.0.as_ref().unwrap_or(&self.path))(source)
    }
}

/// Hashes what comes in pieces as [`checksum`] does at once.
struct BlockHasher {
    hashes: Vec<u64>,
    block: Box<Xxh3>,
    in_block: usize,
}

impl BlockHasher {
    fn new() -> Self {
        Self {
            hashes: vec![],
            block: Box::new(Xxh3::new()),
            in_block: 0,
        }
    }

    fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let taken = bytes.len().min(BLOCK_BYTES - self.in_block);
            self.block.update(&bytes[..taken]);
            self.in_block += taken;
            bytes = &bytes[taken..];
            if self.in_block == BLOCK_BYTES {
                self.end_block();
            }
        }
    }

    fn end_block(&mut self) {
        self.hashes.push(self.block.digest());
        self.block.reset();
        self.in_block = 0;
    }

    fn finish(mut self) -> u64 {
        if self.in_block > 0 {
            self.end_block();
        }
        xxh3_64(bytemuck::cast_slice(&self.hashes))
    }
}

fn checksum(bytes: &[u8]) -> u64 {
    let hashes: Vec<u64> = bytes.par_chunks(BLOCK_BYTES).map(xxh3_64).collect();
    xxh3_64(bytemuck::cast_slice(&hashes))
}

pub(super) fn header(description: &str, layout: &[ArrayLayout], checksums: &[u64]) -> Vec<u8> {
    let mut numbers = vec![BYTE_ORDER, description.len() as u64, layout.len() as u64];
    for (array, checksum) in layout.iter().zip(checksums) {
        numbers.extend([array.element_bytes as u64, array.length as u64, *checksum]);
    }
    let mut bytes = MAGIC.to_vec();
    bytes.extend_from_slice(bytemuck::cast_slice(&numbers));
    bytes.extend_from_slice(description.as_bytes());
    let checksum = xxh3_64(&bytes);
    bytes.extend(checksum.to_ne_bytes());
    bytes
}

/// Returns where each array is in the file, and the file's length.
pub(super) fn places(description: &str, layout: &[ArrayLayout]) -> (Vec<Range<usize>>, usize) {
    let checksums = vec![0; layout.len()];
    let mut end = header(description, layout, &checksums).len();
    let place = |array: &ArrayLayout| {
        let start = end.next_multiple_of(ALIGNMENT);
        end = start + array.bytes();
        start..end
    };
    let places = layout.iter().map(place).collect();
    (places, end)
}
