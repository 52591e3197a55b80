//! [`FileLayout`]: where in a rank's file tensors are.
//!
//! A bucket's pieces are side by side, so that one read brings all that is needed of the bucket; each has its
//! tensors one after the other. Buckets begin at whole blocks.

use std::collections::HashMap;
use std::ops::Range;

use super::buffer::ALIGNMENT;

/// The places of the buckets in the file, and of the pieces in the buckets.
#[derive(Debug, Default, PartialEq)]
pub(super) struct FileLayout {
    /// By number of the bucket: where it begins, and its bytes, whole blocks.
    buckets: HashMap<usize, (u64, usize)>,
    pieces: HashMap<usize, PiecePlace>,
    bytes: u64,
}

#[derive(Debug, PartialEq)]
struct PiecePlace {
    bucket: usize,
    /// Where in the bucket it begins.
    first: usize,
    /// Bytes of each of its tensors.
    each: usize,
}

/// A piece that gets a place in the file.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedPiece {
    pub number: usize,
    pub bucket: usize,
    /// Bytes of a tensor of it.
    pub tensor_bytes: usize,
    pub num_tensors: usize,
}

impl FileLayout {
    /// Lays pieces out, the buckets in the order in which they come first.
    pub fn new(pieces: &[PlacedPiece]) -> Self {
        let mut layout = Self::default();
        let mut order = Vec::new();
        for piece in pieces {
            let bucket = layout.buckets.entry(piece.bucket).or_insert_with(|| {
                order.push(piece.bucket);
                (0, 0)
            });
            let place = PiecePlace {
                bucket: piece.bucket,
                first: bucket.1,
                each: piece.tensor_bytes,
            };
            bucket.1 += piece.num_tensors * piece.tensor_bytes;
            layout.pieces.insert(piece.number, place);
        }
        for number in order {
            let (start, length) = layout.buckets.get_mut(&number).expect("it was put there");
            *length = length.next_multiple_of(ALIGNMENT);
            *start = layout.bytes;
            layout.bytes += *length as u64;
        }
        layout
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Where a bucket begins, and its bytes.
    pub fn bucket(&self, number: usize) -> (u64, usize) {
        self.buckets[&number]
    }

    /// The bucket of a piece.
    pub fn bucket_of(&self, piece: usize) -> usize {
        self.pieces[&piece].bucket
    }

    /// Where in its bucket a tensor of a piece is.
    pub fn tensor(&self, piece: usize, tensor: usize) -> Range<usize> {
        let PiecePlace { first, each, .. } = self.pieces[&piece];
        first + tensor * each..first + (tensor + 1) * each
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tensors_are_side_by_side_and_buckets_begin_at_blocks() {
        let piece = |number, bucket, elements: usize, num_tensors| PlacedPiece {
            number,
            bucket,
            tensor_bytes: 4 * elements,
            num_tensors,
        };
        let layout = FileLayout::new(&[
            piece(5, 1, 1000, 3),
            piece(2, 0, 7, 3),
            piece(4, 1, 30, 2),
            piece(0, 0, 0, 3),
        ]);
        assert_eq!([layout.bucket(1), layout.bucket(0)], [(0, 12288), (12288, 4096)]);
        assert_eq!(layout.bytes(), 16384);
        assert_eq!(layout.tensor(5, 2), 8000..12000);
        assert_eq!(layout.tensor(4, 0), 12000..12120);
        assert_eq!((layout.tensor(2, 1), layout.tensor(0, 2)), (28..56, 84..84));
        assert_eq!([5, 2, 4, 0].map(|piece| layout.bucket_of(piece)), [1, 0, 1, 0]);
        assert_eq!(FileLayout::new(&[]).bytes(), 0);
    }
}
