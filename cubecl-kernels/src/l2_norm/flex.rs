//! Sums of squares on the CPU.

use burn_flex::FlexTensor;

use super::SquaredPart;
use crate::flex::blocks::in_blocks;
use crate::flex::lanes::sums;
use crate::flex::math::{Real, vectorised};
use crate::flex::number::{Number, with_number};
use crate::flex::tensor::{in_order, tensor};

/// Elements that are added up in their own type; these sums are added up in f64.
const CHUNK: usize = 4096;

/// Returns the sums over parts of buffers, of which there is one at least.
pub fn sums_of_squares(buffers: Vec<FlexTensor>, parts: &[SquaredPart], sums: usize) -> FlexTensor {
    with_number!(buffers[0].dtype(), T => sums_in::<T>(buffers, parts, sums))
}

fn sums_in<T: Number>(buffers: Vec<FlexTensor>, parts: &[SquaredPart], sums: usize) -> FlexTensor {
    let buffers: Vec<_> = buffers.into_iter().map(in_order).collect();
    let mut totals = vec![0.0; sums];
    for part in parts {
        totals[part.sum] += sum_of_squares(&buffers[part.buffer].storage::<T>()[part.range.clone()]);
    }
    tensor(totals.into_iter().map(T::Real::of).collect(), [sums])
}

fn sum_of_squares<T: Number>(values: &[T]) -> f64 {
    let blocks = in_blocks([values.len(), 1], (), |range, ()| {
        vectorised(
            #[inline(always)]
            || {
                let mut total = 0.0;
                let mut wide = Vec::new();
                for chunk in values[range].chunks(CHUNK) {
                    let chunk = T::read(chunk, &mut wide);
                    let [sum] = sums(
                        [chunk],
                        #[inline(always)]
                        |[value]| [value * value],
                    );
                    total += sum.to_f64();
                }
                total
            },
        )
    });
    blocks.into_iter().sum()
}
