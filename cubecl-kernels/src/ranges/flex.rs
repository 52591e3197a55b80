//! Ranges on the CPU, written in place: `slice_assign` of burn's backend copies the whole buffer each time.

use std::ops::Range;

use burn::tensor::Tensor;
use burn_flex::Flex;

use super::RangeTarget;
use crate::flex::number::{Number, with_number};
use crate::flex::tensor::flat;
use crate::tape::float;

/// Returns the buffer with values in the ranges.
pub fn scatter(buffer: Tensor<Flex, 1>, values: Tensor<Flex, 1>, targets: &[RangeTarget]) -> Tensor<Flex, 1> {
    with_number!(buffer.dtype(), T => scatter_in::<T>(buffer, values, targets))
}

fn scatter_in<T: Number>(buffer: Tensor<Flex, 1>, values: Tensor<Flex, 1>, targets: &[RangeTarget]) -> Tensor<Flex, 1> {
    let (mut buffer, values) = (flat(buffer), flat(values));
    let (places, values) = (buffer.storage_mut::<T>(), values.storage::<T>());
    for RangeTarget { range, start } in targets {
        places[range.clone()].copy_from_slice(&values[*start..start + range.len()]);
    }
    float(buffer)
}

/// Returns the buffer with zeros in the ranges.
pub fn clear(buffer: Tensor<Flex, 1>, ranges: &[Range<usize>]) -> Tensor<Flex, 1> {
    with_number!(buffer.dtype(), T => clear_in::<T>(buffer, ranges))
}

fn clear_in<T: Number>(buffer: Tensor<Flex, 1>, ranges: &[Range<usize>]) -> Tensor<Flex, 1> {
    let mut buffer = flat(buffer);
    let places = buffer.storage_mut::<T>();
    for range in ranges {
        places[range.clone()].fill(T::zeroed());
    }
    float(buffer)
}

#[cfg(test)]
mod tests {
    use burn::tensor::Tensor;

    use super::*;
    use crate::tape::primitive;

    #[test]
    fn a_buffer_that_nothing_else_holds_is_written_in_place() {
        let device = Default::default();
        let mut buffer = Tensor::<Flex, 1>::zeros([8], &device);
        let address = |buffer: &Tensor<Flex, 1>| primitive(buffer.clone()).storage::<f32>().as_ptr();
        let before = address(&buffer);
        let target = RangeTarget { range: 2..4, start: 1 };
        buffer = scatter(buffer, Tensor::from_floats([1.0, 2.0, 3.0], &device), &[target]);
        buffer = clear(buffer, &[3..5, 6..7]);
        assert_eq!(address(&buffer), before);
        let held = buffer.clone();
        buffer = clear(buffer, &[0..4, 4..8]);
        assert_eq!(held.into_data().to_vec::<f32>().unwrap()[2], 2.0);
        assert_eq!(buffer.into_data().to_vec::<f32>().unwrap(), [0.0; 8]);
    }
}
