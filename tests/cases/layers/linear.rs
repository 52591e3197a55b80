//! `ColumnParallelLinear` and `RowParallelLinear` against burn's `Linear`.

use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::activation::tanh;
use burn_megatron::mappings::{gather_from_sequence_region, scatter_to_tensor_region};
use burn_megatron::parameters::Placement;
use burn_megatron::tensor_parallel::{ColumnParallelLinearConfig, RowParallelLinearConfig};

use super::{ALL, Check, check};
use crate::cases::B;
use crate::cases::comparison::{Gradients, Pass, Scene, WholeParameters, whole};

pub const CHECKS: &[Check] = &[
    check("column_linear_matches_burn", column_kept, ALL),
    check("column_linear_with_gathered_output_matches_burn", column_gathered, ALL),
    check("fused_column_linear_shards_each_matrix", column_fused, ALL),
    check("row_linear_matches_burn", row_parallel, ALL),
    check("row_linear_with_whole_input_matches_burn", row_whole, ALL),
    check("column_then_row_matches_burn", column_then_row, ALL),
    check("frozen_weights_stay_frozen_when_sharded", frozen, &[super::TP2]),
];

/// Token dimensions, the first of which sequence parallelism cuts: 2-D and 3-D input.
const FLAT: [usize; 1] = [8];
const NESTED: [usize; 2] = [4, 3];
const D_INPUT: usize = 12;
const D_OUTPUT: usize = 20;

/// burn's layer with numbers by name; a bias far from zero, so that one added twice shows.
pub fn plain_linear(scene: &Scene, name: &str, d_input: usize, d_output: usize, bias: bool) -> Linear<B> {
    let numbers = |part: &str, len| scene.random(&format!("{name} {part}"), len);
    let weight = scene.tensor(numbers("weight", d_input * d_output), [d_input, d_output]);
    Linear {
        weight: Param::from_tensor(weight),
        bias: bias.then(|| Param::from_tensor(scene.tensor(numbers("bias", d_output), [d_output]))),
    }
}

pub fn whole_linear(linear: &Linear<B>, gradients: &Gradients) -> WholeParameters {
    let weight = ("weight".to_owned(), whole(&linear.weight, gradients));
    let bias = linear
        .bias
        .iter()
        .map(|bias| ("bias".to_owned(), whole(bias, gradients)));
    [weight].into_iter().chain(bias).collect()
}

fn column_kept(scene: &Scene) -> anyhow::Result<()> {
    for bias in [true, false] {
        column(scene, "flat", FLAT, &ColumnParallelLinearConfig::new(D_INPUT, D_OUTPUT), bias)?;
        column(scene, "nested", NESTED, &ColumnParallelLinearConfig::new(D_INPUT, D_OUTPUT), bias)?;
    }
    Ok(())
}

fn column_gathered(scene: &Scene) -> anyhow::Result<()> {
    let config = ColumnParallelLinearConfig::new(D_INPUT, D_OUTPUT).with_gather_output(true);
    for bias in [true, false] {
        column(scene, "flat", FLAT, &config, bias)?;
        column(scene, "nested", NESTED, &config, bias)?;
    }
    Ok(())
}

fn column_fused(scene: &Scene) -> anyhow::Result<()> {
    let config = ColumnParallelLinearConfig::new(D_INPUT, 3 * D_OUTPUT).with_fused(3);
    for bias in [true, false] {
        column(scene, "flat", FLAT, &config, bias)?;
        column(scene, "nested", NESTED, &config, bias)?;
    }
    Ok(())
}

/// `tokens` are the leading dimensions, `D` their number plus one.
fn column<const L: usize>(
    scene: &Scene,
    label: &str,
    tokens: [usize; L],
    config: &ColumnParallelLinearConfig,
    bias: bool,
) -> anyhow::Result<()> {
    match tokens[..] {
        [rows] => column_of(scene, label, [rows, config.d_input], config, bias),
        [outer, rows] => column_of(scene, label, [outer, rows, config.d_input], config, bias),
        _ => unreachable!("one or two leading dimensions"),
    }
}

fn column_of<const D: usize>(
    scene: &Scene,
    label: &str,
    shape: [usize; D],
    config: &ColumnParallelLinearConfig,
    bias: bool,
) -> anyhow::Result<()> {
    let (d_output, fused) = (config.d_output, config.fused);
    let scope = format!("{label} bias {bias}");
    let rows: usize = shape[..D - 1].iter().product();
    let input = scene.random("input", rows * config.d_input);
    let output_gradient = scene.random("output gradient", rows * d_output);
    let linear = plain_linear(scene, "linear", config.d_input, d_output, bias);
    let serial = Pass::run(
        scene.tensor(input.clone(), shape),
        scene.tensor(output_gradient.clone(), with_last(shape, d_output)),
        |input| linear.forward(input),
    );
    let expected = whole_linear(&linear, &serial.gradients);

    let layer = config.from_linear(linear, &scene.context.scope(&scope))?;
    let input_placement = scene.placement(&shape, scene.token_cut());
    // A column shard holds its columns of each fused matrix.
    let output_cut = (!config.gather_output).then_some(2);
    let output_placement = scene
        .placement(&[rows, fused, d_output / fused], output_cut)
        .with_fused_dimension(1);
    let width = output_placement.local_len() / rows;
    let parallel = Pass::run(
        scene.part(&input, &input_placement, local_shape(scene, shape)),
        scene.part(&output_gradient, &output_placement, with_last(shape, width)),
        |input| layer.forward(input),
    );
    scene.close(&format!("{scope}: output"), &parallel.output, &serial.output, &output_placement)?;
    scene.close(
        &format!("{scope}: input gradient"),
        &parallel.input_gradient,
        &serial.input_gradient,
        &input_placement,
    )?;
    scene.parameters(&scope, &layer, &parallel.gradients, &expected)
}

fn row_parallel(scene: &Scene) -> anyhow::Result<()> {
    for bias in [true, false] {
        row(scene, "flat", [FLAT[0], D_INPUT], true, bias)?;
        row(scene, "nested", [NESTED[0], NESTED[1], D_INPUT], true, bias)?;
    }
    Ok(())
}

fn row_whole(scene: &Scene) -> anyhow::Result<()> {
    for bias in [true, false] {
        row(scene, "flat", [FLAT[0], D_INPUT], false, bias)?;
        row(scene, "nested", [NESTED[0], NESTED[1], D_INPUT], false, bias)?;
    }
    Ok(())
}

fn row<const D: usize>(
    scene: &Scene,
    label: &str,
    shape: [usize; D],
    input_is_parallel: bool,
    bias: bool,
) -> anyhow::Result<()> {
    let scope = format!("{label} bias {bias}");
    let output_shape = with_last(shape, D_OUTPUT);
    let input = scene.random("input", shape.iter().product());
    let output_gradient = scene.random("output gradient", output_shape.iter().product());
    let linear = plain_linear(scene, "linear", D_INPUT, D_OUTPUT, bias);
    let serial = Pass::run(
        scene.tensor(input.clone(), shape),
        scene.tensor(output_gradient.clone(), output_shape),
        |input| linear.forward(input),
    );
    let expected = whole_linear(&linear, &serial.gradients);

    let layer = RowParallelLinearConfig::new(D_INPUT, D_OUTPUT)
        .with_input_is_parallel(input_is_parallel)
        .from_linear(linear, &scene.context.scope(&scope))?;
    let input_placement = scene.placement(&shape, input_is_parallel.then_some(D - 1));
    let output_placement = scene.placement(&output_shape, scene.token_cut());
    let width = input_placement.local_shape()[D - 1];
    let parallel = Pass::run(
        scene.part(&input, &input_placement, with_last(shape, width)),
        scene.part(&output_gradient, &output_placement, local_shape(scene, output_shape)),
        |input| layer.forward(input),
    );
    scene.close(&format!("{scope}: output"), &parallel.output, &serial.output, &output_placement)?;
    scene.close(
        &format!("{scope}: input gradient"),
        &parallel.input_gradient,
        &serial.input_gradient,
        &input_placement,
    )?;
    scene.parameters(&scope, &layer, &parallel.gradients, &expected)
}

/// The pair that an MLP and an attention are made of: what lies between the two is never gathered.
fn column_then_row(scene: &Scene) -> anyhow::Result<()> {
    let shape = [FLAT[0], D_INPUT];
    let input = scene.random("input", FLAT[0] * D_INPUT);
    let output_gradient = scene.random("output gradient", FLAT[0] * D_INPUT);
    let first = plain_linear(scene, "first", D_INPUT, D_OUTPUT, true);
    let second = plain_linear(scene, "second", D_OUTPUT, D_INPUT, true);
    let serial = Pass::run(
        scene.tensor(input.clone(), shape),
        scene.tensor(output_gradient.clone(), shape),
        |input| second.forward(tanh(first.forward(input))),
    );
    let expected = [&first, &second].map(|linear| whole_linear(linear, &serial.gradients));

    let column = ColumnParallelLinearConfig::new(D_INPUT, D_OUTPUT);
    let column = column.from_linear(first, &scene.context.scope("first"))?;
    let row = RowParallelLinearConfig::new(D_OUTPUT, D_INPUT);
    let row = row.from_linear(second, &scene.context.scope("second"))?;
    let placement = scene.placement(&shape, scene.token_cut());
    let parallel = Pass::run(
        scene.part(&input, &placement, local_shape(scene, shape)),
        scene.part(&output_gradient, &placement, local_shape(scene, shape)),
        |input| row.forward(tanh(column.forward(input))),
    );
    scene.close("output", &parallel.output, &serial.output, &placement)?;
    scene.close("input gradient", &parallel.input_gradient, &serial.input_gradient, &placement)?;
    scene.parameters("first", &column, &parallel.gradients, &expected[0])?;
    scene.parameters("second", &row, &parallel.gradients, &expected[1])
}

fn frozen(scene: &Scene) -> anyhow::Result<()> {
    let linear = || {
        let mut linear = plain_linear(scene, "linear", D_INPUT, D_OUTPUT, true);
        linear.weight = linear.weight.set_require_grad(false);
        linear
    };
    let column = ColumnParallelLinearConfig::new(D_INPUT, D_OUTPUT);
    let column = column.from_linear(linear(), &scene.context.scope("column"))?;
    let row = RowParallelLinearConfig::new(D_INPUT, D_OUTPUT).from_linear(linear(), &scene.context.scope("row"))?;
    for (name, weight, bias) in [
        ("column", &column.weight, &column.bias),
        ("row", &row.weight, &row.bias),
    ] {
        let bias = bias.as_ref().expect("it has a bias");
        anyhow::ensure!(!weight.val().is_require_grad(), "the weight of the {name} layer is trained");
        anyhow::ensure!(bias.val().is_require_grad(), "the bias of the {name} layer is not trained");
    }
    Ok(())
}

fn with_last<const D: usize>(mut shape: [usize; D], last: usize) -> [usize; D] {
    shape[D - 1] = last;
    shape
}

/// The shape of this rank's tokens.
pub fn local_shape<const D: usize>(scene: &Scene, mut shape: [usize; D]) -> [usize; D] {
    if scene.token_cut().is_some() {
        shape[0] /= scene.size();
    }
    shape
}
