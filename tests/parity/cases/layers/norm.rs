//! `LayerNorm` made from burn's against burn's `LayerNorm` on all tokens.

use std::collections::BTreeMap;

use anyhow::Context as _;
use burn::module::Param;
use burn::nn;
use burn::optim::GradientsParams;
use burn::tensor::Tensor;
use burn_megatron::data_parallel::sum_partial_gradients;
use burn_megatron::parameters::{Placement, read_host};
use burn_megatron::tensor_parallel::{LayerNorm, LayerNormConfig};

use super::linear::local_shape;
use super::{ALL, BOTH_TYPES, Check, checks};
use crate::parity::cases::comparison::{Pass, Scene, WholeParameters, whole};

pub const CHECKS: &[Check] = checks! {
    layer_norm_matches_burn: ALL, BOTH_TYPES;
    partial_gradients_can_be_summed_without_the_wrapper: ALL, BOTH_TYPES;
};

const D_MODEL: usize = 7;
const EPSILON: f64 = 1e-3;

/// Eight tokens on one rank and on this rank's part of them, with a norm made from burn's.
struct Norms {
    plain: nn::LayerNorm,
    layer: LayerNorm,
    serial: Pass,
    parallel: Pass,
}

impl Norms {
    fn run(scene: &Scene) -> anyhow::Result<Self> {
        let shape = [8, D_MODEL];
        let plain = numbered(scene);
        let config = LayerNormConfig::of(&plain).with_epsilon(EPSILON);
        let layer = config.from_layer_norm(numbered(scene), &scene.context.scope("norm"))?;
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
        Ok(Self {
            plain,
            layer,
            serial,
            parallel,
        })
    }

    fn beta(norm: &nn::LayerNorm) -> &Param<Tensor<1>> {
        norm.beta.as_ref().expect("it has a bias")
    }

    fn expected(&self) -> WholeParameters {
        BTreeMap::from([
            ("weight".to_owned(), whole(&self.plain.gamma, &self.serial.gradients)),
            (
                "bias".to_owned(),
                whole(Self::beta(&self.plain), &self.serial.gradients),
            ),
        ])
    }
}

/// Under sequence parallelism each rank normalises its own tokens, and the parts of the gradient add up to the whole.
fn layer_norm_matches_burn(scene: &Scene) -> anyhow::Result<()> {
    let norms = Norms::run(scene)?;
    scene.parameters("norm", &norms.layer.norm, &norms.parallel.gradients, &norms.expected())
}

/// As a program does that trains by hand.
fn partial_gradients_can_be_summed_without_the_wrapper(scene: &Scene) -> anyhow::Result<()> {
    let norms = Norms::run(scene)?;
    let expected = norms.expected();
    let Norms { layer, parallel, .. } = norms;
    let mut params = GradientsParams::from_grads(parallel.gradients, &layer.norm);
    sum_partial_gradients(&mut params, &layer.norm, &scene.context)?;
    for (name, param) in [("weight", &layer.norm.gamma), ("bias", Norms::beta(&layer.norm))] {
        let gradient = params.get::<1>(param.id).context("every parameter has a gradient")?;
        let (_, expected) = &expected[name];
        scene.close(name, &read_host(gradient), expected, &Placement::whole([D_MODEL]))?;
    }
    Ok(())
}

/// A norm whose numbers are neither ones nor zeros.
fn numbered(scene: &Scene) -> nn::LayerNorm {
    let numbers = |name| Param::from_tensor(scene.tensor(scene.random(name, D_MODEL), [D_MODEL]));
    let mut norm = nn::LayerNormConfig::new(D_MODEL)
        .with_epsilon(EPSILON)
        .init(&tests::device());
    norm.gamma = numbers("gamma");
    norm.beta = Some(numbers("beta"));
    norm
}
