//! How the norms' kernels are launched, for CubeCL's backends.

mod backward;

use burn::tensor::{DType, Tensor};
use burn_cubecl::CubeRuntime;
use burn_cubecl::tensor::CubeTensor;

use super::kernel::forward;
use super::{AddRule, AddendGradients, Addends, NormGradients, NormKind, NormParameters, NormStatistics, reference};
use crate::cube::dropout::dropped_rows_argument;
use crate::cube::launch::{OnCube, Registers, RowPlan, address_type, empty_beside, into_contiguous, runs};
use crate::precision::zeros_like;
use crate::random::RowDropout;
use crate::tape::{float, primitive};
pub(crate) use backward::rows_backward;

/// The forward kernel holds a row in f32.
const FORWARD: Registers = Registers { wanted: 16, most: 32 };
/// Units of a row at most, where they hold it: few units hold more numbers each, and ask for more at a time.
const FORWARD_UNITS: usize = 512;

/// Returns the norm of each row, and the rows' statistics.
pub(crate) fn forward<R: CubeRuntime, B: OnCube<R>>(
    input: Tensor<B, 2>,
    parameters: &NormParameters<B>,
) -> (Tensor<B, 2>, NormStatistics<B>) {
    if !runs(&primitive(input.clone())) {
        return reference::forward(input, parameters);
    }
    let before = Before {
        bias: None,
        residual: None,
        dropout: None,
    };
    let (_, output, statistics) = launch_forward(contiguous(input), before, parameters);
    (output, statistics)
}

/// Returns the sum, its norm, and the rows' statistics.
pub(crate) fn add_forward<R: CubeRuntime, B: OnCube<R>>(
    addends: Addends<B>,
    parameters: &NormParameters<B>,
) -> ([Tensor<B, 2>; 2], NormStatistics<B>) {
    if !runs(&primitive(addends.input.clone())) {
        return reference::add_forward(addends, parameters);
    }
    let before = Before {
        bias: addends.bias.map(contiguous),
        residual: Some(contiguous(addends.residual)),
        dropout: addends.dropout,
    };
    let (hidden, output, statistics) = launch_forward(contiguous(addends.input), before, parameters);
    let hidden = hidden.expect("a sum with a residual is written");
    ([hidden, output], statistics)
}

/// Returns the gradients for the output's gradient.
pub(crate) fn backward<R: CubeRuntime, B: OnCube<R>>(
    input: Tensor<B, 2>,
    parameters: &NormParameters<B>,
    statistics: NormStatistics<B>,
    gradient: Tensor<B, 2>,
) -> NormGradients<B> {
    if !runs(&primitive(input.clone())) {
        return reference::backward(input, parameters, statistics, gradient);
    }
    let dtype = input.dtype();
    let rows = rows_backward(input, parameters, statistics, [None, Some(gradient)], None);
    rows.norm_and_addend_bias(dtype).0
}

/// Returns the gradients of the addends and of the norm for those of the sum and of the norm, where they have one.
pub(crate) fn add_backward<R: CubeRuntime, B: OnCube<R>>(
    hidden: Tensor<B, 2>,
    parameters: &NormParameters<B>,
    statistics: NormStatistics<B>,
    gradients: [Option<Tensor<B, 2>>; 2],
    rule: &AddRule,
) -> (AddendGradients<B>, NormGradients<B>) {
    if !runs(&primitive(hidden.clone())) {
        return reference::add_backward(hidden, parameters, statistics, gradients, rule);
    }
    match gradients {
        [of_hidden, Some(of_output)] => {
            let dtype = hidden.dtype();
            let gradients = [of_hidden, Some(of_output)];
            let mut rows = rows_backward(hidden, parameters, statistics, gradients, Some(rule));
            let input = rows.addend.take().expect("the sum's rule was given");
            let (norm, bias) = rows.norm_and_addend_bias(dtype);
            let addends = AddendGradients {
                input,
                bias,
                residual: norm.input.clone(),
            };
            (addends, norm)
        }
        // Nothing comes through the norm.
        [of_hidden, None] => {
            let of_hidden = of_hidden.unwrap_or_else(|| zeros_like(&hidden));
            let norm = NormGradients {
                input: of_hidden.clone(),
                weight: zeros_like(&parameters.weight),
                bias: parameters.bias.as_ref().map(zeros_like),
            };
            (B::bias_dropout_add_backward(of_hidden, rule), norm)
        }
    }
}

/// What is added up before the norm.
struct Before<R: CubeRuntime> {
    bias: Option<CubeTensor<R>>,
    residual: Option<CubeTensor<R>>,
    dropout: Option<RowDropout>,
}

/// Returns the sum, where there is one, its norm, and the rows' statistics.
fn launch_forward<R: CubeRuntime, B: OnCube<R>>(
    input: CubeTensor<R>,
    before: Before<R>,
    parameters: &NormParameters<B>,
) -> (Option<Tensor<B, 2>>, Tensor<B, 2>, NormStatistics<B>) {
    let (client, dtype) = (input.client.clone(), input.dtype);
    let dims @ [rows, columns] = [input.meta.shape()[0], input.meta.shape()[1]];
    let hidden = before.residual.is_some().then(|| empty_beside(&input, &dims, dtype));
    let output = empty_beside(&input, &dims, dtype);
    let is_layer = parameters.kind == NormKind::Layer;
    let mean = is_layer.then(|| empty_beside(&input, &[rows], DType::F32));
    let reciprocal = empty_beside(&input, &[rows], DType::F32);
    let weight = contiguous(parameters.weight.clone());
    let bias = parameters.bias.clone().map(contiguous);
    let plan = RowPlan::of_units(&client, dtype, dims, FORWARD, FORWARD_UNITS);
    let plan = if plan.layout.is_unrolled {
        plan
    } else {
        RowPlan::new(&client, dtype, dims, FORWARD)
    };
    let argument = |tensor: &CubeTensor<R>| tensor.clone().into_array_arg();
    let sum = forward::SumBeforeLaunch::new(
        before.bias.map(|bias| bias.into_array_arg()).into(),
        before
            .dropout
            .map(|dropout| dropped_rows_argument(&client, &dropout))
            .into(),
        before.residual.map(|residual| residual.into_array_arg()).into(),
    );
    // SAFETY: the kernel bounds what it reads and writes by the rows' count and length, which are those of all tensors.
    unsafe {
        forward::forward::launch_unchecked::<R>(
            &client,
            plan.cube_count(&client),
            plan.cube_dim,
            address_type(&[&input]),
            plan.vector_size,
            input.into_array_arg(),
            sum,
            weight.into_array_arg(),
            bias.map(|bias| bias.into_array_arg()).into(),
            hidden.as_ref().map(argument).into(),
            argument(&output),
            mean.as_ref().map(argument).into(),
            argument(&reciprocal),
            plan.rows_argument(),
            columns as f32,
            parameters.epsilon as f32,
            is_layer,
            plan.layout.units <= FORWARD_UNITS,
            plan.layout,
            dtype.into(),
        );
    }
    let statistics = NormStatistics {
        mean: mean.map(float),
        reciprocal: float(reciprocal),
    };
    (hidden.map(float), float(output), statistics)
}

fn contiguous<R: CubeRuntime, B: OnCube<R>, const D: usize>(tensor: Tensor<B, D>) -> CubeTensor<R> {
    into_contiguous(primitive(tensor))
}
