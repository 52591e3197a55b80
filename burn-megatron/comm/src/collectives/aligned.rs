//! [`AlignedBytes`]: bytes that are aligned for every element.

/// Memory for elements of any type.
#[derive(Debug, Default)]
pub(crate) struct AlignedBytes {
    words: Vec<u64>,
}

impl AlignedBytes {
    /// Returns the first `length` bytes, which hold zeros or what was written there before.
    pub fn of_length(&mut self, length: usize) -> &mut [u8] {
        self.words.resize(length.div_ceil(size_of::<u64>()), 0);
        &mut bytemuck::cast_slice_mut(&mut self.words)[..length]
    }
}
