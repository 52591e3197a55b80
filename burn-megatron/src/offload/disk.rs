//! [`DiskTensors`]: tensors in a file, of which a bucket's are in memory while they are in use, those of the one before
//! it while they are written, and of the next while they are read.

use std::collections::VecDeque;
use std::ops::Range;
use std::path::Path;

use super::buffer::Buffer;
use super::layout::FileLayout;
use super::offload_file::OffloadFile;
use super::transfers::Ticket;
use super::{OffloadError, Offloaded};

/// Tensors of pieces, as bytes in a file.
pub(super) struct DiskTensors {
    file: OffloadFile,
    layout: FileLayout,
    /// Buckets that are to be read next, the last one first.
    ahead: Vec<usize>,
    reading: Option<(usize, Ticket)>,
    /// The bucket whose tensors can be read and changed.
    open: Option<OpenBucket>,
    /// Oldest first.
    writing: VecDeque<(usize, Ticket)>,
    spare: Option<Buffer>,
}

struct OpenBucket {
    number: usize,
    buffer: Buffer,
    is_changed: bool,
}

impl DiskTensors {
    /// Makes a rank's file in a folder; all of it is 0.
    ///
    /// # Errors
    /// As [`OffloadFile::create`].
    pub fn create(what: Offloaded, folder: &Path, rank: usize, layout: FileLayout) -> Result<Self, OffloadError> {
        Ok(Self {
            file: OffloadFile::create(what, folder, rank, layout.bytes())?,
            layout,
            ahead: Vec::new(),
            reading: None,
            open: None,
            writing: VecDeque::new(),
            spare: None,
        })
    }

    /// Expects some buckets to be used, in their order: the first is read while nothing needs it yet.
    ///
    /// # Errors
    /// When an earlier write has failed.
    pub fn begin(&mut self, buckets: &[usize]) -> Result<(), OffloadError> {
        self.settle()?;
        self.ahead = buckets.iter().rev().copied().collect();
        self.read_ahead();
        Ok(())
    }

    /// The bytes of a tensor of a piece, after the bucket of the piece has come from the file.
    ///
    /// # Errors
    /// When it cannot be read, or an earlier one not be written.
    pub fn tensor(&mut self, piece: usize, tensor: usize) -> Result<&[u8], OffloadError> {
        let range = self.layout.tensor(piece, tensor);
        Ok(&self.open(self.layout.bucket_of(piece))?.buffer.bytes()[range])
    }

    /// The same, to be changed.
    ///
    /// # Errors
    /// As [`tensor`](Self::tensor).
    pub fn tensor_mut(&mut self, piece: usize, tensor: usize) -> Result<&mut [u8], OffloadError> {
        let range = self.layout.tensor(piece, tensor);
        let open = self.open(self.layout.bucket_of(piece))?;
        open.is_changed = true;
        Ok(&mut open.buffer.bytes_mut()[range])
    }

    /// Returns some bytes of a tensor of a piece. Nothing is being written.
    ///
    /// # Errors
    /// When they cannot be read.
    ///
    /// # Panics
    /// When an update is under way.
    pub fn read(&self, piece: usize, tensor: usize, bytes: Range<usize>) -> Result<Vec<u8>, OffloadError> {
        let whole = self.layout.tensor(piece, tensor);
        let range = whole.start + bytes.start..whole.start + bytes.end;
        let bucket = self.layout.bucket_of(piece);
        if let Some(open) = self.open.as_ref().filter(|open| open.number == bucket) {
            return Ok(open.buffer.bytes()[range].to_vec());
        }
        assert!(
            self.writing.is_empty(),
            "{} buckets are being written",
            self.writing.len()
        );
        let (start, _) = self.layout.bucket(bucket);
        self.file.read_now(start + range.start as u64, range.len())
    }

    /// Waits until the open bucket is in the file, and all others, and gives their memory back.
    ///
    /// # Errors
    /// When one cannot be written.
    pub fn settle(&mut self) -> Result<(), OffloadError> {
        self.close();
        self.ahead.clear();
        if let Some((_, unused)) = self.reading.take() {
            self.file.wait(unused)?;
        }
        self.wait_for_writes(0)?;
        self.spare = None;
        Ok(())
    }

    fn open(&mut self, number: usize) -> Result<&mut OpenBucket, OffloadError> {
        if self.open.as_ref().is_none_or(|open| open.number != number) {
            self.close();
            // The one that was closed is written while this one is updated, and the next is read.
            self.wait_for_writes(1)?;
            if self.writing.iter().any(|(written, _)| *written == number) {
                self.wait_for_writes(0)?;
            }
            let ticket = match self.reading.take() {
                Some((read, ticket)) if read == number => ticket,
                other => {
                    if let Some((_, unused)) = other {
                        self.spare = Some(self.file.wait(unused)?);
                    }
                    self.read_start(number)
                }
            };
            self.read_ahead();
            self.open = Some(OpenBucket {
                number,
                buffer: self.file.wait(ticket)?,
                is_changed: false,
            });
        }
        Ok(self.open.as_mut().expect("it was put there"))
    }

    /// Starts to write the open bucket, if it was changed.
    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            if open.is_changed {
                let (start, _) = self.layout.bucket(open.number);
                let ticket = self.file.write_start(start, open.buffer);
                self.writing.push_back((open.number, ticket));
            } else {
                self.spare = Some(open.buffer);
            }
        }
    }

    /// Waits until no more than `count` buckets are being written.
    fn wait_for_writes(&mut self, count: usize) -> Result<(), OffloadError> {
        while self.writing.len() > count
            && let Some((_, ticket)) = self.writing.pop_front()
        {
            self.spare = Some(self.file.wait(ticket)?);
        }
        Ok(())
    }

    fn read_ahead(&mut self) {
        let is_written = |number| self.writing.iter().any(|(written, _)| *written == number);
        if let Some(number) = self.ahead.pop().filter(|&number| !is_written(number)) {
            let ticket = self.read_start(number);
            self.reading = Some((number, ticket));
        }
    }

    fn read_start(&mut self, number: usize) -> Ticket {
        let (start, length) = self.layout.bucket(number);
        let reused = self.spare.take().and_then(|buffer| buffer.reused(length));
        let buffer = reused.unwrap_or_else(|| Buffer::new(length));
        self.file.read_start(start, buffer)
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::super::layout::PlacedPiece;
    use super::*;

    /// Five buckets of two pieces of two tensors each, of 1000 and 8000 bytes.
    fn state(folder: &TempDir) -> DiskTensors {
        let piece = |number| PlacedPiece {
            number,
            bucket: 4 - number / 2,
            tensor_bytes: if number % 2 == 0 { 1000 } else { 8000 },
            num_tensors: 2,
        };
        let pieces: Vec<PlacedPiece> = (0..10).map(piece).collect();
        DiskTensors::create(Offloaded::OptimizerState, folder.path(), 0, FileLayout::new(&pieces)).expect("a file")
    }

    fn add(state: &mut DiskTensors, piece: usize, tensor: usize, value: u8) {
        let bytes = state.tensor_mut(piece, tensor).expect("it is there");
        bytes.iter_mut().for_each(|byte| *byte += value);
    }

    #[test]
    fn updates_of_buckets_one_after_the_other_add_up() {
        let folder = TempDir::new().expect("a folder");
        let mut state = state(&folder);
        for _ in 0..3 {
            // The bucket of pieces 4 and 5 is left out, and the next is not updated.
            state.begin(&[4, 3, 1, 0]).expect("nothing fails");
            for piece in [0, 1, 2, 3, 8, 9] {
                for tensor in 0..2 {
                    add(&mut state, piece, tensor, (piece + tensor) as u8);
                }
                assert!(state.writing.len() <= 1);
            }
            state.settle().expect("there is room");
        }
        for piece in 0..10 {
            for tensor in 0..2 {
                let is_updated = !(4..8).contains(&piece);
                let expected = if is_updated { 3 * (piece + tensor) as u8 } else { 0 };
                let read = state.read(piece, tensor, 13..990).expect("it is there");
                assert!(read == [expected; 977], "tensor {tensor} of piece {piece}");
            }
        }
    }

    #[test]
    fn a_bucket_that_is_opened_again_has_what_was_written() {
        let folder = TempDir::new().expect("a folder");
        let mut state = state(&folder);
        state.begin(&[4, 3, 4]).expect("nothing fails");
        for round in 1..=3 {
            for piece in [0, 3, 1, 9, 0] {
                add(&mut state, piece, 1, 1);
            }
            assert!(state.tensor(0, 1).expect("it is there") == [2 * round; 1000]);
        }
        state.settle().expect("there is room");
        assert!(state.read(9, 1, 0..8000).expect("it is there") == [3; 8000]);
    }
}
