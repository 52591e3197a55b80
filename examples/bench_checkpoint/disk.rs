//! What the disk can do: plain writes in large pieces, down to the disk. Called by `main`.

use std::fs::File;
use std::io::Write;
use std::path::Path;

use anyhow::Context as _;

/// Bytes of a piece.
const PIECE_BYTES: usize = 4 << 20;

/// Returns bytes that no disk can squeeze, as the bytes of numbers in training.
pub fn noise(seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        // Xorshift: never 0.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..PIECE_BYTES / 8).flat_map(|_| next().to_le_bytes()).collect()
}

/// Writes a file of so many bytes and waits until they are on the disk.
pub fn write(path: &Path, noise: &[u8], bytes: u64) -> anyhow::Result<()> {
    let write = || {
        let mut file = File::create_new(path)?;
        let mut left = bytes;
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
