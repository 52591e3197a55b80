//! `layer_norm` against burn's `LayerNorm` on all tokens.

use std::collections::BTreeMap;

use burn::module::Param;
use burn::nn::{LayerNorm, LayerNormConfig};
use burn::tensor::Tensor;
use burn_flex::FlexDevice;
use burn_megatron::tensor_parallel::layer_norm;

use super::linear::local_shape;
use super::{ALL, Check, check};
use crate::cases::B;
use crate::cases::comparison::{Pass, Scene, whole};

pub const CHECKS: &[Check] = &[check("layer_norm_matches_burn", norm, ALL)];

const D_MODEL: usize = 7;

/// Under sequence parallelism each rank normalises its own tokens, and the parts of the gradient add up to the whole.
fn norm(scene: &Scene) -> anyhow::Result<()> {
    let shape = [8, D_MODEL];
    let config = LayerNormConfig::new(D_MODEL).with_epsilon(1e-3);
    let plain = with_numbers(scene, config.init(&FlexDevice));
    let layer = layer_norm::<B>(&config, &FlexDevice, &scene.context.scope("norm"));
    // The mapped parameters keep the identifiers that were declared.
    let layer = with_numbers(scene, layer);
    let input = scene.random("input", 8 * D_MODEL);
    let output_gradient = scene.random("output gradient", 8 * D_MODEL);
    let serial = Pass::run(
        scene.tensor(input.clone(), shape),
        scene.tensor(output_gradient.clone(), shape),
        |input| plain.forward(input),
    );
    let placement = scene.placement(&shape, scene.token_cut());
    let parallel = Pass::run(
        scene.part(&input, &placement, local_shape(scene, shape)),
        scene.part(&output_gradient, &placement, local_shape(scene, shape)),
        |input| layer.forward(input),
    );
    parallel.compare(scene, "norm", &serial, &placement, &placement)?;
    let beta = plain.beta.as_ref().expect("it has a bias");
    let expected = BTreeMap::from([
        ("weight".to_owned(), whole(&plain.gamma, &serial.gradients)),
        ("bias".to_owned(), whole(beta, &serial.gradients)),
    ]);
    scene.parameters("norm", &layer, &parallel.gradients, &expected)
}

fn with_numbers(scene: &Scene, mut norm: LayerNorm<B>) -> LayerNorm<B> {
    let set = |param: Param<Tensor<B, 1>>, name| {
        let numbers = scene.tensor(scene.random(name, D_MODEL), [D_MODEL]);
        param.map(|_| numbers.require_grad())
    };
    norm.gamma = set(norm.gamma, "gamma");
    norm.beta = norm.beta.map(|beta| set(beta, "beta"));
    norm
}
