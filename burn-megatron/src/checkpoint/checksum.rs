//! Checksums of the blocks of a file: XXH3 with 64 bits of every 4 MiB.
//!
//! Computed in the pass that writes. One for each block and not one for the file, so that a rank that reads a part of a
//! file can check what it reads and nothing else.

use std::io::{self, Write};

use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Bytes of a block.
pub(super) const BLOCK_BYTES: u64 = 4 << 20;

/// Returns the checksum of some bytes.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    xxh3_64(bytes)
}

/// Returns one number for a whole file: the checksum of those of its blocks.
pub(super) fn combine(blocks: &[u64]) -> u64 {
    let mut hasher = Xxh3::new();
    for block in blocks {
        hasher.update(&block.to_le_bytes());
    }
    hasher.digest()
}

/// Writes through and computes the checksums of the blocks.
pub(super) struct ChecksumWriter<W> {
    inner: W,
    hasher: Xxh3,
    /// Bytes of the block that `hasher` has seen.
    filled: u64,
    blocks: Vec<u64>,
}

impl<W: Write> ChecksumWriter<W> {
    pub fn new(inner: W) -> Self {
        Self {
            inner,
            hasher: Xxh3::new(),
            filled: 0,
            blocks: Vec::new(),
        }
    }

    /// Returns what was written to, and the checksums.
    pub fn finish(mut self) -> (W, Vec<u64>) {
        self.end_block();
        (self.inner, self.blocks)
    }

    fn end_block(&mut self) {
        if self.filled > 0 {
            self.blocks.push(self.hasher.digest());
            self.hasher.reset();
            self.filled = 0;
        }
    }
}

impl<W: Write> Write for ChecksumWriter<W> {
    /// Writes at most the rest of a block: what has just been read by the hash is still in the cache.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = (BLOCK_BYTES - self.filled) as usize;
        let written = self.inner.write(&bytes[..bytes.len().min(room)])?;
        self.hasher.update(&bytes[..written]);
        self.filled += written as u64;
        if self.filled == BLOCK_BYTES {
            self.end_block();
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_do_not_depend_on_the_size_of_writes() {
        let bytes: Vec<u8> = (0..2 * BLOCK_BYTES + 100).map(|i| (i % 251) as u8).collect();
        let expected: Vec<u64> = bytes.chunks(BLOCK_BYTES as usize).map(checksum).collect();
        for size in [1 << 20, 999_999, bytes.len()] {
            let mut writer = ChecksumWriter::new(Vec::new());
            for piece in bytes.chunks(size) {
                writer.write_all(piece).unwrap();
            }
            let (written, blocks) = writer.finish();
            assert_eq!(blocks, expected, "pieces of {size}");
            assert!(written == bytes);
        }
    }

    #[test]
    fn the_checksum_is_xxh3() {
        // The test vector of the empty input in the reference implementation.
        assert_eq!(checksum(b""), 0x2d06_8005_38d3_94c2);
        assert!(ChecksumWriter::new(Vec::new()).finish().1.is_empty());
    }
}
