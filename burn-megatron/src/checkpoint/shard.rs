//! Shards: the safetensors file of one rank, written in one pass and read through a memory map.

use std::fs;
use std::io::{self, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use burn::tensor::{Bytes, DType};
use memmap2::Mmap;
use safetensors::tensor::{Metadata, SafeTensors};

use super::checksum::{ChecksumWriter, checksum};
use super::contents::StoredFile;
use super::direct::DirectFile;
use super::error::CheckpointError;
use super::file::open_file;
use super::part::{PartSpec, stored_dtype};
use super::plan::ShardPlan;

/// Writes the shard that was planned for `specs`, down to the disk, and returns the checksums of its blocks.
///
/// `data` is asked for the elements of one part after the other, in the order of the file.
///
/// # Errors
/// The operating system refuses, or `data` does.
///
/// # Panics
/// When `data` returns fewer elements than the part's range has.
pub(super) fn write_shard(
    path: &Path,
    plan: &ShardPlan,
    specs: &[PartSpec],
    mut data: impl FnMut(usize) -> Result<Bytes, CheckpointError>,
) -> Result<Vec<u64>, CheckpointError> {
    let refused = |source: io::Error| CheckpointError::file("write", path)(source);
    let file = DirectFile::create_new(path).map_err(CheckpointError::file("create", path))?;
    let mut writer = ChecksumWriter::new(file);
    writer.write_all(&plan.header).map_err(refused)?;
    for (number, region) in &plan.order {
        let spec = &specs[*number];
        let bytes = data(*number)?;
        let size = spec.dtype.size();
        for segment in region.segments() {
            let begin = (segment.local - spec.range.start) * size;
            let piece = &bytes[begin..begin + segment.length * size];
            writer.write_all(piece).map_err(refused)?;
        }
    }
    let (file, blocks) = writer.finish();
    file.finish().map_err(refused)?;
    Ok(blocks)
}

/// Checks that a shard is there and has its size.
///
/// # Errors
/// It is missing, cut short, or no file.
pub(super) fn check_size(path: &Path, file: &StoredFile) -> Result<(), CheckpointError> {
    let metadata = fs::metadata(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => CheckpointError::ShardMissing {
            path: path.to_owned(),
            bytes: file.bytes,
            rank: file.rank,
        },
        _ => CheckpointError::file("open", path)(error),
    })?;
    if !metadata.is_file() {
        return Err(CheckpointError::ShardBroken {
            path: path.to_owned(),
            what: "expected a file".into(),
        });
    }
    if metadata.len() == file.bytes {
        Ok(())
    } else {
        Err(CheckpointError::ShardSize {
            path: path.to_owned(),
            expected: file.bytes,
            found: metadata.len(),
        })
    }
}

/// A shard that is mapped.
#[derive(Debug)]
pub(super) struct Shard {
    path: PathBuf,
    map: Mmap,
    /// Where the arrays begin.
    data_begin: usize,
    arrays: Metadata,
    block_bytes: usize,
    /// The checksums, and whether each has been compared.
    blocks: Vec<(u64, AtomicBool)>,
}

impl Shard {
    /// Maps a shard. With `is_trusted`, its checksums are not compared.
    ///
    /// # Errors
    /// It is missing, has another size, is altered, or no safetensors file.
    pub fn open(path: PathBuf, file: &StoredFile, block_bytes: u64, is_trusted: bool) -> Result<Self, CheckpointError> {
        check_size(&path, file)?;
        let open = || -> io::Result<(Mmap, u64)> {
            let opened = open_file(&path)?;
            let bytes = opened.metadata()?.len();
            // SAFETY: a map is undefined behaviour when the file changes under it. A checkpoint is never written to
            // once it has its name, and a folder that is replaced or removed keeps its files as long as they are
            // mapped.
            Ok((unsafe { Mmap::map(&opened) }?, bytes))
        };
        let (map, found) = open().map_err(CheckpointError::file("map", &path))?;
        if found != file.bytes {
            let expected = file.bytes;
            return Err(CheckpointError::ShardSize { path, expected, found });
        }
        let mut shard = Self {
            path,
            map,
            data_begin: 0,
            arrays: Metadata::new(None, Vec::new()).expect("no array is no wrong one"),
            block_bytes: block_bytes as usize,
            blocks: file
                .blocks
                .iter()
                .map(|&block| (block, AtomicBool::new(is_trusted)))
                .collect(),
        };
        (shard.data_begin, shard.arrays) = shard.read_header()?;
        Ok(shard)
    }

    fn read_header(&self) -> Result<(usize, Metadata), CheckpointError> {
        const LENGTH_BYTES: usize = 8;
        let length = self.map.first_chunk::<LENGTH_BYTES>();
        let length = length.ok_or_else(|| self.broken("expected the length of a safetensors header".into()))?;
        self.verify(0..LENGTH_BYTES)?;
        let end = usize::try_from(u64::from_le_bytes(*length))
            .ok()
            .and_then(|length| length.checked_add(LENGTH_BYTES))
            .filter(|end| *end <= self.map.len())
            .ok_or_else(|| self.broken("its safetensors header is longer than the file".into()))?;
        self.verify(0..end)?;
        match SafeTensors::read_metadata(&self.map) {
            Ok((length, arrays)) => Ok((LENGTH_BYTES + length, arrays)),
            Err(error) => Err(self.broken(format!("it is no safetensors file: {error}"))),
        }
    }

    /// Returns the byte range, from the start of the file, of an array that must have `num_elements` elements.
    ///
    /// # Errors
    /// The shard does not hold such an array.
    pub fn locate(&self, key: &str, dtype: DType, num_elements: usize) -> Result<Range<usize>, CheckpointError> {
        let info = self
            .arrays
            .info(key)
            .ok_or_else(|| self.broken(format!("expected an array {key:?}, which it does not hold")))?;
        let found: usize = info.shape.iter().product();
        if Some(info.dtype) != stored_dtype(dtype) || found != num_elements {
            return Err(self.broken(format!(
                "array {key:?} has {found} elements of {:?}: expected {num_elements} of {dtype:?}",
                info.dtype
            )));
        }
        let (begin, end) = info.data_offsets;
        Ok(self.data_begin + begin..self.data_begin + end)
    }

    /// Returns bytes of the file, whose checksums have been compared.
    ///
    /// # Errors
    /// They have been altered.
    pub fn bytes(&self, range: Range<usize>) -> Result<&[u8], CheckpointError> {
        self.verify(range.clone())?;
        Ok(&self.map[range])
    }

    /// Compares all checksums.
    ///
    /// # Errors
    /// Bytes have been altered.
    pub fn verify_all(&self) -> Result<(), CheckpointError> {
        self.verify(0..self.map.len())
    }

    /// Compares the checksums of the blocks that hold a range of bytes, each once.
    fn verify(&self, range: Range<usize>) -> Result<(), CheckpointError> {
        if range.is_empty() {
            return Ok(());
        }
        for number in range.start / self.block_bytes..=(range.end - 1) / self.block_bytes {
            let (expected, is_verified) = &self.blocks[number];
            if is_verified.load(Ordering::Relaxed) {
                continue;
            }
            let begin = number * self.block_bytes;
            let end = (begin + self.block_bytes).min(self.map.len());
            let found = checksum(&self.map[begin..end]);
            if found != *expected {
                return Err(CheckpointError::Altered {
                    path: self.path.clone(),
                    begin: begin as u64,
                    end: end as u64,
                    expected: *expected,
                    found,
                });
            }
            is_verified.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn broken(&self, what: String) -> CheckpointError {
        CheckpointError::ShardBroken {
            path: self.path.clone(),
            what,
        }
    }
}
