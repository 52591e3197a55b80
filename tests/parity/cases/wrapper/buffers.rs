//! Buffers, such as a batch norm's running statistics: those of the first rank at the start of each step.

use anyhow::ensure;
use burn_megatron::data_parallel::{DataParallelConfig, DistributedDataParallel, StepPart};
use burn_megatron::parameters::read_host;

use super::nets::{ConvNet, Net, OddNet, micro_batches_of, wrap, wrapped_step};
use super::{ALL, BOTH_TYPES, Check, F64, SEVERAL, checks};
use crate::parity::cases::comparison::Scene;

pub const CHECKS: &[Check] = checks! {
    running_statistics_are_the_first_ranks_when_a_step_begins: ALL, BOTH_TYPES;
    running_statistics_stay_each_ranks_own_without_broadcast: ALL, BOTH_TYPES;
    a_step_of_several_micro_batches_leaves_replicas_that_pass_the_check: ALL, BOTH_TYPES;
    frozen_parameters_do_not_travel_in_every_step: SEVERAL, F64;
};

const STEPS: usize = 3;

fn statistics(net: &ConvNet) -> [Vec<f64>; 2] {
    [&net.norm.running_mean, &net.norm.running_var].map(|state| read_host(state.value_sync()))
}

fn running_statistics_are_the_first_ranks_when_a_step_begins(scene: &Scene) -> anyhow::Result<()> {
    follow(scene, true, 0)
}

fn running_statistics_stay_each_ranks_own_without_broadcast(scene: &Scene) -> anyhow::Result<()> {
    follow(scene, false, scene.context.rank())
}

/// Compares the statistics that each step begins with to those of a plain model that sees `rank`'s samples only.
fn follow(scene: &Scene, broadcast: bool, rank: usize) -> anyhow::Result<()> {
    let plain = ConvNet::new(scene, "net");
    let config = DataParallelConfig::new().with_broadcast_buffers(broadcast);
    let mut wrapped = DistributedDataParallel::new(ConvNet::new(scene, "net"), &scene.context, config)?;
    for step in 0..STEPS {
        let mine = micro_batches_of(scene, step, scene.context.rank());
        let mut begins_with = None;
        for (round, &micro_batch) in mine.iter().enumerate() {
            let part = if round + 1 == mine.len() {
                StepPart::Last
            } else {
                StepPart::More
            };
            wrapped.backward(part, |net: ConvNet| {
                begins_with.get_or_insert_with(|| statistics(&net));
                net.loss(scene, micro_batch)
            })?;
        }
        wrapped.gradients()?;
        ensure!(
            begins_with == Some(statistics(&plain)),
            "step {step} does not begin with the statistics of rank {rank}"
        );
        for micro_batch in micro_batches_of(scene, step, rank) {
            plain.loss(scene, micro_batch);
        }
    }
    let [mean, variance] = statistics(&plain);
    ensure!(mean[0] != 0.0 && variance[0] != 1.0, "nothing was ever updated");
    Ok(())
}

/// Ranks see other samples, so their statistics differ until the next step begins. That is no drift of replicas.
fn a_step_of_several_micro_batches_leaves_replicas_that_pass_the_check(scene: &Scene) -> anyhow::Result<()> {
    let mut wrapped = wrap(ConvNet::new(scene, "net"), scene, 40)?;
    for step in 0..2 {
        wrapped_step(&mut wrapped, scene, step)?;
        // As a checkpoint would read it.
        statistics(wrapped.module());
        wrapped.check_replicas()?;
    }
    Ok(())
}

/// From the third step on, the first rank, which owns what is broadcast, sends no more than the others.
fn frozen_parameters_do_not_travel_in_every_step(scene: &Scene) -> anyhow::Result<()> {
    let mut wrapped = wrap(OddNet::new(scene, "net"), scene, 40)?;
    for step in 0..2 {
        wrapped_step(&mut wrapped, scene, step)?;
    }
    let group = scene.context.data_group();
    let before = group.bytes_communicated();
    wrapped_step(&mut wrapped, scene, 2)?;
    let sent = (group.bytes_communicated() - before) as i64;
    let mut all = vec![0; group.size()];
    group.all_gather(&[sent], &mut all)?;
    ensure!(all.iter().all(|&other| other == sent), "ranks sent {all:?} bytes");
    Ok(())
}
