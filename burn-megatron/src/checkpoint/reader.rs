//! [`Checkpoint`]: a checkpoint that was written, read in any layout.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use burn::config::Config;
use parking_lot::Mutex;
use rayon::prelude::*;
use serde_json::Value;

use super::contents::{StoredArray, StoredFile, StoredPart};
use super::coverage::{self, Fault, unravel};
use super::error::CheckpointError;
use super::folder::{list_checkpoints, parse_iteration};
use super::index::{INDEX_NAME, Index};
use super::part::{ArrayData, zeros};
use super::region::{Region, Segment};
use super::shard::{Shard, check_size};
use crate::parameters::Placement;

/// How a checkpoint is read.
#[derive(Config, Copy, Debug, PartialEq, Eq)]
pub struct ReadConfig {
    /// Take the bytes as they are, without comparing checksums: faster where the disk can be trusted. Sizes, shapes and
    /// the index are checked all the same.
    #[config(default = false)]
    pub skip_checksums: bool,
    /// Look at a shard when it is first read, not when the checkpoint is opened: for the ranks of a job that open what
    /// one of them has found. Thousands that all looked at thousands of shards would keep a file system busy for
    /// minutes.
    #[config(default = false)]
    pub shards_later: bool,
}

impl Default for ReadConfig {
    /// Compares checksums.
    fn default() -> Self {
        Self::new()
    }
}

/// A checkpoint, open for reading.
///
/// Shards are memory-mapped when they are first needed, and only the blocks (of 4 MiB) that a read touches are read;
/// their checksums are compared before anything is returned. May be read from several threads, and while a run saves
/// further checkpoints; not beyond the moment at which a run replaces or removes this very one. A shard that another
/// program truncates while it is mapped ends the process with SIGBUS where its lost bytes are read: that is no error
/// that is returned.
#[derive(Debug)]
pub struct Checkpoint {
    path: PathBuf,
    index: Index,
    /// The array of each name.
    numbers: HashMap<String, usize>,
    shards: Vec<Mutex<Option<Arc<Shard>>>>,
    options: ReadConfig,
}

impl Checkpoint {
    /// Opens the checkpoint of the highest iteration in a folder; none where there is none, or no folder.
    ///
    /// Ranks that load together must open the same: let one look, and the others [`open`](Self::open) what it found.
    ///
    /// # Errors
    /// As [`open`](Self::open); a broken checkpoint, one whose index is missing among them, is an error, never a reason
    /// to take an older one.
    pub fn latest(directory: impl AsRef<Path>) -> Result<Option<Self>, CheckpointError> {
        Self::latest_with(directory.as_ref(), ReadConfig::new())
    }

    fn latest_with(directory: &Path, options: ReadConfig) -> Result<Option<Self>, CheckpointError> {
        let Some((_, path)) = list_checkpoints(directory)?.pop() else {
            return Ok(None);
        };
        match Self::open_with(path, options) {
            Err(CheckpointError::NoIndex { path }) => Err(CheckpointError::Damaged { path }),
            opened => opened.map(Some),
        }
    }

    /// Opens the checkpoint that a path means: that of the path itself, or the latest in the folder.
    ///
    /// # Errors
    /// As [`open`](Self::open); there is none.
    pub fn find(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        Self::find_with(path, ReadConfig::new())
    }

    /// As [`find`](Self::find), with options.
    ///
    /// # Errors
    /// As [`find`](Self::find).
    pub fn find_with(path: impl AsRef<Path>, options: ReadConfig) -> Result<Self, CheckpointError> {
        let path = path.as_ref();
        if path.join(INDEX_NAME).exists() {
            return Self::open_with(path, options);
        }
        Self::latest_with(path, options)?.ok_or_else(|| CheckpointError::NoCheckpoint {
            directory: path.to_owned(),
        })
    }

    /// Opens a checkpoint, and compares its checksums where it is read.
    ///
    /// # Errors
    /// The index is missing, of a newer version, altered or wrong; its iteration is another than that of the folder's
    /// name; a shard is missing or has another size, unless [`ReadConfig::shards_later`] leaves that to the first read.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, CheckpointError> {
        Self::open_with(path, ReadConfig::new())
    }

    /// Opens a checkpoint.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with(path: impl AsRef<Path>, options: ReadConfig) -> Result<Self, CheckpointError> {
        let path = path.as_ref().to_owned();
        if path.exists() && !path.is_dir() {
            return Err(CheckpointError::NotAFolder {
                path,
                expected: "the folder of a checkpoint",
            });
        }
        let index = Index::read(&path)?;
        // Other names, such as that of a copy, say nothing.
        let name = path.file_name().and_then(|name| name.to_str());
        match name.and_then(parse_iteration) {
            Some(named) if named != index.iteration => {
                let found = index.iteration;
                return Err(CheckpointError::Renamed { path, found, named });
            }
            _ => {}
        }
        if !options.shards_later {
            let sizes = index
                .files
                .par_iter()
                .map(|file| check_size(&path.join(&file.name), file));
            sizes.find_first(Result::is_err).unwrap_or(Ok(()))?;
        }
        let numbers = (index.arrays.iter().enumerate())
            .map(|(number, array)| (array.name.clone(), number))
            .collect();
        Ok(Self {
            shards: index.files.iter().map(|_| Mutex::new(None)).collect(),
            path,
            index,
            numbers,
            options,
        })
    }

    /// The checkpoint's folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The iteration that it was saved at.
    pub fn iteration(&self) -> u64 {
        self.index.iteration
    }

    /// The state that was saved with it.
    pub fn state(&self) -> &Value {
        &self.index.state
    }

    /// The number of ranks that saved it.
    pub fn world_size(&self) -> usize {
        self.index.world_size
    }

    /// The layout of the ranks that saved it, as they gave it.
    pub fn layout(&self) -> &Value {
        &self.index.layout
    }

    /// The version of this library that saved it.
    pub fn library_version(&self) -> &str {
        &self.index.library_version
    }

    /// Its arrays, in the order in which the ranks gave them.
    pub fn arrays(&self) -> &[StoredArray] {
        &self.index.arrays
    }

    /// Its shards.
    pub fn files(&self) -> &[StoredFile] {
        &self.index.files
    }

    /// Returns the array of a name, if there is one.
    pub fn array(&self, name: &str) -> Option<&StoredArray> {
        self.numbers.get(name).map(|number| &self.index.arrays[*number])
    }

    /// Reads elements of an array as a rank of any layout holds them: those of `range`, row-major, of the local array
    /// of `placement`. Padding is zero.
    ///
    /// # Errors
    /// There is no such array, or it has another logical shape than the placement; `range` ends beyond the local array;
    /// an element is in no part; a shard is altered or wrong.
    pub fn read(&self, name: &str, placement: &Placement, range: Range<usize>) -> Result<ArrayData, CheckpointError> {
        let array = self.array(name).ok_or_else(|| self.missing(name))?;
        if array.shape != placement.logical_shape() {
            return Err(CheckpointError::ShapeMismatch {
                path: self.path.clone(),
                name: name.to_owned(),
                stored: array.shape.clone(),
                expected: placement.logical_shape().to_vec(),
            });
        }
        let region_error = |what| CheckpointError::Region {
            path: self.path.clone(),
            name: name.to_owned(),
            what,
        };
        let wanted = Region::new(placement, range.clone()).map_err(region_error)?;
        let mut bytes = zeros(array.dtype, range.len());
        let mut found = Vec::new();
        for part in array.parts.iter().filter(|part| may_touch(&part.placement, placement)) {
            let stored = Region::new(&part.placement, part.range.clone()).map_err(region_error)?;
            let pieces = intersect(&stored, &wanted);
            if pieces.is_empty() {
                continue;
            }
            let shard = self.shard(part.file)?;
            let size = array.dtype.size();
            let place = shard.locate(&part.key, array.dtype, stored.stored_len())?;
            for piece in pieces {
                let from = place.start + piece.stored * size;
                let to = (piece.local - range.start) * size;
                let length = piece.length * size;
                bytes[to..to + length].copy_from_slice(shard.bytes(from..from + length)?);
                found.push((piece.logical, piece.length));
            }
        }
        match first_gap(&wanted, &mut found) {
            None => Ok(ArrayData {
                dtype: array.dtype,
                bytes,
            }),
            Some(element) => Err(self.uncovered(array, Fault::Missing { element })),
        }
    }

    /// Checks everything, on all cores: all checksums, that each part is in its shard, and that the parts of each array
    /// hold each element exactly once.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn verify(&self) -> Result<(), CheckpointError> {
        let verify_shard = |number| self.map_shard(number, ReadConfig::new())?.verify_all();
        let shards = (0..self.index.files.len()).into_par_iter().map(verify_shard);
        shards.find_first(Result::is_err).unwrap_or(Ok(()))?;
        let arrays = self.index.arrays.par_iter().map(|array| self.verify_array(array));
        arrays.find_first(Result::is_err).unwrap_or(Ok(()))
    }

    /// Checks that the parts of an array are in their shards, and hold each element exactly once.
    fn verify_array(&self, array: &StoredArray) -> Result<(), CheckpointError> {
        let mut regions = Vec::with_capacity(array.parts.len());
        for part in &array.parts {
            let region = Region::new(&part.placement, part.range.clone());
            let region = region.map_err(|what| CheckpointError::Region {
                path: self.path.clone(),
                name: array.name.clone(),
                what,
            })?;
            self.shard(part.file)?
                .locate(&part.key, array.dtype, region.stored_len())?;
            regions.push(region);
        }
        coverage::check(array.num_elements(), &regions).map_err(|fault| self.uncovered(array, fault))
    }

    /// Returns a shard, mapped on first use.
    fn shard(&self, number: usize) -> Result<Arc<Shard>, CheckpointError> {
        let mut slot = self.shards[number].lock();
        if let Some(shard) = &*slot {
            return Ok(shard.clone());
        }
        let shard = Arc::new(self.map_shard(number, self.options)?);
        Ok(slot.insert(shard).clone())
    }

    fn map_shard(&self, number: usize, options: ReadConfig) -> Result<Shard, CheckpointError> {
        let file = &self.index.files[number];
        let path = self.path.join(&file.name);
        Shard::open(path, file, self.index.block_bytes, options.skip_checksums)
    }

    fn missing(&self, name: &str) -> CheckpointError {
        let common = |other: &str| name.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
        let names = self.index.arrays.iter().map(|array| array.name.as_str());
        CheckpointError::ArrayMissing {
            path: self.path.clone(),
            name: name.to_owned(),
            count: self.index.arrays.len(),
            nearest: names.max_by_key(|other| common(other)).unwrap_or_default().to_owned(),
        }
    }

    fn uncovered(&self, array: &StoredArray, fault: Fault) -> CheckpointError {
        let shape = &array.shape;
        let file = |part: &StoredPart| self.index.files[part.file].name.as_str();
        let what = match fault {
            Fault::Missing { element } => format!(
                "element {:?} of its shape {shape:?} is in no part: expected each in one",
                unravel(element, shape)
            ),
            Fault::Twice { element, parts } => {
                let [first, second] = parts.map(|part| file(&array.parts[part]));
                format!(
                    "element {:?} of its shape {shape:?} is in a part in {first} and in one in {second}: expected each \
                     in one",
                    unravel(element, shape)
                )
            }
        };
        CheckpointError::Coverage {
            path: self.path.clone(),
            name: array.name.clone(),
            what,
        }
    }
}

/// Elements that are contiguous in a part, in the array, and in what is wanted.
struct Piece {
    /// The number of stored elements of the part before it.
    stored: usize,
    local: usize,
    logical: usize,
    length: usize,
}

/// Whether the boxes of two placements of one array have elements in common.
fn may_touch(first: &Placement, second: &Placement) -> bool {
    let end = |placement: &Placement, d: usize| placement.offset()[d].saturating_add(placement.local_shape()[d]);
    (0..first.offset().len()).all(|d| first.offset()[d].max(second.offset()[d]) < end(first, d).min(end(second, d)))
}

/// Returns what a stored part has of what is wanted. Both are walked once, in the order of the array.
fn intersect(stored: &Region, wanted: &Region) -> Vec<Piece> {
    let mut pieces = Vec::new();
    let mut wanted = wanted.segments();
    let mut want = wanted.next();
    let mut before = 0;
    for have in stored.segments() {
        let have_end = have.logical + have.length;
        while let Some(segment) = want {
            let want_end = segment.logical + segment.length;
            let begin = have.logical.max(segment.logical);
            let end = have_end.min(want_end);
            if begin < end {
                pieces.push(Piece {
                    stored: before + begin - have.logical,
                    local: segment.local + begin - segment.logical,
                    logical: begin,
                    length: end - begin,
                });
            }
            if want_end > have_end {
                break;
            }
            want = wanted.next();
        }
        if want.is_none() {
            break;
        }
        before += have.length;
    }
    pieces
}

/// Returns the first element that is wanted and was not found.
fn first_gap(wanted: &Region, found: &mut [(usize, usize)]) -> Option<usize> {
    found.sort_unstable();
    let mut found = found.iter().peekable();
    for Segment { logical, length, .. } in wanted.segments() {
        let mut covered = logical;
        while covered < logical + length {
            match found.peek() {
                Some(&&(begin, count)) if begin <= covered => {
                    covered = covered.max(begin + count);
                    found.next();
                }
                _ => return Some(covered),
            }
        }
    }
    None
}
