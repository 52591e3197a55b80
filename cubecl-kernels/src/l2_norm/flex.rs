//! The sum of squares on the CPU.

use burn::tensor::Tensor;
use burn_flex::Flex;

use crate::flex::blocks::in_blocks;
use crate::flex::lanes::sums;
use crate::flex::math::{Real, vectorised};
use crate::flex::number::{Number, with_number};
use crate::flex::tensor::{flat, tensor};

/// Elements that are added up in their own type; these sums are added up in f64.
const CHUNK: usize = 4096;

/// Returns the sum over all buffers, of which there is one at least.
pub fn sum_of_squares(buffers: Vec<Tensor<Flex, 1>>) -> Tensor<Flex, 1> {
    with_number!(buffers[0].dtype(), T => sum_in::<T>(buffers))
}

fn sum_in<T: Number>(buffers: Vec<Tensor<Flex, 1>>) -> Tensor<Flex, 1> {
    let total: f64 = buffers.into_iter().map(one_buffer::<T>).sum();
    tensor(vec![T::Real::of(total)], [1])
}

fn one_buffer<T: Number>(buffer: Tensor<Flex, 1>) -> f64 {
    let buffer = flat(buffer);
    let values = buffer.storage::<T>();
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
