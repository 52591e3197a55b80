//! Launches the kernels of AdamW.

use burn::tensor::DType;
use burn_backend::cubecl::dtype_to_elem_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::kernel::{self, NumbersLaunch};
use super::{AdamWRanges, AdamWStep};
use crate::cube::launch::{address_type, empty_beside, own};
use crate::cube::parts::{DeviceParts, Part};
use crate::cube::walk::{UNITS, cube_count};

/// Vectors that a unit updates, where there are enough for all units.
const VECTORS_EACH: usize = 8;

/// Returns the new parameters and moments, each in its own memory if nothing else holds that, and the copy.
pub(crate) fn step(
    buffers: [CubeTensor; 3],
    gradient: CubeTensor,
    step: &AdamWStep,
    copy: Option<DType>,
) -> ([CubeTensor; 3], Option<CubeTensor>) {
    let (buffers, gradient) = (buffers.map(into_contiguous), into_contiguous(gradient));
    let count = gradient.meta.shape()[0];
    let is_ours = buffers.each_ref().map(|buffer| buffer.can_mut());
    let copied = copy.map(|dtype| empty_beside(&gradient, &[count], dtype));
    let outputs: [CubeTensor; 3] = std::array::from_fn(|index| {
        if is_ours[index] {
            buffers[index].clone()
        } else {
            empty_beside(&gradient, &[count], DType::F32)
        }
    });
    let [parameter, moment_1, moment_2] = &buffers;
    let (client, address_type) = (gradient.client.clone(), address_type(&[parameter, &gradient]));
    let mut sizes = client.io_optimized_vector_sizes(DType::F32.size());
    let vector_size = sizes.next().unwrap_or(1);
    let dtype = dtype_to_elem_type(gradient.dtype);
    // Whole vectors, and then what is left, one by one.
    let vectors = count / vector_size;
    for (size, first, end) in [(vector_size, 0, vectors), (1, vectors * vector_size, count)] {
        if first == end {
            continue;
        }
        let cubes = cube_count(&client, (end - first).div_ceil(UNITS as usize));
        let units = CubeDim::new_1d(UNITS);
        let [p, m, v] = std::array::from_fn(|index| {
            if is_ours[index] {
                buffers[index].as_tensor_alias(index).into_buffer_arg()
            } else {
                outputs[index].clone().into_buffer_arg()
            }
        });
        let inputs = [parameter, moment_1, moment_2, &gradient];
        let [parameter, moment_1, moment_2, gradient] = inputs.map(|input| input.clone().into_buffer_arg());
        // SAFETY: the kernels bound their index by `end`, and all buffers have the same number of elements. Each unit
        // reads what it writes before it does, and nothing else of it.
        unsafe {
            match &copied {
                None => kernel::step::launch_unchecked(
                    &client,
                    cubes,
                    units,
                    address_type,
                    size,
                    parameter,
                    moment_1,
                    moment_2,
                    gradient,
                    p,
                    m,
                    v,
                    numbers(step),
                    first,
                    end,
                    dtype,
                ),
                Some(copy) => kernel::step_with_copy::launch_unchecked(
                    &client,
                    cubes,
                    units,
                    address_type,
                    size,
                    parameter,
                    moment_1,
                    moment_2,
                    gradient,
                    p,
                    m,
                    v,
                    copy.clone().into_buffer_arg(),
                    numbers(step),
                    first,
                    end,
                    [dtype, dtype_to_elem_type(copy.dtype)],
                ),
            }
        }
    }
    (outputs, copied)
}

/// Returns the buffers with the ranges updated, each in its own memory if nothing else holds that, and the copy.
pub(crate) fn step_ranges(
    buffers: [CubeTensor; 3],
    gradient: CubeTensor,
    steps: &[AdamWRanges],
    copy: DType,
) -> ([CubeTensor; 3], CubeTensor) {
    let (buffers, gradient) = (buffers.map(own), into_contiguous(gradient));
    let count = gradient.meta.shape()[0];
    let copied = empty_beside(&gradient, &[count], copy);
    let client = gradient.client.clone();
    for AdamWRanges { step, ranges } in steps {
        let ranges: Vec<_> = ranges.iter().filter(|range| !range.is_empty()).collect();
        if ranges.is_empty() {
            continue;
        }
        // Vectors begin where ranges do, and none ends beyond the buffers.
        let mut sizes = client.io_optimized_vector_sizes(DType::F32.size());
        let fits =
            |size: &usize| count.is_multiple_of(*size) && ranges.iter().all(|range| range.start.is_multiple_of(*size));
        let vector_size = sizes.find(fits).unwrap_or(1);
        let parts = ranges.iter().map(|range| Part {
            start: range.start,
            count: range.len(),
            cubes: range.len().div_ceil(vector_size * UNITS as usize * VECTORS_EACH),
            place: 0,
        });
        let table = DeviceParts::new(&client, parts);
        let [parameter, moment_1, moment_2] = buffers.each_ref().map(|buffer| buffer.clone().into_buffer_arg());
        // SAFETY: the ranges are in the buffers, which have the same number of elements, and so are their last vectors.
        // Each unit reads what it writes before it does, and nothing else of it.
        unsafe {
            kernel::step_parts::launch_unchecked(
                &client,
                cube_count(&client, table.cubes()),
                CubeDim::new_1d(UNITS),
                address_type(&[&buffers[0], &gradient]),
                vector_size,
                parameter,
                moment_1,
                moment_2,
                gradient.clone().into_buffer_arg(),
                copied.clone().into_buffer_arg(),
                numbers(step),
                table.argument(),
                UNITS as usize,
                [gradient.dtype, copied.dtype].map(dtype_to_elem_type),
            );
        }
    }
    (buffers, copied)
}

/// The step's numbers, worked out in f64.
fn numbers(step: &AdamWStep) -> NumbersLaunch {
    let [correction_1, correction_2] = step.corrections();
    NumbersLaunch::new(
        step.gradient_scale as f32,
        step.beta_1 as f32,
        (1.0 - step.beta_1) as f32,
        step.beta_2 as f32,
        (1.0 - step.beta_2) as f32,
        (step.learning_rate / correction_1) as f32,
        (1.0 / correction_2.sqrt()) as f32,
        step.epsilon as f32,
        (1.0 - step.learning_rate * step.weight_decay) as f32,
    )
}
