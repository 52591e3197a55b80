//! Several steps with burn's own optimizers: ranks stay equal to the bit, and equal to the one-process run. A parameter
//! that is never used does not move, though weights decay. Each rank updating its shard changes no bit.

use burn::grad_clipping::GradientClipping;
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamConfig, AdamWConfig, GradientsParams, ModuleOptimizer, MuonConfig, Sgd, SgdConfig};
use burn_megatron::data_parallel::{
    DataParallelConfig, DistributedDataParallel, ElementWise, ElementWiseOptimizer, ShardingStrategy,
};
use burn_megatron::optimizer::ShardedOptimizer;

use super::nets::{
    ConvNet, CopiedNet, MatrixNet, Net, OddNet, named, plain_optimizer, plain_step, same_values, wrap, wrapped_step,
};
use super::{ALL, BOTH_TYPES, Check, F64, checks};
use crate::parity::cases::comparison::{Closeness, Scene};

pub const CHECKS: &[Check] = checks! {
    burns_adamw_trains_a_conv_net_as_in_one_process: ALL, F64 => adamw::<ConvNet>;
    burns_adamw_trains_odd_parameters_as_in_one_process: ALL, F64 => adamw::<OddNet>;
    burns_adam_trains_a_conv_net_as_in_one_process: ALL, F64 => adam::<ConvNet>;
    burns_sgd_trains_a_conv_net_as_in_one_process: ALL, F64 => sgd::<ConvNet>;
    burns_sgd_trains_odd_parameters_as_in_one_process: ALL, F64 => sgd::<OddNet>;
    sharded_optimizers_have_the_bits_of_burns_with_a_conv_net: ALL, BOTH_TYPES => sharded::<ConvNet>;
    sharded_optimizers_have_the_bits_of_burns_with_odd_parameters: ALL, BOTH_TYPES => sharded::<OddNet>;
    sharded_optimizers_have_the_bits_of_burns_with_a_module_copied_in_its_pass:
        ALL, BOTH_TYPES => sharded::<CopiedNet>;
    burns_clipping_trains_a_conv_net_as_in_one_process: ALL, F64 => clipped::<ConvNet>;
    burns_clipping_trains_odd_parameters_as_in_one_process: ALL, F64 => clipped::<OddNet>;
    sharded_optimizers_that_clip_have_the_bits_of_whole_ones: ALL, BOTH_TYPES => clipped_sharded::<OddNet>;
    burns_muon_trains_matrices_as_in_one_process: ALL, F64;
};

const STEPS: usize = 5;
const LEARNING_RATE: f64 = 0.05;
/// Below the gradients of most parameters, and of many elements.
const CLIPPINGS: [GradientClipping; 2] = [GradientClipping::Norm(0.1), GradientClipping::Value(0.05)];
/// Elements of a bucket: one, some, and everything.
const BUCKET_SIZES: [usize; 3] = [1, 40, 1_000_000];

fn adamw<M: Net>(scene: &Scene) -> anyhow::Result<()> {
    train::<M>(scene, AdamWConfig::new().with_weight_decay(0.1).build().into())
}

fn adam<M: Net>(scene: &Scene) -> anyhow::Result<()> {
    train::<M>(scene, AdamConfig::new().build().into())
}

fn sgd<M: Net>(scene: &Scene) -> anyhow::Result<()> {
    train::<M>(scene, with_momentum())
}

/// Sgd, whose steps are as long as the gradients.
fn clipped<M: Net>(scene: &Scene) -> anyhow::Result<()> {
    CLIPPINGS
        .into_iter()
        .try_for_each(|clipping| train::<M>(scene, with_momentum().with_grad_clipping(clipping)))
}

fn with_momentum() -> ElementWiseOptimizer<Sgd> {
    let momentum = MomentumConfig {
        momentum: 0.9,
        dampening: 0.1,
        nesterov: true,
    };
    ElementWiseOptimizer::from(SgdConfig::new().with_momentum(Some(momentum)).build())
}

fn sharded<M: Net>(scene: &Scene) -> anyhow::Result<()> {
    let adamw = AdamWConfig::new().with_weight_decay(0.1).build();
    sharded_as_whole::<M>(scene, 40, &BUCKET_SIZES, AdamConfig::new().build().into())?;
    sharded_as_whole::<M>(scene, 40, &BUCKET_SIZES, adamw.into())?;
    sharded_as_whole::<M>(scene, 40, &BUCKET_SIZES, with_momentum())
}

/// A norm is a sum over the pieces, which other buckets cut in other places: they are compared size by size.
fn clipped_sharded<M: Net>(scene: &Scene) -> anyhow::Result<()> {
    for clipping in CLIPPINGS {
        for size in BUCKET_SIZES {
            let sgd = with_momentum().with_grad_clipping(clipping.clone());
            sharded_as_whole::<M>(scene, size, &[size], sgd)?;
        }
    }
    Ok(())
}

/// One step after the other with burn's optimizer, and with the same one in shards, in buckets of these sizes.
fn sharded_as_whole<M: Net>(
    scene: &Scene,
    whole_size: usize,
    sizes: &[usize],
    optimizer: ElementWiseOptimizer<impl ElementWise>,
) -> anyhow::Result<()> {
    let mut whole = wrap(M::new(scene, "net"), scene, whole_size)?;
    let mut whole_optimizer = optimizer.clone();
    let mut in_shards = Vec::new();
    for &bucket_size in sizes {
        let config = DataParallelConfig::new()
            .with_bucket_size(Some(bucket_size))
            .with_sharding(ShardingStrategy::Optim);
        let module = DistributedDataParallel::new(M::new(scene, "net"), &scene.context, config)?;
        let sharded = ShardedOptimizer::new(&module, optimizer.clone())?;
        in_shards.push((module, sharded));
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

fn train<M: Net>(scene: &Scene, mut optimizer: ElementWiseOptimizer<impl ElementWise>) -> anyhow::Result<()> {
    let plain = plain_optimizer(&optimizer);
    train_as_plain(scene, plain, |wrapped: &mut DistributedDataParallel<M>, step| {
        let gradients = wrapped_step(wrapped, scene, step)?;
        Ok(wrapped.step(LEARNING_RATE, &mut optimizer, gradients)?)
    })
}

/// An optimizer that needs whole matrices.
fn burns_muon_trains_matrices_as_in_one_process(scene: &Scene) -> anyhow::Result<()> {
    let mut optimizer = MuonConfig::new().init();
    train_as_plain(
        scene,
        MuonConfig::new().init(),
        |wrapped: &mut DistributedDataParallel<MatrixNet>, step| {
            let gradients = wrapped_step(wrapped, scene, step)?;
            Ok(wrapped.step_whole_parameters(LEARNING_RATE, &mut optimizer, gradients)?)
        },
    )
}

fn train_as_plain<M: Net>(
    scene: &Scene,
    mut plain_optimizer: ModuleOptimizer,
    mut wrapped_update: impl FnMut(&mut DistributedDataParallel<M>, usize) -> anyhow::Result<()>,
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
