//! Tensors of burn's CPU backend as slices, and results as tensors of it.

use std::mem::MaybeUninit;

use burn::tensor::{Bytes, Shape, Tensor};
use burn_flex::{Flex, FlexTensor, Layout};

use super::blocks::{Rows, uninit};
use super::lanes::Destination;
use super::number::Number;
use crate::tape::{float, primitive};

/// Returns a tensor with its elements in order in memory that holds nothing else, and that is not shared if it was not
/// before.
pub(crate) fn in_order(tensor: FlexTensor) -> FlexTensor {
    // Where there is nothing to copy this is a second hold on the memory, let go with the argument.
    tensor.to_contiguous()
}

/// Returns the elements' memory, in order.
pub(crate) fn flat<const D: usize>(tensor: Tensor<Flex, D>) -> FlexTensor {
    in_order(primitive(tensor))
}

pub(crate) fn tensor<T: Number, const D: usize>(values: Vec<T>, shape: [usize; D]) -> Tensor<Flex, D> {
    float(FlexTensor::new(
        Bytes::from_elems(values),
        Layout::contiguous(Shape::from(shape)),
        T::dtype(),
    ))
}

/// Returns numbers rounded to a type.
pub(crate) fn rounded<T: Number, const D: usize>(values: Vec<T::Real>, shape: [usize; D]) -> Tensor<Flex, D> {
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
    pub fn over<const D: usize>(input: Tensor<Flex, D>) -> Self {
        let input = flat(input);
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
    pub unsafe fn finish<const D: usize>(self, shape: [usize; D]) -> Tensor<Flex, D> {
        match self.new {
            // SAFETY: the caller says so.
            Some(new) => tensor(unsafe { new.assume_init() }.into_vec(), shape),
            None => float(self.input),
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::s;

    use super::*;
    use crate::flex::lanes::map;

    #[test]
    fn an_input_is_written_over_only_where_nothing_else_holds_it() {
        let device = Default::default();
        let double = |input: Tensor<Flex, 2>| {
            let shape = input.dims();
            let mut place = Place::<f32>::over(input);
            map(place.rows(shape[1]).values, [], |value, []| 2.0 * value);
            // SAFETY: `map` wrote all of it.
            unsafe { place.finish(shape) }
        };
        let input = Tensor::<Flex, 2>::from_floats([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], &device);
        let output = double(input.clone());
        assert_eq!(input.to_data().to_vec::<f32>().unwrap(), [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
        assert_eq!(
            output.to_data().to_vec::<f32>().unwrap(),
            [2.0, 4.0, 6.0, 8.0, 10.0, 12.0]
        );
        // A view's memory holds more than the view.
        let view = input.clone().slice(s![1.., 1..]);
        drop(input);
        assert_eq!(double(view).to_data().to_vec::<f32>().unwrap(), [10.0, 12.0]);
        let address = |tensor: &Tensor<Flex, 2>| primitive(tensor.clone()).bytes().as_ptr();
        let before = address(&output);
        assert_eq!(address(&double(output)), before);
    }
}
