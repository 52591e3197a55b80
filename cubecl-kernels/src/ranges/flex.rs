//! Ranges on the CPU, written in place: `slice_assign` of burn's backend copies the whole buffer each time.

use std::ops::Range;

use burn_flex::FlexTensor;

use super::RangeTarget;
use crate::flex::number::{Number, with_number};
use crate::flex::tensor::in_order;

/// Returns the buffer with values in the ranges.
pub fn scatter(buffer: FlexTensor, values: FlexTensor, targets: &[RangeTarget]) -> FlexTensor {
    with_number!(buffer.dtype(), T => scatter_in::<T>(buffer, values, targets))
}

fn scatter_in<T: Number>(buffer: FlexTensor, values: FlexTensor, targets: &[RangeTarget]) -> FlexTensor {
    let (mut buffer, values) = (in_order(buffer), in_order(values));
    let (places, values) = (buffer.storage_mut::<T>(), values.storage::<T>());
    for RangeTarget { range, start } in targets {
        places[range.clone()].copy_from_slice(&values[*start..start + range.len()]);
    }
    buffer
}

/// Returns the buffer with zeros in the ranges.
pub fn clear(buffer: FlexTensor, ranges: &[Range<usize>]) -> FlexTensor {
    with_number!(buffer.dtype(), T => clear_in::<T>(buffer, ranges))
}

fn clear_in<T: Number>(buffer: FlexTensor, ranges: &[Range<usize>]) -> FlexTensor {
    let mut buffer = in_order(buffer);
    let places = buffer.storage_mut::<T>();
    for range in ranges {
        places[range.clone()].fill(T::zeroed());
    }
    buffer
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flex::tensor::tensor;

    #[test]
    fn a_buffer_that_nothing_else_holds_is_written_in_place() {
        let mut buffer = tensor(vec![0f32; 8], [8]);
        let address = |buffer: &FlexTensor| buffer.storage::<f32>().as_ptr();
        let before = address(&buffer);
        let target = RangeTarget { range: 2..4, start: 1 };
        buffer = scatter(buffer, tensor(vec![1f32, 2.0, 3.0], [3]), &[target]);
        buffer = clear(buffer, &[3..5, 6..7]);
        assert_eq!(address(&buffer), before);
        let held = buffer.clone();
        buffer = clear(buffer, &[0..4, 4..8]);
        assert_eq!(held.storage::<f32>()[2], 2.0);
        assert_eq!(buffer.storage::<f32>(), [0.0; 8]);
    }
}
