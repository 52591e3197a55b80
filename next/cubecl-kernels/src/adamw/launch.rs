//! Launches the kernels of AdamW.

use burn::tensor::DType;
use burn_backend::cubecl::dtype_to_elem_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::AdamWStep;
use super::kernel::{self, NumbersLaunch};
use crate::cube::launch::{address_type, empty_beside};
use crate::cube::walk::{UNITS, cube_count};

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
