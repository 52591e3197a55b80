//! [`AlignedBytes`]: bytes that are aligned for every element.

/// Memory for elements of any type.
#[derive(Debug, Default)]
pub(crate) struct AlignedBytes {
    words: Vec<u64>,
}

impl AlignedBytes {
    /// Every multiple of this many bytes from the start is aligned too.
    pub const ALIGNMENT: usize = size_of::<u64>();

    /// Returns the first `length` bytes, which hold zeros or what was written there before; never gives memory back.
    pub fn of_length(&mut self, length: usize) -> &mut [u8] {
        let words = length.div_ceil(Self::ALIGNMENT);
        self.words.resize(words.max(self.words.len()), 0);
        &mut bytemuck::cast_slice_mut(&mut self.words)[..length]
    }
}
