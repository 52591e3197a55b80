//! Documents of input files, in batches.

mod batch;
mod inputs;
mod lines;
#[cfg(feature = "parquet")]
mod parquet;
mod text;

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;

pub(super) use batch::{Batch, BatchSink, Fields};
use inputs::Compression;
pub(super) use inputs::{InputFile, expand};

use super::{InputFormat, PreprocessConfig, PreprocessError, json};

/// Bytes that are read from a file, or decompressed, at a time.
const READ_BYTES: usize = 256 << 10;

/// Bytes of the longest end of a line, which is no part of a document.
const LINE_END_BYTES: usize = 2;

/// Sends the documents of all files to a sink, in order.
///
/// `bytes_read` counts the bytes of files that have been read, as they are on the disk.
pub(super) fn read_inputs(
    files: &[InputFile],
    config: &PreprocessConfig,
    bytes_read: &Arc<AtomicU64>,
    sink: &mut BatchSink<'_>,
) -> Result<(), PreprocessError> {
    let mut before = 0;
    for file in files {
        sink.begin_file(file);
        match file.format {
            InputFormat::Text => {
                let mut text = open(file, bytes_read)?;
                if config.format.is_none() {
                    refuse_json(file, &mut text, &config.keys)?;
                }
                text::read(&mut text, config.split_on, sink)?;
            }
            InputFormat::Jsonl => lines::read(&mut open(file, bytes_read)?, sink)?,
            #[cfg(feature = "parquet")]
            InputFormat::Parquet => parquet::read(file, &config.keys, bytes_read, sink)?,
            #[cfg(not(feature = "parquet"))]
            InputFormat::Parquet => return Err(inputs::no_parquet(&file.path)),
        }
        sink.send()?;
        before += file.bytes;
        bytes_read.store(before, Ordering::Relaxed);
    }
    Ok(())
}

/// A file's text, decompressed, without a byte-order mark.
fn open(file: &InputFile, bytes_read: &Arc<AtomicU64>) -> Result<Box<dyn BufRead>, PreprocessError> {
    let failed = || PreprocessError::read(&file.path);
    let raw = Counted {
        file: File::open(&file.path).map_err(failed())?,
        bytes_read: bytes_read.clone(),
    };
    let mut text: Box<dyn BufRead> = match file.compression {
        Compression::None => Box::new(BufReader::with_capacity(READ_BYTES, raw)),
        Compression::Gzip => Box::new(BufReader::with_capacity(READ_BYTES, MultiGzDecoder::new(raw))),
        Compression::Zstd => {
            let decoder = zstd::stream::read::Decoder::new(raw).map_err(failed())?;
            Box::new(BufReader::with_capacity(READ_BYTES, decoder))
        }
    };
    if text.fill_buf().map_err(failed())?.starts_with("\u{FEFF}".as_bytes()) {
        text.consume("\u{FEFF}".len());
    }
    Ok(text)
}

/// Megatron-LM reads every file as JSON lines: one that is named `.txt` would become tokens of JSON.
fn refuse_json(file: &InputFile, text: &mut dyn BufRead, keys: &[String]) -> Result<(), PreprocessError> {
    let buffered = text.fill_buf().map_err(PreprocessError::read(&file.path))?;
    let line = buffered.split(|&byte| byte == b'\n').next().unwrap_or_default();
    if line.starts_with(b"{") && std::str::from_utf8(line).is_ok_and(|line| json::texts(line, keys).is_ok()) {
        let path = file.path.display();
        let reason = format!(
            "{path} is named as plain text, but begins with a JSON object with the key {:?}",
            keys[0]
        );
        return Err(PreprocessError::Config {
            reason: format!("{reason}: give the format, text or jsonl"),
        });
    }
    Ok(())
}

/// A file that counts what is read of it.
struct Counted {
    file: File,
    bytes_read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(buffer)?;
        self.bytes_read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}
