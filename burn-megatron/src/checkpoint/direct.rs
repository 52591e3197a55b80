//! [`DirectFile`]: a new file that is written past the page cache where the file system can do that. Called for shards.
//!
//! A checkpoint is written once and not read soon. Through the page cache it would be copied into fresh pages, which
//! take memory and time from training, and brought to the disk only at the end; past it, the disk writes from the first
//! block on.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// Addresses, offsets and lengths of direct writes are multiples of this, which is that of every usual disk.
const ALIGNMENT: usize = 4096;
/// Bytes of a write.
const BUFFER_BYTES: usize = 4 << 20;

/// A file that is written from the start to the end, once.
#[derive(Debug)]
pub(super) struct DirectFile {
    file: File,
    is_direct: bool,
    /// From `begin` on, `BUFFER_BYTES` whose address is aligned.
    memory: Vec<u8>,
    begin: usize,
    /// Bytes that wait in the buffer.
    filled: usize,
}

impl DirectFile {
    /// Makes a file that is not there yet.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn create_new(path: &Path) -> io::Result<Self> {
        let memory = vec![0; BUFFER_BYTES + ALIGNMENT];
        let mut file = Self {
            file: File::create_new(path)?,
            is_direct: false,
            begin: (memory.as_ptr() as usize).next_multiple_of(ALIGNMENT) - memory.as_ptr() as usize,
            memory,
            filled: 0,
        };
        // After it was made: some kernels make the file and then refuse the flag.
        match file.set_direct(true) {
            Ok(()) | Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok(file),
            Err(error) => Err(error.into()),
        }
    }

    fn set_direct(&mut self, is_direct: bool) -> Result<(), Errno> {
        let mut flags = fcntl_getfl(&self.file)?;
        flags.set(OFlags::DIRECT, is_direct);
        fcntl_setfl(&self.file, flags)?;
        self.is_direct = is_direct;
        Ok(())
    }

    /// Writes what waits in the buffer.
    fn empty(&mut self) -> io::Result<()> {
        let mut written = 0;
        while written < self.filled {
            if self.is_direct && !(self.filled - written).is_multiple_of(ALIGNMENT) {
                self.set_direct(false)?;
            }
            let range = self.begin + written..self.begin + self.filled;
            match self.file.write(&self.memory[range]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A disk of larger blocks, or a write that a limit of the file's size would cut short.
                Err(error) if self.is_direct && error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                    self.set_direct(false)?;
                }
                Err(error) => return Err(error),
            }
        }
        self.filled = 0;
        Ok(())
    }

    /// Waits until all that was written is on the disk.
    ///
    /// # Errors
    /// The operating system refuses.
    pub fn finish(mut self) -> io::Result<()> {
        self.empty()?;
        self.file.sync_all()
    }
}

impl Write for DirectFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.filled == BUFFER_BYTES {
            self.empty()?;
        }
        let count = bytes.len().min(BUFFER_BYTES - self.filled);
        let place = self.begin + self.filled;
        self.memory[place..place + count].copy_from_slice(&bytes[..count]);
        self.filled += count;
        Ok(count)
    }

    /// Nothing: only whole buffers can be written past the page cache, and [`finish`](Self::finish) writes the last.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    fn bytes(count: usize) -> Vec<u8> {
        (0..count).map(|i| (i % 251) as u8).collect()
    }

    #[test]
    fn every_size_arrives_whole() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("file");
        for size in [
            0,
            1,
            ALIGNMENT - 1,
            ALIGNMENT,
            BUFFER_BYTES,
            BUFFER_BYTES + 1,
            2 * BUFFER_BYTES + ALIGNMENT,
        ] {
            for is_direct in [true, false] {
                let content = bytes(size);
                let mut file = DirectFile::create_new(&path).unwrap();
                if !is_direct {
                    file.set_direct(false).unwrap();
                }
                for piece in content.chunks(999_983) {
                    file.write_all(piece).unwrap();
                }
                file.finish().unwrap();
                assert!(std::fs::read(&path).unwrap() == content, "{size} bytes, {is_direct}");
                std::fs::remove_file(&path).unwrap();
            }
        }
    }

    #[test]
    fn blocks_that_are_refused_are_written_through_the_page_cache() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("file");
        let content = bytes(2 * BUFFER_BYTES);
        let mut file = DirectFile::create_new(&path).unwrap();
        // As on a disk of larger blocks: no write from such an address is taken.
        file.begin = (file.begin + 8) % ALIGNMENT;
        file.write_all(&content).unwrap();
        file.finish().unwrap();
        assert!(std::fs::read(&path).unwrap() == content);
    }
}
