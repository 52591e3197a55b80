//! Tensors `[batch, seq, heads, d_head]` as matrices `[seq, d_head]` of a sample and head, to be read and to be
//! written.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;

use burn_flex::FlexTensor;

use crate::flex::lanes::Destination;
use crate::flex::math::vectorised;
use crate::flex::number::Number;
use crate::flex::product::Matrix;

/// A tensor to be read.
pub(super) struct Heads<'a, T> {
    values: &'a [T],
    first: usize,
    strides: [isize; 4],
    pub dims: [usize; 4],
}

impl<'a, T: Number> Heads<'a, T> {
    pub fn of(tensor: &'a FlexTensor) -> Self {
        let layout = tensor.layout();
        let strides = layout.strides();
        Self {
            values: tensor.storage(),
            first: layout.start_offset(),
            strides: std::array::from_fn(|dimension| strides[dimension]),
            dims: std::array::from_fn(|dimension| layout.shape()[dimension]),
        }
    }

    /// The rows of some tokens.
    pub fn rows(&self, sample: usize, head: usize, tokens: Range<usize>) -> Matrix<'a, T> {
        let [by_sample, by_token, by_head, by_element] = self.strides;
        let places = [(sample, by_sample), (head, by_head), (tokens.start, by_token)];
        let offset: isize = places.into_iter().map(|(index, stride)| index as isize * stride).sum();
        let first = (self.first as isize + offset) as usize;
        Matrix::new(self.values, first, [tokens.len(), self.dims[3]], [by_token, by_element])
    }
}

/// Memory of a tensor to be written, some of whose heads are shared out to tasks.
pub(super) struct Places<'a, T> {
    memory: *mut MaybeUninit<T>,
    length: usize,
    /// `[batch, seq, heads, d_head]` of all of the memory.
    dims: [usize; 4],
    first_head: usize,
    borrowed: PhantomData<&'a mut [MaybeUninit<T>]>,
}

// SAFETY: it is written through `write` alone, whose callers take care that no two write at one place.
unsafe impl<T: Send> Sync for Places<'_, T> {}

impl<'a, T: Number> Places<'a, T> {
    /// The places of `N` runs of heads, each from a number on.
    pub fn cut<const N: usize>(
        memory: &'a mut [MaybeUninit<T>],
        dims: [usize; 4],
        first_heads: [usize; N],
    ) -> [Self; N] {
        let length = memory.len();
        assert_eq!(length, dims.iter().product::<usize>(), "the memory of {dims:?}");
        let memory = memory.as_mut_ptr();
        first_heads.map(|first_head| Self {
            memory,
            length,
            dims,
            first_head,
            borrowed: PhantomData,
        })
    }

    /// Writes rows of a head, each multiplied by its factor, from a token on. `d_head` is not 0.
    ///
    /// # Safety
    /// No other thread writes them at the same time.
    pub unsafe fn write(
        &self,
        [sample, head, token]: [usize; 3],
        rows: &mut [T::Real],
        factor: impl Fn(usize) -> T::Real,
    ) {
        let [_, seq, heads, d_head] = self.dims;
        for (row, values) in rows.chunks_exact_mut(d_head).enumerate() {
            let start = ((sample * seq + token + row) * heads + self.first_head + head) * d_head;
            assert!(start + d_head <= self.length, "row {start} of {} values", self.length);
            // SAFETY: it is inside the memory, and the caller ensures that no other thread uses it meanwhile.
            let to = unsafe { std::slice::from_raw_parts_mut(self.memory.add(start), d_head) };
            let factor = factor(row);
            vectorised(
                #[inline(always)]
                || {
                    for value in values.iter_mut() {
                        *value = *value * factor;
                    }
                    T::write(values, Destination::New { from: &[], to });
                },
            );
        }
    }
}
