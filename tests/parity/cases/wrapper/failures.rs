//! Misuse and mishaps: a hooked module used twice, a forward pass that panics, types that do not mix.

use anyhow::{Context as _, ensure};
use burn::tensor::DType;
use burn_megatron::data_parallel::{DataParallelConfig, DistributedDataParallel, ShardingStrategy, StepPart};
use burn_megatron::optimizer::ShardedOptimizer;

use super::gradients::by_name;
use super::nets::{ConvNet, Net, OddNet, micro_batches_of, named, plain_step, same_values, sgd, wrap, wrapped_step};
use super::{ALL, Check, DP2, F64, Failure, ONE, checks, expect_refused};
use crate::parity::cases::comparison::{Closeness, Scene};

pub const CHECKS: &[Check] = checks! {
    a_step_without_a_last_micro_batch_is_reduced_all_the_same: ALL, F64;
    gradients_that_are_dropped_leave_room_for_the_next_step: ALL, F64;
    a_loss_of_a_captured_module_is_refused: ALL, F64;
    a_parameter_in_two_places_is_refused_by_paths: &[ONE], F64;
    a_module_of_two_types_is_refused_by_names: &[ONE], F64;
};

pub const FAILURES: &[Failure] = &[
    Failure {
        name: "a_forward_that_panics_ends_the_job_with_its_message",
        run: panicking_forward,
        layout: DP2,
        messages: &["this forward pass fails on purpose", "because rank 1"],
    },
    Failure {
        name: "a_backward_pass_behind_the_last_one_is_refused",
        run: pass_behind_the_last,
        layout: DP2,
        messages: &["take its gradients before the next step begins"],
    },
    Failure {
        name: "a_second_pass_through_a_hooked_module_is_refused",
        run: second_pass,
        layout: DP2,
        messages: &["graph tape has already been consumed", "because rank 1"],
    },
    Failure {
        name: "parameters_that_do_not_come_end_the_next_pass_with_their_bucket",
        run: lost_parameters,
        layout: DP2,
        messages: &["this update fails on purpose", "parameters of bucket", "because rank 1"],
    },
];

/// A hooked clone that outlives its pass, on one rank.
fn second_pass(scene: &Scene) -> anyhow::Result<()> {
    let mut wrapped = wrap(OddNet::new(scene, "net"), scene, 40)?;
    let is_second = scene.context.rank() == 1;
    let mut kept = None;
    wrapped.backward(StepPart::More, |net: OddNet| {
        kept = Some(net.clone()).filter(|_| is_second);
        net.loss(scene, 0)
    })?;
    if let Some(kept) = kept {
        kept.loss(scene, 0).backward();
    }
    wrapped.backward(StepPart::Last, |net| net.loss(scene, 0))?;
    drop(wrapped.gradients()?);
    Ok(())
}

fn pass_behind_the_last(scene: &Scene) -> anyhow::Result<()> {
    let mut wrapped = wrap(OddNet::new(scene, "net"), scene, 40)?;
    for micro_batch in [0, 1] {
        wrapped.backward(StepPart::Last, |net| net.loss(scene, micro_batch))?;
    }
    Ok(())
}

/// As when a step is skipped because its gradients are not finite.
fn gradients_that_are_dropped_leave_room_for_the_next_step(scene: &Scene) -> anyhow::Result<()> {
    let net = ConvNet::new(scene, "net");
    let mut wrapped = wrap(ConvNet::new(scene, "net"), scene, 40)?;
    drop(wrapped_step(&mut wrapped, scene, 0)?);
    let gradients = by_name(&wrapped_step(&mut wrapped, scene, 1)?);
    let expected = named(&net, Some(&plain_step(&net, scene, 1))).gradients;
    same_values(scene, Closeness::Pass, &gradients, &expected)
}

/// Without a last part, nothing is reduced during the backward passes, and everything after them.
fn a_step_without_a_last_micro_batch_is_reduced_all_the_same(scene: &Scene) -> anyhow::Result<()> {
    let net = ConvNet::new(scene, "net");
    let mut wrapped = wrap(ConvNet::new(scene, "net"), scene, 40)?;
    let mine = micro_batches_of(scene, 0, scene.context.rank());
    for &micro_batch in &mine {
        let share = 1.0 / mine.len() as f64;
        wrapped.backward(StepPart::More, |net| net.loss(scene, micro_batch).mul_scalar(share))?;
    }
    let expected = named(&net, Some(&plain_step(&net, scene, 0))).gradients;
    same_values(scene, Closeness::Pass, &by_name(&wrapped.gradients()?), &expected)
}

/// As when the closure computes its loss with the wrapper's own module instead of the one that it is given.
fn a_loss_of_a_captured_module_is_refused(scene: &Scene) -> anyhow::Result<()> {
    let mut wrapped = wrap(OddNet::new(scene, "net"), scene, 40)?;
    let captured = wrapped.module().clone();
    wrapped.backward(StepPart::Last, |_| captured.loss(scene, 0))?;
    let expected = "no parameter received a gradient in this step";
    expect_refused(wrapped.gradients(), expected)?;
    // The wrapper works again in the next step.
    wrapped_step(&mut wrapped, scene, 0)?;
    Ok(())
}

fn a_parameter_in_two_places_is_refused_by_paths(scene: &Scene) -> anyhow::Result<()> {
    let mut net = OddNet::new(scene, "net");
    net.head.bias = net.sometimes.bias.clone();
    let expected = "sometimes.bias and head.bias are clones of one parameter";
    expect_refused(wrap(net, scene, 40), expected)
}

fn a_module_of_two_types_is_refused_by_names(scene: &Scene) -> anyhow::Result<()> {
    let mut net = ConvNet::new(scene, "net");
    net.conv.weight = net
        .conv
        .weight
        .map(|weight| weight.cast(DType::F32).detach().require_grad());
    let error = wrap(net, scene, 40)
        .err()
        .context("a module of two types was accepted")?;
    let message = format!("{error:#}");
    let named = message.contains("head.weight is F64") && message.contains("conv.weight is F32");
    ensure!(named, "{message:?} does not name the parameters");
    Ok(())
}

/// After a step that went well, so that the other rank waits in the middle of its work.
fn panicking_forward(scene: &Scene) -> anyhow::Result<()> {
    let mut wrapped = wrap(ConvNet::new(scene, "net"), scene, 40)?;
    wrapped_step(&mut wrapped, scene, 0)?;
    wrapped.backward(StepPart::Last, |net: ConvNet| {
        assert!(scene.context.rank() != 1, "this forward pass fails on purpose");
        net.loss(scene, 4)
    })?;
    wrapped.gradients()?;
    Ok(())
}

/// The other rank has the gathers of its parameters under way, and begins the next pass.
fn lost_parameters(scene: &Scene) -> anyhow::Result<()> {
    let config = DataParallelConfig::new()
        .with_bucket_size(Some(40))
        .with_sharding(ShardingStrategy::Optim);
    let mut wrapped = DistributedDataParallel::new(ConvNet::new(scene, "net"), &scene.context, config)?;
    let mut optimizer = ShardedOptimizer::new(&wrapped, sgd())?;
    let gradients = wrapped_step(&mut wrapped, scene, 0)?;
    assert!(scene.context.rank() != 1, "this update fails on purpose");
    optimizer.step(0.1, &mut wrapped, gradients)?;
    let next = wrapped_step(&mut wrapped, scene, 1);
    println!("the next pass of rank 0: {next:?}");
    next.map(drop)
}
