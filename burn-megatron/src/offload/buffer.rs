//! [`Buffer`]: bytes at an address that direct reads and writes take.

/// Addresses, offsets and lengths of direct transfers are multiples of this, which is that of every usual disk.
pub(super) const ALIGNMENT: usize = 4096;

/// Bytes whose address is a multiple of [`ALIGNMENT`]. They stay where they are when the buffer is moved.
#[derive(Debug)]
pub(super) struct Buffer {
    memory: Vec<u8>,
    begin: usize,
    length: usize,
}

impl Buffer {
    /// Returns `length` bytes, all 0.
    pub fn new(length: usize) -> Self {
        let memory = vec![0; length + ALIGNMENT];
        let address = memory.as_ptr() as usize;
        Self {
            begin: address.next_multiple_of(ALIGNMENT) - address,
            memory,
            length,
        }
    }

    /// Returns the same memory as `length` bytes, of whatever values; `None` if it has fewer.
    pub fn reused(self, length: usize) -> Option<Self> {
        let fits = length + ALIGNMENT <= self.memory.len();
        fits.then_some(Self { length, ..self })
    }

    pub fn bytes(&self) -> &[u8] {
        &self.memory[self.begin..self.begin + self.length]
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.begin..self.begin + self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_aligned_and_stays_where_it_is() {
        for length in [0, 1, ALIGNMENT, 3 * ALIGNMENT + 5] {
            let buffer = Buffer::new(length);
            let address = buffer.bytes().as_ptr() as usize;
            assert_eq!((address % ALIGNMENT, buffer.bytes().len()), (0, length));
            let moved = Box::new(buffer);
            assert_eq!(moved.bytes().as_ptr() as usize, address);
        }
    }

    #[test]
    fn memory_is_reused_for_no_more_than_it_has() {
        let buffer = Buffer::new(10 * ALIGNMENT);
        let buffer = buffer.reused(3 * ALIGNMENT).expect("it is less");
        assert_eq!(buffer.bytes().len(), 3 * ALIGNMENT);
        let buffer = buffer.reused(10 * ALIGNMENT).expect("it is what it was made of");
        assert!(buffer.reused(10 * ALIGNMENT + 1).is_none());
    }
}
