//! What a checkpoint holds, as its index says it: [`StoredArray`], [`StoredPart`], [`StoredFile`].

use std::ops::Range;

use burn::tensor::DType;

use super::checksum;
use crate::parameters::Placement;

/// An array of a checkpoint.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredArray {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub dtype: DType,
    /// Its logical shape, without padding.
    pub shape: Vec<usize>,
    /// Where its elements are.
    pub parts: Vec<StoredPart>,
}

impl StoredArray {
    /// The number of elements.
    pub fn num_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// The bytes of its elements.
    pub fn num_bytes(&self) -> usize {
        self.num_elements() * self.dtype.size()
    }
}

/// Elements of an array that are contiguous in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredPart {
    /// The file, as a number of [`Checkpoint::files`](super::Checkpoint::files).
    pub file: usize,
    /// Its name in the file.
    pub key: String,
    /// The box of the array that was the writer's local array.
    pub placement: Placement,
    /// The elements of that local array, row-major; those that are padding are not stored.
    pub range: Range<usize>,
}

/// A shard: the file of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredFile {
    /// Its name in the checkpoint's folder.
    pub name: String,
    /// The rank that wrote it.
    pub rank: usize,
    /// Its size.
    pub bytes: u64,
    /// The checksums of its blocks.
    pub(super) blocks: Vec<u64>,
}

impl StoredFile {
    /// Returns one checksum for the whole file: the XXH3 of those of its blocks.
    pub fn checksum(&self) -> u64 {
        checksum::combine(&self.blocks)
    }
}
