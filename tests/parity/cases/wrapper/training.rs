//! Several steps with burn's own optimizers: ranks stay equal to the bit, and equal to the one-process run. A parameter
//! that is never used does not move, though weights decay. Each rank updating its shard changes no bit.

use burn::grad_clipping::GradientClippingConfig;
use burn::optim::adaptor::OptimizerAdaptor;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamConfig, AdamWConfig, GradientsParams, MuonConfig, Optimizer, SgdConfig};
use burn_flex::Flex;
use burn_megatron::data_parallel::{DataParallelConfig, DistributedDataParallel, ShardingStrategy};
use burn_megatron::optimizer::{ElementWise, ShardedOptimizer};

use super::nets::{
    ConvNet, CopiedNet, MatrixNet, Net, OddNet, Wrapped, named, plain_step, same_values, wrap, wrapped_step,
};
use super::{ALL, BOTH_TYPES, Check, F64, checks};
use crate::parity::cases::B;
use crate::parity::cases::comparison::{Closeness, Scene};

pub const CHECKS: &[Check] = checks! {
    burns_adamw_trains_a_conv_net_as_in_one_process: ALL, F64 => adamw::<ConvNet<B>>;
    burns_adamw_trains_odd_parameters_as_in_one_process: ALL, F64 => adamw::<OddNet<B>>;
    burns_adam_trains_a_conv_net_as_in_one_process: ALL, F64 => adam::<ConvNet<B>>;
    burns_sgd_trains_a_conv_net_as_in_one_process: ALL, F64 => sgd::<ConvNet<B>>;
    burns_sgd_trains_odd_parameters_as_in_one_process: ALL, F64 => sgd::<OddNet<B>>;
    sharded_optimizers_have_the_bits_of_burns_with_a_conv_net: ALL, BOTH_TYPES => sharded::<ConvNet<B>>;
    sharded_optimizers_have_the_bits_of_burns_with_odd_parameters: ALL, BOTH_TYPES => sharded::<OddNet<B>>;
    sharded_optimizers_have_the_bits_of_burns_with_a_module_copied_in_its_pass:
        ALL, BOTH_TYPES => sharded::<CopiedNet<B>>;
    burns_clipping_trains_a_conv_net_as_in_one_process: ALL, F64 => clipped::<ConvNet<B>>;
    burns_clipping_trains_odd_parameters_as_in_one_process: ALL, F64 => clipped::<OddNet<B>>;
    sharded_optimizers_that_clip_have_the_bits_of_whole_ones: ALL, BOTH_TYPES => clipped_sharded::<OddNet<B>>;
    burns_muon_trains_matrices_as_in_one_process: ALL, F64;
};

const STEPS: usize = 5;
const LEARNING_RATE: f64 = 0.05;
/// Below the gradients of most parameters, and of many elements.
const CLIPPINGS: [GradientClippingConfig; 2] = [GradientClippingConfig::Norm(0.1), GradientClippingConfig::Value(0.05)];

fn adamw<M: Net>(scene: &Scene) -> anyhow::Result<()> {
    train::<M, _>(scene, || AdamWConfig::new().with_weight_decay(0.1).init())
}

fn adam<M: Net>(scene: &Scene) -> anyhow::Result<()> {
    train::<M, _>(scene, || AdamConfig::new().init())
}

fn sgd<M: Net>(scene: &Scene) -> anyhow::Result<()> {
    train::<M, _>(scene, || sgd_config().init())
}

/// Sgd, whose steps are as long as the gradients.
fn clipped<M: Net>(scene: &Scene) -> anyhow::Result<()> {
    for clipping in CLIPPINGS {
        train::<M, _>(scene, || {
            sgd_config().with_gradient_clipping(Some(clipping.clone())).init()
        })?;
    }
    Ok(())
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
    let sizes = [1, 40, 1_000_000];
    sharded_as_whole::<M, _>(scene, 40, &sizes, || adam.init())?;
    sharded_as_whole::<M, _>(scene, 40, &sizes, || adamw.init())?;
    sharded_as_whole::<M, _>(scene, 40, &sizes, || sgd_config().init())
}

/// A norm is a sum over the pieces, which other buckets cut in other places: they are compared size by size.
fn clipped_sharded<M: Net>(scene: &Scene) -> anyhow::Result<()> {
    for clipping in CLIPPINGS {
        let sgd = sgd_config().with_gradient_clipping(Some(clipping));
        for size in [1, 40, 1_000_000] {
            sharded_as_whole::<M, _>(scene, size, &[size], || sgd.init())?;
        }
    }
    Ok(())
}

/// One step after the other with burn's optimizer, and with the same one in shards, in buckets of these sizes.
fn sharded_as_whole<M: Net, O: ElementWise<Flex>>(
    scene: &Scene,
    whole_size: usize,
    sizes: &[usize],
    optimizer: impl Fn() -> OptimizerAdaptor<O, M, B>,
) -> anyhow::Result<()> {
    let mut whole = wrap(M::new(scene, "net"), scene, whole_size)?;
    let mut whole_optimizer = optimizer();
    let mut in_shards = Vec::new();
    for &bucket_size in sizes {
        let config = DataParallelConfig::new()
            .with_bucket_size(Some(bucket_size))
            .with_sharding(ShardingStrategy::Optim);
        let module = DistributedDataParallel::new(M::new(scene, "net"), &scene.context, config)?;
        let optimizer = ShardedOptimizer::new(&module, optimizer())?;
        in_shards.push((module, optimizer));
    }
    for step in 0..STEPS {
        let gradients = wrapped_step(&mut whole, scene, step)?;
        whole.step(LEARNING_RATE, &mut whole_optimizer, gradients)?;
        let expected = named(whole.module(), None).values;
        for (module, optimizer) in &mut in_shards {
            let gradients = wrapped_step(module, scene, step)?;
            optimizer.step(LEARNING_RATE, module, gradients)?;
            same_values(scene, Closeness::Bits, &named(module.module(), None).values, &expected)?;
        }
    }
    Ok(())
}

fn train<M: Net, O: ElementWise<Flex>>(
    scene: &Scene,
    optimizer: impl Fn() -> OptimizerAdaptor<O, M, B>,
) -> anyhow::Result<()> {
    let mut wrapped_optimizer = optimizer();
    train_as_plain(scene, optimizer(), |wrapped: &mut Wrapped<M>, step| {
        let gradients = wrapped_step(wrapped, scene, step)?;
        Ok(wrapped.step(LEARNING_RATE, &mut wrapped_optimizer, gradients)?)
    })
}

/// An optimizer that needs whole matrices.
fn burns_muon_trains_matrices_as_in_one_process(scene: &Scene) -> anyhow::Result<()> {
    let mut optimizer = MuonConfig::new().init();
    train_as_plain(
        scene,
        MuonConfig::new().init(),
        |wrapped: &mut Wrapped<MatrixNet<B>>, step| {
            let gradients = wrapped_step(wrapped, scene, step)?;
            Ok(wrapped.step_whole_parameters(LEARNING_RATE, &mut optimizer, gradients)?)
        },
    )
}

fn train_as_plain<M: Net>(
    scene: &Scene,
    mut plain_optimizer: impl Optimizer<M, B>,
    mut wrapped_update: impl FnMut(&mut Wrapped<M>, usize) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut plain = M::new(scene, "net");
    let mut wrapped = wrap(M::new(scene, "net"), scene, 40)?;
    for step in 0..STEPS {
        let params = GradientsParams::from_grads(plain_step(&plain, scene, step), &plain);
        plain = plain_optimizer.step(LEARNING_RATE, plain, params);
        wrapped_update(&mut wrapped, step)?;
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
