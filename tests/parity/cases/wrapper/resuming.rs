//! Checkpoints of burn modules: what is trained, frozen and counted comes back, and a run resumes bit for bit.

use anyhow::{Context as _, ensure};
use burn::grad_clipping::GradientClipping;
use burn::optim::{Adam, AdamConfig};
use burn_megatron::checkpoint::{Checkpoint, CheckpointConfig, CheckpointWriter};
use burn_megatron::data_parallel::{
    DataParallelConfig, DistributedDataParallel, ElementWiseOptimizer, ShardingStrategy,
};
use burn_megatron::optimizer::ShardedOptimizer;
use burn_megatron::training::{restore, snapshot};
use tests::rank_folder::RankFolder;

use super::nets::{ConvNet, Net, OddNet, named, same_values, wrapped_step};
use super::{ALL, BOTH_TYPES, Check, F64, SEVERAL, checks};
use crate::parity::cases::comparison::{Closeness, Scene};

pub const CHECKS: &[Check] = checks! {
    checkpoints_of_a_conv_net_go_on_with_its_running_statistics: ALL, BOTH_TYPES => resume::<ConvNet>;
    checkpoints_of_odd_parameters_go_on_with_the_frozen_ones: ALL, BOTH_TYPES => resume::<OddNet>;
    restored_frozen_parameters_do_not_travel_in_every_step: SEVERAL, F64;
};

const STEPS: usize = 2;

type Run<M> = (DistributedDataParallel<M>, ShardedOptimizer<Adam>);

/// A run before its first step, whose numbers have a name. Gradients are clipped.
fn begin<M: Net>(scene: &Scene, numbers: &str) -> anyhow::Result<Run<M>> {
    let config = DataParallelConfig::new()
        .with_bucket_size(Some(40))
        .with_sharding(ShardingStrategy::Optim);
    let module = DistributedDataParallel::new(M::new(scene, numbers), &scene.context, config)?;
    let adam = ElementWiseOptimizer::from(AdamConfig::new().build());
    let optimizer = ShardedOptimizer::new(&module, adam.with_grad_clipping(GradientClipping::Norm(0.1)))?;
    Ok((module, optimizer))
}

fn train<M: Net>((module, optimizer): &mut Run<M>, scene: &Scene, steps: std::ops::Range<usize>) -> anyhow::Result<()> {
    for step in steps {
        let gradients = wrapped_step(module, scene, step)?;
        optimizer.step(0.05, module, gradients)?;
    }
    Ok(())
}

/// Trains, saves, and trains further; a run of other numbers resumes from the checkpoint.
fn two_runs<M: Net>(scene: &Scene) -> anyhow::Result<[Run<M>; 2]> {
    let folder = RankFolder::new(scene.context.world_group())?;
    let mut undisturbed = begin::<M>(scene, "net")?;
    train(&mut undisturbed, scene, 0..STEPS)?;
    let world = scene.context.world_group();
    let mut writer = CheckpointWriter::new(world.clone(), &folder.path, CheckpointConfig::new())?;
    let parts = snapshot(&undisturbed.0, &undisturbed.1, &scene.context)?;
    writer.save(STEPS as u64, parts, serde_json::Value::Null)?;
    train(&mut undisturbed, scene, STEPS..2 * STEPS)?;

    let checkpoint = Checkpoint::latest(&folder.path)?.context("there is no checkpoint")?;
    let mut resumed = begin::<M>(scene, "other")?;
    restore(&checkpoint, &mut resumed.0, &mut resumed.1, &scene.context, true)?;
    world.barrier()?;
    train(&mut resumed, scene, STEPS..2 * STEPS)?;
    Ok([undisturbed, resumed])
}

fn resume<M: Net>(scene: &Scene) -> anyhow::Result<()> {
    let [expected, resumed] = two_runs::<M>(scene)?.map(|(module, _)| named(module.module(), None).values);
    // The statistics after a step are each rank's own.
    let trained = |mut values: std::collections::BTreeMap<String, Vec<f64>>| {
        values.retain(|name, _| scene.context.rank() == 0 || !name.contains("running"));
        values
    };
    let (expected, resumed) = (trained(expected), trained(resumed));
    ensure!(expected.len() > 4, "{:?}", expected.keys());
    same_values(scene, Closeness::Bits, &resumed, &expected)
}

/// In the third step after a restore the first rank, which owns what is broadcast, sends no more than the others.
fn restored_frozen_parameters_do_not_travel_in_every_step(scene: &Scene) -> anyhow::Result<()> {
    let [_, mut resumed] = two_runs::<OddNet>(scene)?;
    let group = scene.context.data_group();
    // The parameters of the last update are on their way.
    resumed.0.wait_for_parameters()?;
    let before = group.bytes_communicated();
    train(&mut resumed, scene, 2 * STEPS..2 * STEPS + 1)?;
    resumed.0.wait_for_parameters()?;
    let sent = (group.bytes_communicated() - before) as i64;
    let mut all = vec![0; group.size()];
    group.all_gather(&[sent], &mut all)?;
    ensure!(all.iter().all(|&other| other == sent), "ranks sent {all:?} bytes");
    Ok(())
}
