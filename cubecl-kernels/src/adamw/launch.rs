//! Launches the kernels of AdamW.

use burn::tensor::DType;
use burn_cubecl::{CubeRuntime, tensor::CubeTensor};
use cubecl::prelude::*;

use super::kernel::{self, NumbersLaunch};
use super::{AdamWRanges, AdamWStep};
use crate::cube::launch::{address_type, empty_beside, into_contiguous, is_supported, own};
use crate::cube::parts::{DeviceParts, Part};
use crate::cube::walk::{UNITS, cube_count};

/// Vectors that a unit updates, where there are enough for all units.
const VECTORS_EACH: usize = 8;

/// Whether the kernels update such parameters by such gradients, into such a copy.
pub(crate) fn runs<R: CubeRuntime>(parameter: &CubeTensor<R>, gradient: &CubeTensor<R>, copy: Option<DType>) -> bool {
    let is_supported = |dtype| is_supported(&parameter.client, dtype);
    parameter.dtype == DType::F32 && is_supported(gradient.dtype) && copy.is_none_or(is_supported)
}

/// Returns the new parameters and moments, each in its own memory if nothing else holds that, and the copy.
pub(crate) fn step<R: CubeRuntime>(
    buffers: [CubeTensor<R>; 3],
    gradient: CubeTensor<R>,
    step: &AdamWStep,
    copy: Option<DType>,
) -> ([CubeTensor<R>; 3], Option<CubeTensor<R>>) {
    let (buffers, gradient) = (buffers.map(into_contiguous), into_contiguous(gradient));
    let count = gradient.meta.shape()[0];
    let is_ours = buffers.each_ref().map(|buffer| buffer.can_mut());
    let copied = copy.map(|dtype| empty_beside(&gradient, &[count], dtype));
    if count == 0 {
        return (buffers, copied);
    }
    let outputs: [CubeTensor<R>; 3] = std::array::from_fn(|index| {
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
    let dtype = gradient.dtype.into();
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
                buffers[index].as_tensor_alias(index).into_array_arg()
            } else {
                outputs[index].clone().into_array_arg()
            }
        });
        let inputs = [parameter, moment_1, moment_2, &gradient];
        let [parameter, moment_1, moment_2, gradient] = inputs.map(|input| input.clone().into_array_arg());
        // SAFETY: the kernels bound their index by `end`, and all buffers have the same number of elements. Each unit
        // reads what it writes before it does, and nothing else of it.
        unsafe {
            match &copied {
                None => kernel::step::launch_unchecked::<R>(
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
                Some(copy) => kernel::step_with_copy::launch_unchecked::<R>(
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
                    copy.clone().into_array_arg(),
                    numbers(step),
                    first,
                    end,
                    [dtype, copy.dtype.into()],
                ),
            }
        }
    }
    (outputs, copied)
}

/// Returns the buffers with the ranges updated, each in its own memory if nothing else holds that, and the copy.
pub(crate) fn step_ranges<R: CubeRuntime>(
    buffers: [CubeTensor<R>; 3],
    gradient: CubeTensor<R>,
    steps: &[AdamWRanges],
    copy: DType,
) -> ([CubeTensor<R>; 3], CubeTensor<R>) {
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
        let [parameter, moment_1, moment_2] = buffers.each_ref().map(|buffer| buffer.clone().into_array_arg());
        // SAFETY: the ranges are in the buffers, which have the same number of elements, and so are their last vectors.
        // Each unit reads what it writes before it does, and nothing else of it.
        unsafe {
            kernel::step_parts::launch_unchecked::<R>(
                &client,
                cube_count(&client, table.cubes()),
                CubeDim::new_1d(UNITS),
                address_type(&[&buffers[0], &gradient]),
                vector_size,
                parameter,
                moment_1,
                moment_2,
                gradient.clone().into_array_arg(),
                copied.clone().into_array_arg(),
                numbers(step),
                table.argument(),
                UNITS as usize,
                [gradient.dtype.into(), copied.dtype.into()],
            );
        }
    }
    (buffers, copied)
}

/// The step's numbers, worked out in f64.
fn numbers<R: CubeRuntime>(step: &AdamWStep) -> NumbersLaunch<R> {
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
