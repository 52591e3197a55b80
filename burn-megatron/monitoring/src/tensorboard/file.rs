//! [`EventFile`]: one event file.

use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use super::error::TensorBoardError;
use super::event::{Event, now};
use super::record;

/// The most files of one second and process.
const MAX_FILES: u32 = 1000;
/// Bytes that are kept before they are handed to the system.
const BUFFER_BYTES: usize = 64 << 10;

/// An event file that events are appended to.
#[derive(Debug)]
pub struct EventFile {
    file: File,
    path: PathBuf,
    /// Whole records that the file has not.
    pending: Vec<u8>,
}

impl EventFile {
    /// Creates a file of its own in a folder, `events.out.tfevents.{seconds}.{host}.{process}.{number}`, with the event
    /// that says the version. Makes the folder if there is none.
    ///
    /// # Errors
    /// When folder or file cannot be made, or the file cannot be written, naming it.
    pub fn create(folder: &Path) -> Result<Self, TensorBoardError> {
        fs::create_dir_all(folder).map_err(|source| TensorBoardError::Folder {
            path: folder.to_owned(),
            source,
        })?;
        let seconds = now() as u64;
        let process = std::process::id();
        let host = host_name();
        let mut number = 0;
        loop {
            let path = folder.join(format!("events.out.tfevents.{seconds:010}.{host}.{process}.{number}"));
            match File::options().append(true).create_new(true).open(&path) {
                Ok(file) => {
                    let mut file = Self::over(file, path);
                    file.append(&Event::Version)?;
                    file.flush()?;
                    return Ok(file);
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists && number < MAX_FILES => number += 1,
                Err(source) => return Err(TensorBoardError::Create { path, source }),
            }
        }
    }

    pub(super) fn over(file: File, path: PathBuf) -> Self {
        Self {
            file,
            path,
            pending: Vec::new(),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends an event, dated now. The file may have it only after [`flush`](Self::flush).
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn append(&mut self, event: &Event) -> Result<(), TensorBoardError> {
        record::append(&mut self.pending, &event.encode(now()));
        if self.pending.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    /// Hands what was appended to the system, which other programs see then. Whole records, unless the disk is full.
    ///
    /// # Errors
    /// When the file cannot be written, naming it. What could not be written is given up.
    pub fn flush(&mut self) -> Result<(), TensorBoardError> {
        let written = self.file.write_all(&self.pending);
        self.pending.clear();
        written.map_err(|source| self.error(source))
    }

    /// Flushes, and waits until the disk has it.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn sync(&mut self) -> Result<(), TensorBoardError> {
        self.flush()?;
        self.file.sync_data().map_err(|source| self.error(source))
    }

    fn error(&self, source: io::Error) -> TensorBoardError {
        TensorBoardError::Write {
            path: self.path.clone(),
            source,
        }
    }
}

/// The host's name, as a part of a file's.
fn host_name() -> String {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let plain = |letter: char| {
        if letter.is_ascii_alphanumeric() || "-_.".contains(letter) {
            letter
        } else {
            '_'
        }
    };
    match name.chars().map(plain).collect::<String>() {
        empty if empty.is_empty() => "localhost".to_owned(),
        name => name,
    }
}
