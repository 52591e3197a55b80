//! Several steps with burn's own optimizers: ranks stay equal to the bit, and equal to the one-process run. A parameter
//! that is never used does not move, though weights decay.

use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamConfig, AdamWConfig, GradientsParams, Optimizer, SgdConfig};

use super::nets::{ConvNet, Net, OddNet, named, plain_step, same_values, wrap, wrapped_step};
use super::{ALL, Check, check};
use crate::cases::B;
use crate::cases::comparison::{Closeness, Scene};

pub const CHECKS: &[Check] = &[
    check(
        "burns_adamw_trains_a_conv_net_as_in_one_process",
        adamw::<ConvNet<B>>,
        ALL,
    ),
    check(
        "burns_adamw_trains_odd_parameters_as_in_one_process",
        adamw::<OddNet<B>>,
        ALL,
    ),
    check(
        "burns_adam_trains_a_conv_net_as_in_one_process",
        adam::<ConvNet<B>>,
        ALL,
    ),
    check("burns_sgd_trains_a_conv_net_as_in_one_process", sgd::<ConvNet<B>>, ALL),
    check(
        "burns_sgd_trains_odd_parameters_as_in_one_process",
        sgd::<OddNet<B>>,
        ALL,
    ),
];

const STEPS: usize = 5;

fn adamw<M: Net>(scene: &Scene) -> anyhow::Result<()> {
    train::<M, _>(scene, || AdamWConfig::new().with_weight_decay(0.1).init())
}

fn adam<M: Net>(scene: &Scene) -> anyhow::Result<()> {
    train::<M, _>(scene, || AdamConfig::new().init())
}

fn sgd<M: Net>(scene: &Scene) -> anyhow::Result<()> {
    let momentum = MomentumConfig {
        momentum: 0.9,
        dampening: 0.1,
        nesterov: true,
    };
    train::<M, _>(scene, || SgdConfig::new().with_momentum(Some(momentum.clone())).init())
}

fn train<M: Net, O: Optimizer<M, B>>(scene: &Scene, optimizer: impl Fn() -> O) -> anyhow::Result<()> {
    let mut plain = M::new(scene, "net");
    let mut plain_optimizer = optimizer();
    let mut wrapped = wrap(M::new(scene, "net"), scene, 40)?;
    let mut wrapped_optimizer = optimizer();
    let learning_rate = 0.05;
    for step in 0..STEPS {
        let params = GradientsParams::from_grads(plain_step(&plain, scene, step), &plain);
        plain = plain_optimizer.step(learning_rate, plain, params);

        let gradients = wrapped_step(&mut wrapped, scene, step)?;
        wrapped.step(learning_rate, &mut wrapped_optimizer, gradients)?;
        wrapped.check_replicas()?;
    }
    let trained = |module: &M| {
        let mut values = named(module, None).values;
        // Statistics of the first rank's samples: see the checks of buffers.
        values.retain(|name, _| !name.contains("running"));
        values
    };
    same_values(scene, Closeness::Training, &trained(wrapped.module()), &trained(&plain))
}
