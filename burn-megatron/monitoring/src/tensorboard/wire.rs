//! Fields of protobuf messages, appended to a buffer.
//!
//! A field is a varint of its number and its wire type (`number << 3 | type`) and its value: type 0 a varint, 1 eight
//! bytes, 2 a length and that number of bytes, 5 four bytes. Numbers are little-endian. A number that is zero is left
//! out, as protobuf itself does, except where it says which of several fields is set.

const VARINT: u64 = 0;
const FIXED_64: u64 = 1;
const BYTES: u64 = 2;
const FIXED_32: u64 = 5;

/// Appends a number, seven bits a byte, the lowest first; the top bit says that more follow.
pub(super) fn varint(buffer: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        buffer.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    buffer.push(value.to_le_bytes()[0]);
}

fn key(buffer: &mut Vec<u8>, field: u64, wire_type: u64) {
    varint(buffer, field << 3 | wire_type);
}

/// An `int64` or an enum: negative numbers take ten bytes.
pub(super) fn int64(buffer: &mut Vec<u8>, field: u64, value: i64) {
    if value != 0 {
        key(buffer, field, VARINT);
        varint(buffer, value.cast_unsigned());
    }
}

/// A `double`.
pub(super) fn double(buffer: &mut Vec<u8>, field: u64, value: f64) {
    if value.to_bits() != 0 {
        key(buffer, field, FIXED_64);
        buffer.extend(value.to_le_bytes());
    }
}

/// A `float` that is one of several fields: zero too.
pub(super) fn float(buffer: &mut Vec<u8>, field: u64, value: f32) {
    key(buffer, field, FIXED_32);
    buffer.extend(value.to_le_bytes());
}

/// A `string`, `bytes` or a message that is already encoded.
pub(super) fn bytes(buffer: &mut Vec<u8>, field: u64, value: &[u8]) {
    key(buffer, field, BYTES);
    varint(buffer, value.len() as u64);
    buffer.extend(value);
}

/// A message, whose fields `fill` appends.
pub(super) fn message(buffer: &mut Vec<u8>, field: u64, fill: impl FnOnce(&mut Vec<u8>)) {
    let mut inner = Vec::new();
    fill(&mut inner);
    bytes(buffer, field, &inner);
}

/// A packed list of `double`.
pub(super) fn doubles(buffer: &mut Vec<u8>, field: u64, values: &[f64]) {
    key(buffer, field, BYTES);
    varint(buffer, 8 * values.len() as u64);
    for value in values {
        buffer.extend(value.to_le_bytes());
    }
}
