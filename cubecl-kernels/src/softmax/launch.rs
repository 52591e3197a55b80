//! How the softmax's kernels are launched, for CubeCL's backends.

use burn::tensor::{DType, Tensor};
use burn_cubecl::CubeRuntime;

use super::kernel::{self, PlacesLaunch};
use super::{SoftmaxMask, reference};
use crate::cube::launch::{OnCube, Registers, RowPlan, address_type, empty_beside, into_contiguous, is_supported};
use crate::cube::math::{exponent_scale, is_fast};
use crate::tape::{float, primitive};

/// The forward kernel holds a row in f32. Few units share a row: what each of them does once for it counts as much as
/// eight numbers.
const FORWARD: Registers = Registers { wanted: 32, most: 32 };
/// The backward kernel holds two rows in the tensor's type.
const BACKWARD: Registers = Registers { wanted: 16, most: 16 };

/// Returns the probabilities.
pub(crate) fn forward<R: CubeRuntime, B: OnCube<R>>(
    scores: Tensor<B, 4>,
    mask: SoftmaxMask<B>,
    scale: f64,
) -> Tensor<B, 4> {
    let dims @ [batch, heads, queries, keys] = scores.dims();
    if dims.contains(&0) {
        return scores;
    }
    let input = into_contiguous(primitive(scores.clone()));
    let (client, dtype) = (input.client.clone(), input.dtype);
    if !is_supported(&client, dtype) {
        return reference::forward(scores, mask, scale);
    }
    let is_causal = matches!(mask, SoftmaxMask::Causal);
    let (mask, [mask_batch, mask_heads]) = match mask {
        SoftmaxMask::Given(mask) => {
            let [mask_batch, mask_heads, ..] = mask.dims();
            (Some(into_contiguous(mask.into_primitive())), [mask_batch, mask_heads])
        }
        SoftmaxMask::Nothing | SoftmaxMask::Causal => (None, [1, 1]),
    };
    let mask_type = mask.as_ref().map_or(DType::U32, |mask| mask.dtype);
    let plan = RowPlan::new(&client, dtype, [batch * heads * queries, keys], FORWARD);
    let output = empty_beside(&input, &dims, dtype);
    let is_fast = is_fast(&client);
    // A smaller one may count as 0, of which −∞ is no multiple.
    let sharpness = (scale as f32 * exponent_scale(is_fast)).max(f32::MIN_POSITIVE);
    let places = PlacesLaunch::new(
        queries,
        heads,
        if mask_batch == 1 { 0 } else { mask_heads },
        if mask_heads == 1 { 0 } else { 1 },
    );
    // SAFETY: the kernel bounds what it reads and writes by the rows' count and length, which are the tensors'; that of
    // the mask by its steps, which are the mask's shape.
    unsafe {
        kernel::forward::launch_unchecked::<R>(
            &client,
            plan.cube_count(&client),
            plan.cube_dim,
            address_type(&[&input]),
            plan.vector_size,
            input.into_array_arg(),
            mask.map(|mask| mask.into_array_arg()).into(),
            output.clone().into_array_arg(),
            plan.rows_argument(),
            places,
            sharpness,
            f32::NEG_INFINITY,
            is_causal,
            is_fast,
            plan.layout,
            [dtype.into(), mask_type.into()],
        );
    }
    float(output)
}

/// Returns the scores' gradient for that of the probabilities.
pub(crate) fn backward<R: CubeRuntime, B: OnCube<R>>(
    output: Tensor<B, 4>,
    gradient: Tensor<B, 4>,
    scale: f64,
) -> Tensor<B, 4> {
    let dims @ [batch, heads, queries, keys] = output.dims();
    if dims.contains(&0) {
        return output;
    }
    let [probabilities, gradients] = [&output, &gradient].map(|tensor| into_contiguous(primitive(tensor.clone())));
    let (client, dtype) = (probabilities.client.clone(), probabilities.dtype);
    if !is_supported(&client, dtype) {
        return reference::backward(output, gradient, scale);
    }
    let plan = RowPlan::new(&client, dtype, [batch * heads * queries, keys], BACKWARD);
    let result = empty_beside(&probabilities, &dims, dtype);
    // SAFETY: the kernel bounds what it reads and writes by the rows' count and length, which are the tensors'.
    unsafe {
        kernel::backward::launch_unchecked::<R>(
            &client,
            plan.cube_count(&client),
            plan.cube_dim,
            address_type(&[&probabilities]),
            plan.vector_size,
            probabilities.into_array_arg(),
            gradients.into_array_arg(),
            result.clone().into_array_arg(),
            plan.rows_argument(),
            scale as f32,
            plan.layout,
            dtype.into(),
        );
    }
    float(result)
}
