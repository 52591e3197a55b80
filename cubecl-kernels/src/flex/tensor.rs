//! Tensors of burn's CPU backend as slices, and results as tensors of it.

use std::mem::MaybeUninit;

use burn::tensor::{Bytes, Shape};
use burn_flex::{FlexTensor, Layout};

use super::blocks::{Rows, uninit};
use super::lanes::Destination;
use super::number::Number;

/// Returns a tensor with its elements in order in memory that holds nothing else, and that is not shared if it was not
/// before.
pub(crate) fn in_order(tensor: FlexTensor) -> FlexTensor {
    // Where there is nothing to copy this is a second hold on the memory, let go with the argument.
    tensor.to_contiguous()
}

/// Returns the sizes of a tensor of `D` dimensions.
pub(crate) fn dims<const D: usize>(tensor: &FlexTensor) -> [usize; D] {
    tensor.layout().shape().dims()
}

pub(crate) fn tensor<T: Number, const D: usize>(values: Vec<T>, shape: [usize; D]) -> FlexTensor {
    FlexTensor::new(
        Bytes::from_elems(values),
        Layout::contiguous(Shape::from(shape)),
        T::dtype(),
    )
}

/// Returns numbers rounded to a type.
pub(crate) fn rounded<T: Number, const D: usize>(values: Vec<T::Real>, shape: [usize; D]) -> FlexTensor {
    let mut result = uninit::<T>(values.len());
    let to = Destination::New {
        from: &[],
        to: &mut result,
    };
    T::write(&values, to);
    // SAFETY: all of it was written.
    tensor(unsafe { result.assume_init() }.into_vec(), shape)
}

/// The memory of an output that has the shape of one of the inputs: that input's own if nothing else holds it.
pub(crate) struct Place<T> {
    input: FlexTensor,
    new: Option<Box<[MaybeUninit<T>]>>,
}

impl<T: Number> Place<T> {
    /// A place for what is made of `input`.
    pub fn over(input: FlexTensor) -> Self {
        let input = in_order(input);
        let new = (!input.is_unique()).then(|| uninit(input.storage::<T>().len()));
        Self { input, new }
    }

    /// The input's elements with the places of the output's, in rows.
    pub fn rows(&mut self, columns: usize) -> Rows<Destination<'_, T>> {
        let values = match &mut self.new {
            Some(to) => Destination::New {
                from: self.input.storage(),
                to,
            },
            None => Destination::Over(self.input.storage_mut()),
        };
        Rows { values, columns }
    }

    /// Returns the output.
    ///
    /// # Safety
    /// All [`rows`](Self::rows) have been written.
    pub unsafe fn finish<const D: usize>(self, shape: [usize; D]) -> FlexTensor {
        match self.new {
            // SAFETY: the caller says so.
            Some(new) => tensor(unsafe { new.assume_init() }.into_vec(), shape),
            None => self.input,
        }
    }
}
