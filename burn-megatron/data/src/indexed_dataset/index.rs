//! `Index`: an `.idx` file, memory-mapped and checked.

use std::fs::File;
use std::ops::Range;
use std::path::Path;

use memmap2::Mmap;

use super::element::elements;
use super::{ElementType, IndexedDatasetError};

/// First bytes of an `.idx` file.
pub(super) const MAGIC: [u8; 9] = *b"MMIDIDX\0\0";
/// The only version.
pub(super) const VERSION: u64 = 1;
/// Bytes before the arrays.
pub(super) const HEADER_BYTES: usize = 34;

/// An `.idx` file whose every value has been checked against its own size and that of the `.bin` file.
#[derive(Debug)]
pub(super) struct Index {
    map: Mmap,
    pub(super) header: Header,
    pub(super) num_tokens: u64,
    /// Sequences follow each other in `.bin` from byte 0 on, without gaps.
    pub(super) is_contiguous: bool,
}

impl Index {
    /// Opens an `.idx` file for a `.bin` file of this size.
    pub(super) fn open(path: &Path, bin: &Path, bin_bytes: u64) -> Result<Self, IndexedDatasetError> {
        let map = map(path)?;
        let mut index = Self {
            header: Header::parse(path, &map)?,
            map,
            num_tokens: 0,
            is_contiguous: true,
        };
        index.check_sequences(path, bin, bin_bytes)?;
        index.check_boundaries(path)?;
        Ok(index)
    }

    /// Returns the tokens of a sequence.
    pub(super) fn length(&self, sequence: usize) -> usize {
        i32::from_le_bytes(self.element("sequence", sequence, self.lengths())) as usize
    }

    /// Returns where a sequence begins in the `.bin` file, in bytes.
    pub(super) fn offset(&self, sequence: usize) -> usize {
        i64::from_le_bytes(self.element("sequence", sequence, self.offsets())) as usize
    }

    /// Returns a boundary of documents: a number of sequences.
    pub(super) fn boundary(&self, boundary: usize) -> usize {
        i64::from_le_bytes(self.element("boundary", boundary, self.boundaries())) as usize
    }

    /// Returns the lengths of all sequences, as the file has them.
    pub(super) fn length_bytes(&self) -> &[u8] {
        &self.map[self.lengths()]
    }

    fn element<const SIZE: usize>(&self, name: &str, number: usize, array: Range<usize>) -> [u8; SIZE] {
        let (elements, _) = self.map[array].as_chunks();
        assert!(number < elements.len(), "{name} {number} of {}", elements.len());
        elements[number]
    }

    fn lengths(&self) -> Range<usize> {
        HEADER_BYTES..HEADER_BYTES + 4 * self.header.num_sequences
    }

    fn offsets(&self) -> Range<usize> {
        let start = self.lengths().end;
        start..start + 8 * self.header.num_sequences
    }

    fn boundaries(&self) -> Range<usize> {
        let start = self.offsets().end;
        start..start + 8 * self.header.num_boundaries
    }

    /// Checks that every sequence is inside the `.bin` file.
    fn check_sequences(&mut self, path: &Path, bin: &Path, bin_bytes: u64) -> Result<(), IndexedDatasetError> {
        let size = self.header.element_type.size_bytes() as u64;
        let (mut num_tokens, mut next, mut is_contiguous) = (0_u64, 0, true);
        let lengths = elements(&self.map[self.lengths()]).map(i32::from_le_bytes);
        let offsets = elements(&self.map[self.offsets()]).map(i64::from_le_bytes);
        for (sequence, (length, offset)) in lengths.zip(offsets).enumerate() {
            let (Ok(tokens), Ok(start)) = (u64::try_from(length), u64::try_from(offset)) else {
                let (field, found) = if length < 0 {
                    ("length", i64::from(length))
                } else {
                    ("offset", offset)
                };
                return Err(IndexedDatasetError::field(
                    path,
                    numbered(field, sequence),
                    found,
                    "0 or more",
                ));
            };
            let end = start.checked_add(tokens * size).filter(|&end| end <= bin_bytes);
            let Some(end) = end else {
                return Err(IndexedDatasetError::field(
                    path,
                    format!("sequence {sequence} ({tokens} tokens of {})", self.header.element_type),
                    format!("at bytes {start} to {}", u128::from(start) + u128::from(tokens * size)),
                    format!("a place in the {bin_bytes} bytes of {}", bin.display()),
                ));
            };
            is_contiguous &= start == next;
            next = end;
            num_tokens = num_tokens.saturating_add(tokens);
        }
        self.num_tokens = num_tokens;
        self.is_contiguous = is_contiguous;
        Ok(())
    }

    /// Checks that the boundaries ascend from 0 and are at most the number of sequences.
    fn check_boundaries(&self, path: &Path) -> Result<(), IndexedDatasetError> {
        let mut last = 0;
        for (boundary, value) in elements(&self.map[self.boundaries()])
            .map(i64::from_le_bytes)
            .enumerate()
        {
            let field = || numbered("document boundary", boundary);
            if boundary == 0 && value != 0 {
                return Err(IndexedDatasetError::field(path, field(), value, "0"));
            }
            if value < last || value as u64 > self.header.num_sequences as u64 {
                let expected = format!(
                    "a number from {last}, the one before it, to {}",
                    self.header.num_sequences
                );
                return Err(IndexedDatasetError::field(path, field(), value, expected));
            }
            last = value;
        }
        Ok(())
    }
}

/// What an `.idx` file says of itself.
#[derive(Debug)]
pub(super) struct Header {
    pub(super) element_type: ElementType,
    pub(super) num_sequences: usize,
    pub(super) num_boundaries: usize,
    /// A mode for each sequence follows the arrays, as in Megatron-LM's multimodal data sets.
    pub(super) has_modes: bool,
}

impl Header {
    fn parse(path: &Path, file: &[u8]) -> Result<Self, IndexedDatasetError> {
        let Some(header) = file.first_chunk::<HEADER_BYTES>() else {
            let expected = format!("the {HEADER_BYTES} bytes of the header or more");
            return Err(IndexedDatasetError::field(
                path,
                "size",
                bytes(file.len() as u128),
                expected,
            ));
        };
        if header[..9] != MAGIC {
            let found = format!("\"{}\"", header[..9].escape_ascii());
            let expected = format!("\"{}\"", MAGIC.escape_ascii());
            return Err(IndexedDatasetError::field(path, "magic", found, expected));
        }
        let number = |start: usize| u64::from_le_bytes(std::array::from_fn(|byte| header[start + byte]));
        let (version, code, num_sequences, num_boundaries) = (number(9), header[17], number(18), number(26));
        if version != VERSION {
            return Err(IndexedDatasetError::field(
                path,
                "version",
                version,
                VERSION.to_string(),
            ));
        }
        let element_type = ElementType::from_code(code).ok_or_else(|| {
            IndexedDatasetError::field(
                path,
                "code of the type of elements",
                code,
                "1 to 8 (1 u8, 2 i8, 3 i16, 4 i32, 5 i64, 6 f64, 7 f32, 8 u16)",
            )
        })?;
        if num_boundaries == 0 {
            return Err(IndexedDatasetError::field(
                path,
                "number of document boundaries",
                0,
                "1 or more",
            ));
        }
        // In 128 bits nothing overflows.
        let arrays = HEADER_BYTES as u128 + 12 * u128::from(num_sequences) + 8 * u128::from(num_boundaries);
        let size = file.len() as u128;
        if size != arrays && size != arrays + u128::from(num_sequences) {
            let expected =
                format!("{arrays} bytes for {num_sequences} sequences and {num_boundaries} document boundaries");
            return Err(IndexedDatasetError::field(path, "size", bytes(size), expected));
        }
        Ok(Self {
            element_type,
            // The file is larger than both.
            num_sequences: num_sequences as usize,
            num_boundaries: num_boundaries as usize,
            has_modes: size != arrays,
        })
    }
}

/// Maps a file into memory.
pub(super) fn map(path: &Path) -> Result<Mmap, IndexedDatasetError> {
    let file = File::open(path).map_err(IndexedDatasetError::file("open", path))?;
    // SAFETY: a data set is not changed in place: writers rename whole files over its names, which leaves this map as
    // it is. A program that shortens the file all the same ends this one by a signal; nothing here relies on its bytes
    // staying the same for memory safety, as every access is checked against the length of the map.
    unsafe { Mmap::map(&file) }.map_err(IndexedDatasetError::file("map", path))
}

fn numbered(field: &str, number: usize) -> String {
    format!("{field} {number}")
}

fn bytes(number: u128) -> String {
    format!("{number} bytes")
}
