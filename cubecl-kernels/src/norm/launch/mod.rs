//! Launches the norms' kernels, for tensors that have elements.

mod backward;

use burn::tensor::DType;
use burn_backend::cubecl::dtype_to_elem_type;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::Forward;
use super::NormKind;
use super::kernel::forward;
use crate::cube::dropout::dropped_rows_argument;
use crate::cube::launch::{Registers, RowPlan, address_type, empty_beside};
use crate::cube::walk::dims;
use crate::operation::{Of, Operation};
pub(super) use backward::backward;

/// The forward kernel holds a row in f32.
const FORWARD: Registers = Registers { wanted: 16, most: 32 };
/// Units of a row at most, where they hold it: few units hold more numbers each, and ask for more at a time.
const FORWARD_UNITS: usize = 512;

/// Returns the sum, where there is one, its norm, and the rows' statistics.
pub(super) fn forward(
    rule: &Forward,
    (input, addend_bias, residual, weight, bias): Of<<Forward as Operation>::Inputs, CubeTensor>,
) -> Of<<Forward as Operation>::Outputs, CubeTensor> {
    let [input, weight] = [input, weight].map(into_contiguous);
    let [addend_bias, residual, bias] = [addend_bias, residual, bias].map(|tensor| tensor.map(into_contiguous));
    let (client, dtype) = (input.client.clone(), input.dtype);
    let dims @ [rows, columns] = dims(&input);
    let hidden = residual.is_some().then(|| empty_beside(&input, &dims, dtype));
    let output = empty_beside(&input, &dims, dtype);
    let is_layer = rule.kind == NormKind::Layer;
    let mean = is_layer.then(|| empty_beside(&input, &[rows], DType::F32));
    let reciprocal = empty_beside(&input, &[rows], DType::F32);
    let plan = RowPlan::of_units(&client, dtype, dims, FORWARD, FORWARD_UNITS);
    let plan = if plan.layout.is_unrolled {
        plan
    } else {
        RowPlan::new(&client, dtype, dims, FORWARD)
    };
    let argument = |tensor: &CubeTensor| tensor.clone().into_buffer_arg();
    let sum = forward::SumBeforeLaunch::new(
        addend_bias.map(CubeTensor::into_buffer_arg).into(),
        rule.dropout
            .as_ref()
            .map(|dropout| dropped_rows_argument(&client, dropout))
            .into(),
        residual.map(CubeTensor::into_buffer_arg).into(),
    );
    // SAFETY: the kernel bounds what it reads and writes by the rows' count and length, which are those of all tensors.
    unsafe {
        forward::forward::launch_unchecked(
            &client,
            plan.cube_count(&client),
            plan.cube_dim,
            address_type(&[&input]),
            plan.vector_size,
            input.into_buffer_arg(),
            sum,
            weight.into_buffer_arg(),
            bias.map(CubeTensor::into_buffer_arg).into(),
            hidden.as_ref().map(argument).into(),
            argument(&output),
            mean.as_ref().map(argument).into(),
            argument(&reciprocal),
            plan.rows_argument(),
            columns as f32,
            rule.epsilon as f32,
            is_layer,
            plan.layout.units <= FORWARD_UNITS,
            plan.layout,
            dtype_to_elem_type(dtype),
        );
    }
    (hidden, output, (mean, reciprocal))
}
