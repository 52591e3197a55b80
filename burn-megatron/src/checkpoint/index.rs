//! `index.json`: what is in a checkpoint and where. Written last by rank 0, read first.
//!
//! One JSON object. Its last field is the checksum of the text before it, so that no byte of the index can change
//! unnoticed; to change a checkpoint by hand is to break it.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use safetensors::tensor::Dtype;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::checksum::checksum;
use super::contents::{StoredArray, StoredFile, StoredPart};
use super::error::CheckpointError;
use super::file::open_file;
use super::part::{loaded_dtype, stored_dtype};
use super::region::{Region, check_countable};
use crate::parameters::Placement;

/// The name of the index in a checkpoint's folder.
pub(super) const INDEX_NAME: &str = "index.json";

/// The version of the format that is written, and the newest that is read.
pub const FORMAT_VERSION: u64 = 1;

const FORMAT: &str = "burn-megatron checkpoint";
/// The largest index. A part takes some 150 bytes.
pub(super) const MAX_INDEX_BYTES: u64 = 512 << 20;
/// Bytes of a block that a reader accepts.
const BLOCK_LIMITS: std::ops::RangeInclusive<u64> = 4 << 10..=1 << 30;
/// The end of the file: `,"checksum":"0123456789abcdef"}` and a line break.
const TAIL_BYTES: usize = 32;

/// The index of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Index {
    pub library_version: String,
    pub iteration: u64,
    pub world_size: usize,
    pub layout: Value,
    pub block_bytes: u64,
    pub files: Vec<StoredFile>,
    pub arrays: Vec<StoredArray>,
    pub state: Value,
}

/// The fields that every version has.
#[derive(Deserialize)]
struct Heading {
    format: String,
    version: u64,
}

#[derive(Serialize, Deserialize)]
struct IndexEntry {
    format: String,
    version: u64,
    library_version: String,
    iteration: u64,
    world_size: usize,
    layout: Value,
    block_bytes: u64,
    files: Vec<FileEntry>,
    arrays: Vec<ArrayEntry>,
    state: Value,
}

#[derive(Serialize, Deserialize)]
struct FileEntry {
    name: String,
    rank: usize,
    bytes: u64,
    /// 16 hexadecimal digits for each block.
    blocks: String,
}

#[derive(Serialize, Deserialize)]
struct ArrayEntry {
    name: String,
    dtype: Dtype,
    shape: Vec<usize>,
    parts: Vec<PartEntry>,
}

#[derive(Serialize, Deserialize)]
struct PartEntry {
    file: usize,
    key: String,
    offset: Vec<usize>,
    shape: Vec<usize>,
    range: (usize, usize),
}

impl Index {
    /// Writes the index into a folder, down to the disk.
    ///
    /// # Errors
    /// The operating system refuses, or the index is too large.
    pub fn write(&self, folder: &Path) -> Result<(), CheckpointError> {
        let path = folder.join(INDEX_NAME);
        let text = self.to_text().map_err(|what| broken(&path, what))?;
        let write = || {
            let mut file = File::create_new(&path)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        };
        write().map_err(CheckpointError::file("write", &path))
    }

    fn to_text(&self) -> Result<String, String> {
        let entry = IndexEntry {
            format: FORMAT.to_owned(),
            version: FORMAT_VERSION,
            library_version: self.library_version.clone(),
            iteration: self.iteration,
            world_size: self.world_size,
            layout: self.layout.clone(),
            block_bytes: self.block_bytes,
            files: self.files.iter().map(file_entry).collect(),
            arrays: self.arrays.iter().map(array_entry).collect::<Result<_, _>>()?,
            state: self.state.clone(),
        };
        let mut text = serde_json::to_string(&entry).map_err(|error| error.to_string())?;
        text.truncate(text.len() - 1);
        let checksum = checksum(text.as_bytes());
        text.push_str(&format!(",\"checksum\":\"{checksum:016x}\"}}\n"));
        if text.len() as u64 > MAX_INDEX_BYTES {
            Err(format!("{} bytes: expected at most {MAX_INDEX_BYTES}", text.len()))
        } else {
            Ok(text)
        }
    }

    /// Reads the index of the checkpoint in a folder.
    ///
    /// # Errors
    /// It is missing, of a newer version, altered, or not what a save writes.
    pub fn read(folder: &Path) -> Result<Self, CheckpointError> {
        let path = folder.join(INDEX_NAME);
        let file = open_file(&path).map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => CheckpointError::NoIndex {
                path: folder.to_owned(),
            },
            _ => CheckpointError::file("open", &path)(source),
        })?;
        let mut text = Vec::new();
        let read = file.take(MAX_INDEX_BYTES + 1).read_to_end(&mut text);
        read.map_err(CheckpointError::file("read", &path))?;
        if text.len() as u64 > MAX_INDEX_BYTES {
            return Err(broken(&path, format!("expected at most {MAX_INDEX_BYTES} bytes")));
        }
        let heading: Heading = serde_json::from_slice(&text).map_err(|error| broken(&path, error.to_string()))?;
        if heading.format != FORMAT {
            let what = format!("format {:?}: expected {FORMAT:?}", heading.format);
            return Err(broken(&path, what));
        }
        if heading.version > FORMAT_VERSION {
            return Err(CheckpointError::NewerFormat {
                path,
                version: heading.version,
                supported: FORMAT_VERSION,
            });
        }
        Self::from_text(&text).map_err(|what| broken(&path, what))
    }

    fn from_text(text: &[u8]) -> Result<Self, String> {
        let (body, tail) = text
            .len()
            .checked_sub(TAIL_BYTES)
            .map(|middle| text.split_at(middle))
            .ok_or("expected a checksum at its end")?;
        let found = checksum(body);
        let expected = format!(",\"checksum\":\"{found:016x}\"}}\n");
        if tail != expected.as_bytes() {
            return Err(format!(
                "it has been altered: it ends in {:?}, expected {expected:?}, the checksum of what is before",
                String::from_utf8_lossy(tail)
            ));
        }
        let entry: IndexEntry = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        let index = Index {
            library_version: entry.library_version,
            iteration: entry.iteration,
            world_size: entry.world_size,
            layout: entry.layout,
            block_bytes: entry.block_bytes,
            files: entry.files.into_iter().map(stored_file).collect::<Result<_, _>>()?,
            arrays: entry.arrays.into_iter().map(stored_array).collect::<Result<_, _>>()?,
            state: entry.state,
        };
        index.check()?;
        Ok(index)
    }

    /// Checks that the sizes fit each other, before anybody trusts them.
    fn check(&self) -> Result<(), String> {
        if !BLOCK_LIMITS.contains(&self.block_bytes) {
            return Err(format!(
                "blocks of {} bytes: expected {BLOCK_LIMITS:?}",
                self.block_bytes
            ));
        }
        let mut names = HashSet::new();
        for StoredFile {
            name, bytes, blocks, ..
        } in &self.files
        {
            let is_plain = Path::new(name).file_name().is_some_and(|last| last == name.as_str());
            if !is_plain || !names.insert(name) {
                return Err(format!("file {name:?}: expected the name of a file, each once"));
            }
            if bytes.div_ceil(self.block_bytes) != blocks.len() as u64 {
                let count = blocks.len();
                return Err(format!("file {name:?} of {bytes} bytes has {count} checksums"));
            }
        }
        let (mut names, mut keys) = (HashSet::new(), HashSet::new());
        let mut stored_bytes = vec![0_u64; self.files.len()];
        for array in &self.arrays {
            if !names.insert(&array.name) {
                return Err(format!("array {:?} is there twice", array.name));
            }
            check_countable(&array.shape).map_err(|what| format!("array {:?}: {what}", array.name))?;
            let mut stored = 0_usize;
            for part in &array.parts {
                let elements =
                    (self.check_part(array, part)).map_err(|what| format!("array {:?}: {what}", array.name))?;
                if !keys.insert((part.file, &part.key)) {
                    return Err(format!("array {:?}: {:?} holds another part", array.name, part.key));
                }
                stored = stored.saturating_add(elements);
                let bytes = (elements * array.dtype.size()) as u64;
                stored_bytes[part.file] = stored_bytes[part.file].saturating_add(bytes);
            }
            // Whoever reads the array makes room for all of it before looking for it.
            if stored != array.num_elements() {
                return Err(format!(
                    "array {:?} of shape {:?}: its parts have {stored} elements in all, expected {}",
                    array.name,
                    array.shape,
                    array.num_elements()
                ));
            }
        }
        match self
            .files
            .iter()
            .zip(&stored_bytes)
            .find(|(file, stored)| **stored > file.bytes)
        {
            None => Ok(()),
            Some((file, stored)) => Err(format!(
                "parts of {stored} bytes in {:?}, which has {} bytes",
                file.name, file.bytes
            )),
        }
    }

    /// Returns the number of elements of a part that are stored.
    fn check_part(&self, array: &StoredArray, part: &StoredPart) -> Result<usize, String> {
        let file = self.files.get(part.file).ok_or_else(|| {
            let count = self.files.len();
            format!("a part in file {} of {count}", part.file)
        })?;
        let elements = Region::new(&part.placement, part.range.clone())?.stored_len();
        match elements.checked_mul(array.dtype.size()) {
            Some(bytes) if bytes as u64 <= file.bytes => Ok(elements),
            _ => Err(format!(
                "a part of {elements} elements in {:?}, which has {} bytes",
                file.name, file.bytes
            )),
        }
    }
}

fn broken(path: &Path, what: String) -> CheckpointError {
    CheckpointError::IndexBroken {
        path: PathBuf::from(path),
        what,
    }
}

fn file_entry(file: &StoredFile) -> FileEntry {
    FileEntry {
        name: file.name.clone(),
        rank: file.rank,
        bytes: file.bytes,
        blocks: file.blocks.iter().map(|block| format!("{block:016x}")).collect(),
    }
}

fn stored_file(entry: FileEntry) -> Result<StoredFile, String> {
    let digits = entry.blocks.as_bytes().chunks(16);
    let blocks = digits
        .map(|digits| {
            let text = std::str::from_utf8(digits).ok().filter(|text| text.len() == 16);
            text.and_then(|text| u64::from_str_radix(text, 16).ok())
        })
        .collect::<Option<_>>()
        .ok_or_else(|| format!("file {:?}: expected 16 hexadecimal digits for each block", entry.name))?;
    Ok(StoredFile {
        name: entry.name,
        rank: entry.rank,
        bytes: entry.bytes,
        blocks,
    })
}

fn array_entry(array: &StoredArray) -> Result<ArrayEntry, String> {
    let part = |part: &StoredPart| PartEntry {
        file: part.file,
        key: part.key.clone(),
        offset: part.placement.offset().to_vec(),
        shape: part.placement.local_shape().to_vec(),
        range: (part.range.start, part.range.end),
    };
    Ok(ArrayEntry {
        name: array.name.clone(),
        dtype: stored_dtype(array.dtype).ok_or_else(|| format!("array {:?} of {:?}", array.name, array.dtype))?,
        shape: array.shape.clone(),
        parts: array.parts.iter().map(part).collect(),
    })
}

fn stored_array(entry: ArrayEntry) -> Result<StoredArray, String> {
    let dimensions = entry.shape.len();
    let part = |part: PartEntry| {
        if part.offset.len() != dimensions || part.shape.len() != dimensions {
            return Err(format!(
                "array {:?} of shape {:?} has a part at {:?} of shape {:?}",
                entry.name, entry.shape, part.offset, part.shape
            ));
        }
        Ok(StoredPart {
            file: part.file,
            key: part.key,
            placement: Placement::new(entry.shape.clone(), part.offset, part.shape),
            range: part.range.0..part.range.1,
        })
    };
    Ok(StoredArray {
        dtype: loaded_dtype(entry.dtype).ok_or_else(|| format!("array {:?} of {:?}", entry.name, entry.dtype))?,
        parts: entry.parts.into_iter().map(part).collect::<Result<_, _>>()?,
        name: entry.name,
        shape: entry.shape,
    })
}
