//! Plain writes in large pieces, down to the disk.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::Context as _;
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};

/// Addresses and lengths of direct writes are multiples of this.
const ALIGNMENT: usize = 4096;
/// Bytes of a piece.
const PIECE_BYTES: usize = 4 << 20;

/// Ways of the bytes to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Through the page cache, as most programs write.
    Cached,
    /// Past it (`O_DIRECT`).
    Direct,
}

/// Returns bytes that no disk can squeeze, as the bytes of numbers in training.
pub fn noise() -> anyhow::Result<Vec<u8>> {
    let mut noise = vec![0; PIECE_BYTES + ALIGNMENT];
    getrandom::fill(&mut noise)?;
    Ok(noise)
}

/// Writes a file of `bytes` bytes, rounded up to whole blocks, and waits until they are on the disk.
pub fn write(path: &Path, way: Way, noise: &[u8], bytes: u64) -> anyhow::Result<()> {
    let noise = &noise[noise.as_ptr().align_offset(ALIGNMENT)..][..PIECE_BYTES];
    let write = || {
        let mut file = File::create_new(path)?;
        if way == Way::Direct {
            fcntl_setfl(&file, fcntl_getfl(&file)? | OFlags::DIRECT)?;
        }
        let mut left = bytes.next_multiple_of(ALIGNMENT as u64);
        while left > 0 {
            let piece = left.min(noise.len() as u64) as usize;
            file.write_all(&noise[..piece])?;
            left -= piece as u64;
        }
        file.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}

/// Waits until all that was changed on the file system of a folder is on the disk.
pub fn sync(folder: &Path) -> anyhow::Result<()> {
    let sync = || Ok::<_, std::io::Error>(rustix::fs::syncfs(File::open(folder)?)?);
    sync().with_context(|| format!("cannot sync the file system of {}", folder.display()))
}
