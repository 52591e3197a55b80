//! How the softmax's kernels are launched, for CubeCL's backends.

use burn::tensor::DType;
use burn_backend::cubecl::dtype_to_elem_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::Forward;
use super::kernel::{self, PlacesLaunch};
use crate::cube::launch::{Registers, RowPlan, address_type, empty_beside};
use crate::cube::math::{exponent_scale, is_fast};

/// The forward kernel holds a row in f32. Few units share a row: what each of them does once for it counts as much as
/// eight numbers.
const FORWARD: Registers = Registers { wanted: 32, most: 32 };
/// The backward kernel holds two rows in the tensor's type.
const BACKWARD: Registers = Registers { wanted: 16, most: 16 };

/// Returns the probabilities.
pub(crate) fn forward(scores: CubeTensor, masked: Option<CubeTensor>, softmax: &Forward) -> CubeTensor {
    let (scores, masked) = (into_contiguous(scores), masked.map(into_contiguous));
    let dims @ [batch, heads, queries, keys] = scores.meta.shape().dims();
    let (client, dtype) = (scores.client.clone(), scores.dtype);
    let [mask_batch, mask_heads, _, _] = masked.as_ref().map_or([1; 4], |masked| masked.meta.shape().dims());
    let mask_type = masked.as_ref().map_or(DType::U32, |masked| masked.dtype);
    let plan = RowPlan::new(&client, dtype, [batch * heads * queries, keys], FORWARD);
    let output = empty_beside(&scores, &dims, dtype);
    let is_fast = is_fast(&client);
    // A smaller one may count as 0, of which −∞ is no multiple.
    let sharpness = (softmax.scale as f32 * exponent_scale(is_fast)).max(f32::MIN_POSITIVE);
    let places = PlacesLaunch::new(
        queries,
        heads,
        if mask_batch == 1 { 0 } else { mask_heads },
        if mask_heads == 1 { 0 } else { 1 },
    );
    // SAFETY: the kernel bounds what it reads and writes by the rows' count and length, which are the tensors'; that of
    // the mask by its steps, which are the mask's shape.
    unsafe {
        kernel::forward::launch_unchecked(
            &client,
            plan.cube_count(&client),
            plan.cube_dim,
            address_type(&[&scores]),
            plan.vector_size,
            scores.into_buffer_arg(),
            masked.map(CubeTensor::into_buffer_arg).into(),
            output.clone().into_buffer_arg(),
            plan.rows_argument(),
            places,
            sharpness,
            f32::NEG_INFINITY,
            softmax.is_causal,
            is_fast,
            plan.layout,
            [dtype, mask_type].map(dtype_to_elem_type),
        );
    }
    output
}

/// Returns the scores' gradient for that of the probabilities.
pub(crate) fn backward(output: CubeTensor, gradient: CubeTensor, scale: f64) -> CubeTensor {
    let [output, gradient] = [output, gradient].map(into_contiguous);
    let dims @ [batch, heads, queries, keys] = output.meta.shape().dims();
    let (client, dtype) = (output.client.clone(), output.dtype);
    let plan = RowPlan::new(&client, dtype, [batch * heads * queries, keys], BACKWARD);
    let result = empty_beside(&output, &dims, dtype);
    // SAFETY: the kernel bounds what it reads and writes by the rows' count and length, which are the tensors'.
    unsafe {
        kernel::backward::launch_unchecked(
            &client,
            plan.cube_count(&client),
            plan.cube_dim,
            address_type(&[&output]),
            plan.vector_size,
            output.into_buffer_arg(),
            gradient.into_buffer_arg(),
            result.clone().into_buffer_arg(),
            plan.rows_argument(),
            scale as f32,
            plan.layout,
            dtype_to_elem_type(dtype),
        );
    }
    result
}
