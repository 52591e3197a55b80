//! Records: how events follow each other in a file.
//!
//! A record is the length of its data in 8 bytes, the masked checksum of these in 4, the data, and the masked checksum
//! of the data in 4, all little-endian. The checksum is CRC-32C (Castagnoli); it is masked because data that contain
//! checksums of themselves would otherwise make weak ones.

/// The bytes of a record that are not its data.
pub const OVERHEAD: usize = 16;

/// Returns the masked CRC-32C of some bytes: turned right by 15 bits, plus a constant.
pub fn masked_crc(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xa282_ead8)
}

/// Appends a record of these data.
pub fn append(buffer: &mut Vec<u8>, data: &[u8]) {
    let length = (data.len() as u64).to_le_bytes();
    buffer.reserve(data.len() + OVERHEAD);
    buffer.extend(length);
    buffer.extend(masked_crc(&length).to_le_bytes());
    buffer.extend(data);
    buffer.extend(masked_crc(data).to_le_bytes());
}
