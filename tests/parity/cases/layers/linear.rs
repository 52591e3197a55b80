//! `ColumnParallelLinear` and `RowParallelLinear` against burn's `Linear`.

use anyhow::ensure;
use burn::module::Param;
use burn::nn::Linear;
use burn::tensor::Gradients;
use burn_megatron::tensor_parallel::{ColumnParallelLinearConfig, RowParallelLinearConfig};

use super::{ALL, BOTH_TYPES, Check, checks};
use crate::parity::cases::comparison::{Pass, Scene, WholeParameters, whole};

pub const CHECKS: &[Check] = checks! {
    column_linear_matches_burn: ALL, BOTH_TYPES;
    column_linear_with_gathered_output_matches_burn: ALL, BOTH_TYPES;
    fused_column_linear_shards_each_matrix: ALL, BOTH_TYPES;
    row_linear_matches_burn: ALL, BOTH_TYPES;
    row_linear_with_whole_input_matches_burn: ALL, BOTH_TYPES;
    frozen_weights_stay_frozen_when_sharded: &[super::TP2], BOTH_TYPES;
};

/// Four ranks hold 3 and 5 features each.
const D_INPUT: usize = 12;
const D_OUTPUT: usize = 20;

/// burn's layer with numbers by name; a bias far from zero, so that one added twice shows.
pub fn plain_linear(scene: &Scene, name: &str, d_input: usize, d_output: usize, bias: bool) -> Linear {
    let numbers = |part: &str, len| scene.random(&format!("{name} {part}"), len);
    let weight = scene.tensor(numbers("weight", d_input * d_output), [d_input, d_output]);
    Linear {
        weight: Param::from_tensor(weight),
        bias: bias.then(|| Param::from_tensor(scene.tensor(numbers("bias", d_output), [d_output]))),
    }
}

pub fn whole_linear(linear: &Linear, gradients: &Gradients) -> WholeParameters {
    let weight = ("weight".to_owned(), whole(&linear.weight, gradients));
    let bias = linear
        .bias
        .iter()
        .map(|bias| ("bias".to_owned(), whole(bias, gradients)));
    [weight].into_iter().chain(bias).collect()
}

fn column_linear_matches_burn(scene: &Scene) -> anyhow::Result<()> {
    column_variants(scene, &ColumnParallelLinearConfig::new(D_INPUT, D_OUTPUT))
}

fn column_linear_with_gathered_output_matches_burn(scene: &Scene) -> anyhow::Result<()> {
    let config = ColumnParallelLinearConfig::new(D_INPUT, D_OUTPUT).with_gather_output(true);
    column_variants(scene, &config)
}

fn fused_column_linear_shards_each_matrix(scene: &Scene) -> anyhow::Result<()> {
    let config = ColumnParallelLinearConfig::new(D_INPUT, 3 * D_OUTPUT).with_fused(3);
    column_variants(scene, &config)
}

/// With and without bias, of input of two and of three dimensions.
fn column_variants(scene: &Scene, config: &ColumnParallelLinearConfig) -> anyhow::Result<()> {
    for bias in [true, false] {
        column(scene, "flat", [8, D_INPUT], config, bias)?;
        column(scene, "nested", [4, 3, D_INPUT], config, bias)?;
    }
    Ok(())
}

fn column<const D: usize>(
    scene: &Scene,
    label: &str,
    shape: [usize; D],
    config: &ColumnParallelLinearConfig,
    bias: bool,
) -> anyhow::Result<()> {
    let (d_output, fused) = (config.d_output, config.fused);
    let scope = format!("{label} bias {bias}");
    let rows: usize = shape[..D - 1].iter().product();
    let input = scene.random("input", rows * D_INPUT);
    let output_gradient = scene.random("output gradient", rows * d_output);
    let linear = plain_linear(scene, "linear", D_INPUT, d_output, bias);
    let serial = Pass::run(
        scene.tensor(input.clone(), shape),
        scene.tensor(output_gradient.clone(), with_last(shape, d_output)),
        |input| linear.forward(input),
    );
    let expected = whole_linear(&linear, &serial.gradients);

    let layer = config.from_linear(linear, &scene.context.scope(&scope))?;
    let input_placement = scene.placement(&shape, scene.token_cut());
    // A shard holds its columns of each of the fused matrices.
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
    parallel.compare(scene, &scope, &serial, &input_placement, &output_placement)?;
    scene.parameters(&scope, &layer, &parallel.gradients, &expected)
}

fn row_linear_matches_burn(scene: &Scene) -> anyhow::Result<()> {
    row_variants(scene, true)
}

fn row_linear_with_whole_input_matches_burn(scene: &Scene) -> anyhow::Result<()> {
    row_variants(scene, false)
}

/// With and without bias, of input of two and of three dimensions.
fn row_variants(scene: &Scene, input_is_parallel: bool) -> anyhow::Result<()> {
    for bias in [true, false] {
        row(scene, "flat", [8, D_INPUT], input_is_parallel, bias)?;
        row(scene, "nested", [4, 3, D_INPUT], input_is_parallel, bias)?;
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
    parallel.compare(scene, &scope, &serial, &input_placement, &output_placement)?;
    scene.parameters(&scope, &layer, &parallel.gradients, &expected)
}

fn frozen_weights_stay_frozen_when_sharded(scene: &Scene) -> anyhow::Result<()> {
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
        ensure!(
            !weight.val().is_require_grad(),
            "the weight of the {name} layer is trained"
        );
        ensure!(
            bias.val().is_require_grad(),
            "the bias of the {name} layer is not trained"
        );
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
