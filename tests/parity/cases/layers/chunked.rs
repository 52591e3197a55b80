//! Linear layers that communicate in chunks while they multiply, against the same layers whole: the ranks' parts are
//! added in the same order. On the CPU the forward pass of several rows also adds in the same order in each matmul, and
//! so does the gradient of the weight whose output's gradient is gathered in chunks; the matmul of that gradient with a
//! transposed weight adds in another order for fewer rows.

use std::num::NonZeroUsize;

use burn::tensor::activation::tanh;
use burn_megatron::context::TensorOverlap;
use burn_megatron::parameters::{Placement, read_host};
use burn_megatron::tensor_parallel::{ColumnParallelLinearConfig, RowParallelLinearConfig};

use super::linear::{local_shape, plain_linear};
use super::{BOTH_TYPES, Check, checks};
use crate::parity::cases::comparison::{Layout, Pass, Scene, TP2SP, TP4SP, layout};

const TP3SP: Layout = layout("tp3sp", 3, true, 1);

pub const CHECKS: &[Check] = checks! {
    chunked_linears_match_whole_ones: &[TP2SP, TP3SP, TP4SP], BOTH_TYPES;
};

/// What two, three and four ranks divide; a rank has an odd number of rows.
const D_MODEL: usize = 132;
const D_INNER: usize = 276;
const ROWS: usize = 37;

fn chunked_linears_match_whole_ones(scene: &Scene) -> anyhow::Result<()> {
    let tokens = ROWS * scene.size();
    let whole = results(scene, "whole", [tokens, D_MODEL], TensorOverlap::Off)?;
    let whole_nested = results(scene, "whole nested", [tokens, 3, D_MODEL], TensorOverlap::Off)?;
    for count in [2, 3, 5] {
        let name = format!("{count} chunks");
        expect_same(
            scene,
            &name,
            &results(scene, &name, [tokens, D_MODEL], chunks(count))?,
            &whole,
        )?;
        let name = format!("{name} nested");
        let nested = results(scene, &name, [tokens, 3, D_MODEL], chunks(count))?;
        expect_same(scene, &name, &nested, &whole_nested)?;
    }
    // Of two rows and of one row of each rank; the last are more than there are rows.
    for count in [18, 200] {
        let name = format!("{count} chunks");
        expect_close(
            scene,
            &name,
            &results(scene, &name, [tokens, D_MODEL], chunks(count))?,
            &whole,
        )?;
    }
    Ok(())
}

fn chunks(count: usize) -> TensorOverlap {
    NonZeroUsize::new(count).map_or(TensorOverlap::Off, TensorOverlap::Chunks)
}

/// What a pass gives, by name.
type Results = Vec<(String, Vec<f64>)>;

fn expect_close(scene: &Scene, name: &str, found: &Results, whole: &Results) -> anyhow::Result<()> {
    for ((what, found), (_, whole)) in found.iter().zip(whole) {
        scene.close(
            &format!("{name}: {what}"),
            found,
            whole,
            &Placement::whole([whole.len()]),
        )?;
    }
    Ok(())
}

/// Checks the bits of what does not depend on the product with a transposed weight, and the rest up to rounding.
fn expect_same(scene: &Scene, name: &str, found: &Results, whole: &Results) -> anyhow::Result<()> {
    for ((what, found), (_, whole)) in found.iter().zip(whole) {
        let placement = Placement::whole([whole.len()]);
        let is_same = ["output", "row weight's gradient", "row bias' gradient"].contains(&what.as_str());
        let compare = if is_same { Scene::exact } else { Scene::close };
        compare(scene, &format!("{name}: {what}"), found, whole, &placement)?;
    }
    Ok(())
}

/// The output of a column-parallel and a row-parallel layer, and every gradient.
fn results<const D: usize>(
    scene: &Scene,
    name: &str,
    shape: [usize; D],
    overlap: TensorOverlap,
) -> anyhow::Result<Results> {
    let context = scene.context.clone().with_tensor_overlap(overlap);
    let first = plain_linear(scene, "first", D_MODEL, D_INNER, true);
    let second = plain_linear(scene, "second", D_INNER, D_MODEL, true);
    let scope = |layer: &str| context.scope(format!("{name} {layer}"));
    let column = ColumnParallelLinearConfig::new(D_MODEL, D_INNER).from_linear(first, &scope("column"))?;
    let row = RowParallelLinearConfig::new(D_INNER, D_MODEL).from_linear(second, &scope("row"))?;
    let elements = shape.iter().product();
    let placement = scene.placement(&shape, scene.token_cut());
    let part = |what: &str| scene.part(&scene.random(what, elements), &placement, local_shape(scene, shape));
    let pass = Pass::run(part("input"), part("output gradient"), |input| {
        row.forward(tanh(column.forward(input)))
    });
    let mut results = vec![
        ("output".to_owned(), pass.output),
        ("input's gradient".to_owned(), pass.input_gradient),
    ];
    for (layer, weight, bias) in [
        ("column", &column.weight, &column.bias),
        ("row", &row.weight, &row.bias),
    ] {
        let weight = weight.val().grad(&pass.gradients).expect("it is used");
        results.push((format!("{layer} weight's gradient"), read_host(weight)));
        let bias = bias.as_ref().and_then(|bias| bias.val().grad(&pass.gradients));
        results.push((format!("{layer} bias' gradient"), read_host(bias.expect("it is used"))));
    }
    Ok(results)
}
