//! Several steps with burn's own optimizers: ranks stay equal to the bit, and equal to the one-process run. A parameter
//! that is never used does not move, though weights decay. Each rank updating its shard changes no bit.

use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamConfig, AdamWConfig, GradientsParams, Optimizer, SgdConfig, SimpleOptimizer};
use burn_flex::Flex;
use burn_megatron::data_parallel::{DataParallelConfig, DistributedDataParallel};
use burn_megatron::optimizer::ShardedOptimizer;

use super::nets::{ConvNet, Net, OddNet, named, plain_step, same_values, wrap, wrapped_step};
use super::{ALL, Check, check, check_bits};
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
    check_bits(
        "sharded_optimizers_have_the_bits_of_burns_with_a_conv_net",
        sharded::<ConvNet<B>>,
        ALL,
    ),
    check_bits(
        "sharded_optimizers_have_the_bits_of_burns_with_odd_parameters",
        sharded::<OddNet<B>>,
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
    train::<M, _>(scene, || sgd_config().init())
}

fn sgd_config() -> SgdConfig {
    SgdConfig::new().with_momentum(Some(MomentumConfig {
        momentum: 0.9,
        dampening: 0.1,
        nesterov: true,
    }))
}

fn sharded<M: Net>(scene: &Scene) -> anyhow::Result<()> {
    let (adam, adamw) = (AdamConfig::new(), AdamWConfig::new().with_weight_decay(0.1));
    sharded_as_whole::<M, _, _>(scene, adam.init(), adam.build())?;
    sharded_as_whole::<M, _, _>(scene, adamw.init(), adamw.build())?;
    sharded_as_whole::<M, _, _>(scene, sgd_config().init(), sgd_config().build())
}

/// One step after the other with burn's optimizer, and with the same one in shards: buckets of one parameter each, of some,
/// and of all.
fn sharded_as_whole<M: Net, O: Optimizer<M, B>, S: SimpleOptimizer<Flex>>(
    scene: &Scene,
    mut optimizer: O,
    sharded: S,
) -> anyhow::Result<()> {
    let mut whole = wrap(M::new(scene, "net"), scene, 40)?;
    let mut in_shards = Vec::new();
    for bucket_size in [1, 40, 1_000_000] {
        let config = DataParallelConfig::new()
            .with_bucket_size(Some(bucket_size))
            .with_shard_gradients(true);
        let module = DistributedDataParallel::new(M::new(scene, "net"), &scene.context, config)?;
        let optimizer = ShardedOptimizer::new(&module, sharded.clone());
        in_shards.push((module, optimizer));
    }
    for step in 0..STEPS {
        let gradients = wrapped_step(&mut whole, scene, step)?;
        whole.step(0.05, &mut optimizer, gradients)?;
        let expected = named(whole.module(), None).values;
        for (module, optimizer) in &mut in_shards {
            let gradients = wrapped_step(module, scene, step)?;
            optimizer.step(0.05, module, gradients)?;
            same_values(scene, Closeness::Bits, &named(module.module(), None).values, &expected)?;
        }
    }
    Ok(())
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
