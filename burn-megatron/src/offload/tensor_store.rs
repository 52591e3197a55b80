//! [`TensorStore`]: tensors of pieces, such as those of an optimizer's state, by number of the piece and place among
//! its tensors; in memory or in a file.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use burn::tensor::{DType, TensorData};

use super::disk::DiskTensors;
use super::layout::{FileLayout, PlacedPiece};
use super::{OffloadError, Offloaded};

/// Tensors of one type.
pub(crate) enum TensorStore {
    Memory(HashMap<(usize, usize), TensorData>),
    Disk(Box<Disk>),
}

pub(crate) struct Disk {
    what: Offloaded,
    folder: PathBuf,
    rank: usize,
    dtype: DType,
    /// `None` while there are no pieces.
    state: Option<DiskTensors>,
}

/// A piece whose tensors are to be held.
pub(crate) struct PieceTensors {
    pub number: usize,
    pub bucket: usize,
    /// Of each of its tensors.
    pub elements: usize,
    pub num_tensors: usize,
}

impl TensorStore {
    /// Returns a store of no pieces, in memory or, if a folder is given, in a rank's file there.
    pub fn new(what: Offloaded, folder: Option<&Path>, rank: usize, dtype: DType) -> Self {
        match folder {
            None => Self::Memory(HashMap::new()),
            Some(folder) => Self::Disk(Box::new(Disk {
                what,
                folder: folder.to_owned(),
                rank,
                dtype,
                state: None,
            })),
        }
    }

    /// Returns a store of the same kind for other pieces, without their tensors.
    ///
    /// # Errors
    /// When there is no room for a file of them.
    pub fn emptied(&self, pieces: &[PieceTensors]) -> Result<Self, OffloadError> {
        let Self::Disk(disk) = self else {
            return Ok(Self::Memory(HashMap::new()));
        };
        let place = |piece: &PieceTensors| PlacedPiece {
            number: piece.number,
            bucket: piece.bucket,
            tensor_bytes: piece.elements * disk.dtype.size(),
            num_tensors: piece.num_tensors,
        };
        let layout = FileLayout::new(&pieces.iter().map(place).collect::<Vec<_>>());
        Ok(Self::Disk(Box::new(Disk {
            what: disk.what,
            folder: disk.folder.clone(),
            rank: disk.rank,
            dtype: disk.dtype,
            state: Some(DiskTensors::create(disk.what, &disk.folder, disk.rank, layout)?),
        })))
    }

    /// Expects tensors of these buckets to be used, in their order.
    ///
    /// # Errors
    /// When an earlier write has failed.
    pub fn begin(&mut self, buckets: &[usize]) -> Result<(), OffloadError> {
        match self {
            Self::Disk(disk) => disk.state().begin(buckets),
            Self::Memory(_) => Ok(()),
        }
    }

    /// Returns a tensor, which is put back in the same update.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn take(&mut self, number: usize, place: usize) -> Result<TensorData, OffloadError> {
        match self {
            Self::Memory(tensors) => Ok(tensors.remove(&(number, place)).expect("it was put there")),
            Self::Disk(disk) => {
                let bytes = disk.state().tensor(number, place)?.to_vec();
                Ok(disk.data(bytes))
            }
        }
    }

    /// Puts a tensor.
    ///
    /// # Errors
    /// When its bucket cannot be read, or another not be written.
    pub fn put(&mut self, number: usize, place: usize, data: TensorData) -> Result<(), OffloadError> {
        match self {
            Self::Memory(tensors) => {
                tensors.insert((number, place), data);
                Ok(())
            }
            Self::Disk(disk) => {
                assert_eq!(data.dtype(), disk.dtype, "tensors of {} have one type", disk.what);
                disk.state().tensor_mut(number, place)?.copy_from_slice(data.as_bytes());
                Ok(())
            }
        }
    }

    /// Returns some elements of a tensor, whose bucket stays in memory until another's is used.
    ///
    /// # Errors
    /// When they cannot be read, or another bucket not be written.
    pub fn part(&mut self, number: usize, place: usize, elements: Range<usize>) -> Result<TensorData, OffloadError> {
        let Self::Disk(disk) = self else {
            return self.read(number, place, elements);
        };
        let size = disk.dtype.size();
        let bytes = disk.state().tensor(number, place)?[elements.start * size..elements.end * size].to_vec();
        Ok(disk.data(bytes))
    }

    /// Returns some elements of a tensor. Nothing is being written.
    ///
    /// # Errors
    /// When they cannot be read.
    pub fn read(&self, number: usize, place: usize, elements: Range<usize>) -> Result<TensorData, OffloadError> {
        match self {
            Self::Memory(tensors) => {
                let data = tensors.get(&(number, place)).expect("it was put there");
                Ok(part_of(data, elements))
            }
            Self::Disk(disk) => {
                let state = disk.state.as_ref().expect("there are pieces");
                let size = disk.dtype.size();
                let bytes = state.read(number, place, elements.start * size..elements.end * size)?;
                Ok(disk.data(bytes))
            }
        }
    }

    /// Waits until all that was put is where it is held, and gives memory of files back.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn settle(&mut self) -> Result<(), OffloadError> {
        match self {
            Self::Disk(disk) => disk.state.as_mut().map_or(Ok(()), DiskTensors::settle),
            Self::Memory(_) => Ok(()),
        }
    }
}

impl Disk {
    fn state(&mut self) -> &mut DiskTensors {
        self.state.as_mut().expect("there are pieces")
    }

    fn data(&self, bytes: Vec<u8>) -> TensorData {
        let elements = bytes.len() / self.dtype.size();
        TensorData::from_bytes_vec(bytes, [elements], self.dtype)
    }
}

/// Returns some elements of a tensor of one dimension.
pub(crate) fn part_of(data: &TensorData, elements: Range<usize>) -> TensorData {
    let size = data.dtype().size();
    let bytes = data.as_bytes()[elements.start * size..elements.end * size].to_vec();
    TensorData::from_bytes_vec(bytes, [elements.len()], data.dtype())
}
