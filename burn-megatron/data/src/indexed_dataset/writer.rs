//! `IndexedDatasetWriter`: writes a data set in one pass, in bounded memory.

use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use super::element::elements;
use super::index::{HEADER_BYTES, MAGIC, VERSION};
use super::temporary::{TemporaryFile, remove_if_present, sync_folder};
use super::{ElementType, IndexedDataset, IndexedDatasetError, bin_path, idx_path, with_suffix};
use crate::tokenizer::Token;

/// Bytes that wait for the disk, for each of the three files.
const BUFFER_BYTES: usize = 256 << 10;

/// How much a data set holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DatasetTotals {
    /// Documents, those without tokens included.
    pub documents: u64,
    /// Sequences.
    pub sequences: u64,
    /// Tokens.
    pub tokens: u64,
    /// Bytes of both files.
    pub bytes: u64,
}

/// Writes `{prefix}.bin` and `{prefix}.idx` as Megatron-LM's `IndexedDatasetBuilder` does, byte for byte.
///
/// Takes about a MiB of memory, however many documents: the index waits on the disk, 12 bytes for each document of one
/// sequence, until [`finish`](Self::finish). Until then the files have temporary names (`.tmp`), and dropping the
/// writer removes them.
#[derive(Debug)]
pub struct IndexedDatasetWriter {
    prefix: PathBuf,
    element_type: ElementType,
    bin: Output,
    /// The header's place, then the lengths.
    idx: Output,
    boundaries: Output,
    sequences: u64,
    num_boundaries: u64,
    tokens: u64,
    encoded: Vec<u8>,
}

impl IndexedDatasetWriter {
    /// Creates the temporary files of a data set.
    ///
    /// # Errors
    /// If they cannot be created, or another program is writing them.
    pub fn create(prefix: impl AsRef<Path>, element_type: ElementType) -> Result<Self, IndexedDatasetError> {
        let prefix = prefix.as_ref();
        let mut writer = Self {
            bin: Output::new(TemporaryFile::create(&bin_path(prefix))?)?,
            idx: Output::new(TemporaryFile::create(&idx_path(prefix))?)?,
            boundaries: Output::new(TemporaryFile::create_unnamed(&with_suffix(prefix, ".idx.boundaries"))?)?,
            prefix: prefix.to_owned(),
            element_type,
            sequences: 0,
            num_boundaries: 0,
            tokens: 0,
            encoded: vec![],
        };
        writer.idx.write(&[0; HEADER_BYTES])?;
        writer.end_document()?;
        Ok(writer)
    }

    /// Returns the type in which tokens are stored.
    pub fn element_type(&self) -> ElementType {
        self.element_type
    }

    /// Adds a document of one sequence, or of none if there are no tokens.
    ///
    /// # Errors
    /// If a token does not fit into the type, the sequence is too long, or the disk is full.
    pub fn push_document(&mut self, tokens: &[Token]) -> Result<(), IndexedDatasetError> {
        if !tokens.is_empty() {
            self.push_sequence(tokens)?;
        }
        self.end_document()
    }

    /// Adds a sequence to the document that [`end_document`](Self::end_document) will end.
    ///
    /// # Errors
    /// If a token does not fit into the type, the sequence is too long, or the disk is full.
    pub fn push_sequence(&mut self, tokens: &[Token]) -> Result<(), IndexedDatasetError> {
        let mut encoded = std::mem::take(&mut self.encoded);
        encoded.clear();
        let pushed = self
            .element_type
            .encode(tokens, &mut encoded)
            .map_err(|token| IndexedDatasetError::Token {
                token,
                element_type: self.element_type,
                path: bin_path(&self.prefix),
            })
            .and_then(|()| self.push_length(tokens.len()))
            .and_then(|()| self.bin.write(&encoded));
        self.encoded = encoded;
        pushed
    }

    /// Adds the sequences of a document whose tokens are already of [`element_type`](Self::element_type), and ends it.
    ///
    /// # Errors
    /// If a sequence is too long, or the disk is full.
    ///
    /// # Panics
    /// If the lengths, in tokens, do not sum up to the bytes.
    pub fn push_encoded(&mut self, bytes: &[u8], lengths: &[usize]) -> Result<(), IndexedDatasetError> {
        let tokens: usize = lengths.iter().sum();
        assert_eq!(
            tokens * self.element_type.size_bytes(),
            bytes.len(),
            "bytes of {tokens} tokens"
        );
        for &length in lengths {
            self.push_length(length)?;
        }
        self.bin.write(bytes)?;
        self.end_document()
    }

    /// Ends a document: the sequences since the last end are its own.
    ///
    /// # Errors
    /// If the disk is full.
    pub fn end_document(&mut self) -> Result<(), IndexedDatasetError> {
        self.num_boundaries += 1;
        self.boundaries.write(&self.sequences.to_le_bytes())
    }

    /// Adds all documents of a data set, whose tokens are copied as they are.
    ///
    /// # Errors
    /// If its type differs, sequences are left after its last document, it has modes, or the disk is full.
    pub fn append(&mut self, dataset: &IndexedDataset) -> Result<(), IndexedDatasetError> {
        let source_idx = idx_path(dataset.prefix());
        if dataset.element_type() != self.element_type {
            return Err(IndexedDatasetError::TypesDiffer {
                first: self.prefix.clone(),
                first_type: self.element_type,
                other: dataset.prefix().to_owned(),
                other_type: dataset.element_type(),
            });
        }
        let last = dataset.boundaries().last().expect("an index has a boundary");
        if last != dataset.num_sequences() {
            let expected = format!("{}, the number of sequences", dataset.num_sequences());
            return Err(IndexedDatasetError::field(
                &source_idx,
                "last document boundary",
                last,
                expected,
            ));
        }
        if dataset.has_modes() {
            let expected = "no mode for each sequence: multimodal data sets cannot be merged";
            return Err(IndexedDatasetError::field(
                &source_idx,
                "end of the file",
                "modes of sequences",
                expected,
            ));
        }
        let before = self.sequences;
        if dataset.is_contiguous() {
            self.bin.copy(&bin_path(dataset.prefix()), dataset.bin_bytes() as u64)?;
        } else {
            for sequence in 0..dataset.num_sequences() {
                self.bin.write(dataset.sequence_bytes(sequence))?;
            }
        }
        self.idx.write(dataset.length_bytes())?;
        for boundary in dataset.boundaries().skip(1) {
            self.num_boundaries += 1;
            self.boundaries.write(&(before + boundary as u64).to_le_bytes())?;
        }
        self.sequences += dataset.num_sequences() as u64;
        self.tokens += dataset.num_tokens();
        Ok(())
    }

    /// Completes both files, waits for the disk, and gives them their names: `.bin`, then `.idx`.
    ///
    /// An `.idx` of that name is removed first, so that at no time one is next to another data set's `.bin`.
    ///
    /// # Errors
    /// If the disk is full. The temporary files are removed.
    pub fn finish(mut self) -> Result<DatasetTotals, IndexedDatasetError> {
        self.write_index()?;
        let totals = self.totals();
        let bin = self.bin.into_file()?;
        let idx = self.idx.into_file()?;
        bin.sync()?;
        idx.sync()?;
        let idx_path = idx_path(&self.prefix);
        remove_if_present(&idx_path)?;
        sync_folder(&idx_path)?;
        bin.rename()?;
        idx.rename()?;
        sync_folder(&idx_path)?;
        Ok(totals)
    }

    /// Returns what has been written so far.
    pub fn totals(&self) -> DatasetTotals {
        DatasetTotals {
            documents: self.num_boundaries - 1,
            sequences: self.sequences,
            tokens: self.tokens,
            bytes: self.tokens * self.element_type.size_bytes() as u64
                + HEADER_BYTES as u64
                + 12 * self.sequences
                + 8 * self.num_boundaries,
        }
    }

    /// Writes what follows the lengths, and the header.
    fn write_index(&mut self) -> Result<(), IndexedDatasetError> {
        self.idx.flush()?;
        self.boundaries.flush()?;
        let size = self.element_type.size_bytes() as u64;
        let mut offset = 0_u64;
        let mut offsets = vec![];
        for_each_part(&self.idx.reader(HEADER_BYTES as u64)?, 4 * self.sequences, |lengths| {
            offsets.clear();
            for length in elements(lengths).map(u32::from_le_bytes) {
                offsets.extend_from_slice(&offset.to_le_bytes());
                offset += u64::from(length) * size;
            }
            self.idx.write(&offsets)
        })?;
        for_each_part(&self.boundaries.reader(0)?, 8 * self.num_boundaries, |boundaries| {
            self.idx.write(boundaries)
        })?;

        let mut header = MAGIC.to_vec();
        header.extend(VERSION.to_le_bytes());
        header.push(self.element_type.code());
        header.extend(self.sequences.to_le_bytes());
        header.extend(self.num_boundaries.to_le_bytes());
        debug_assert_eq!(header.len(), HEADER_BYTES);
        self.idx.flush()?;
        self.idx.write_at_start(&header)
    }

    fn push_length(&mut self, tokens: usize) -> Result<(), IndexedDatasetError> {
        let Ok(length) = i32::try_from(tokens) else {
            return Err(IndexedDatasetError::SequenceTooLong {
                tokens,
                path: idx_path(&self.prefix),
            });
        };
        self.sequences += 1;
        self.tokens += tokens as u64;
        self.idx.write(&length.to_le_bytes())
    }
}

/// A temporary file with a buffer.
#[derive(Debug)]
struct Output {
    // Before the buffer: its file is removed even where the rest of the buffer cannot be written.
    temporary: TemporaryFile,
    buffer: BufWriter<File>,
}

impl Output {
    fn new(temporary: TemporaryFile) -> Result<Self, IndexedDatasetError> {
        let file = temporary
            .file()
            .try_clone()
            .map_err(IndexedDatasetError::file("open", temporary.target()))?;
        Ok(Self {
            buffer: BufWriter::with_capacity(BUFFER_BYTES, file),
            temporary,
        })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), IndexedDatasetError> {
        self.buffer
            .write_all(bytes)
            .map_err(IndexedDatasetError::file("write", self.temporary.target()))
    }

    fn flush(&mut self) -> Result<(), IndexedDatasetError> {
        self.buffer
            .flush()
            .map_err(IndexedDatasetError::file("write", self.temporary.target()))
    }

    /// Appends all of a file, which must have this size.
    fn copy(&mut self, source: &Path, bytes: u64) -> Result<(), IndexedDatasetError> {
        let file = File::open(source).map_err(IndexedDatasetError::file("open", source))?;
        self.flush()?;
        let copied = io::copy(&mut file.take(bytes), self.buffer.get_mut())
            .map_err(IndexedDatasetError::file("write", self.temporary.target()))?;
        if copied != bytes {
            return Err(IndexedDatasetError::field(
                source,
                "size",
                copied,
                format!("{bytes} bytes as when opened"),
            ));
        }
        Ok(())
    }

    fn write_at_start(&mut self, bytes: &[u8]) -> Result<(), IndexedDatasetError> {
        self.buffer
            .seek(SeekFrom::Start(0))
            .and_then(|_| self.buffer.write_all(bytes))
            .map_err(IndexedDatasetError::file("write", self.temporary.target()))
    }

    /// Returns what reads the file from a byte on, whatever is written meanwhile.
    fn reader(&self, start: u64) -> Result<PartReader, IndexedDatasetError> {
        let path = self.temporary.target();
        let file = self
            .temporary
            .file()
            .try_clone()
            .map_err(IndexedDatasetError::file("open", path))?;
        Ok(PartReader {
            file,
            start,
            path: path.to_owned(),
        })
    }

    fn into_file(mut self) -> Result<TemporaryFile, IndexedDatasetError> {
        self.flush()?;
        Ok(self.temporary)
    }
}

/// Reads a file without moving the place where it is written.
struct PartReader {
    file: File,
    start: u64,
    path: PathBuf,
}

/// Reads `bytes` bytes in parts of whole elements.
fn for_each_part(
    reader: &PartReader,
    bytes: u64,
    mut take: impl FnMut(&[u8]) -> Result<(), IndexedDatasetError>,
) -> Result<(), IndexedDatasetError> {
    let mut part = vec![0; BUFFER_BYTES];
    let mut done = 0;
    while done < bytes {
        let length = (bytes - done).min(BUFFER_BYTES as u64) as usize;
        reader
            .file
            .read_exact_at(&mut part[..length], reader.start + done)
            .map_err(IndexedDatasetError::file("read back", &reader.path))?;
        take(&part[..length])?;
        done += length as u64;
    }
    Ok(())
}
