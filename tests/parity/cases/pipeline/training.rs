//! Several steps with burn's own optimizer, against plain burn in one process: losses, every gradient, parameters,
//! running statistics.

use std::collections::BTreeMap;

use anyhow::{Context as _, ensure};
use burn::grad_clipping::GradientClipping;
use burn::module::Module;
use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::{DType, Tensor};
use burn_megatron::data_parallel::{DataParallelConfig, DistributedDataParallel, ElementWiseOptimizer};
use burn_megatron::parameters::{Placement, read_host};
use burn_megatron::pipeline_parallel::PipelineExecutor;
use burn_megatron::pipeline_parallel::schedule::{ScheduleConfig, ScheduleKind};

use super::nets::{Part, Samples, Variant, gradients_by_name, mean, pipeline, values_by_name};
use super::{Check, PP1, PP2, PP2DP2, PP2V2, PP4, Run};
use crate::parity::cases::checks::{BOTH_TYPES, F64, checks};
use crate::parity::cases::comparison::{Closeness, Layout};
use crate::parity::cases::wrapper::nets::{named, plain_optimizer, same_values};

pub const CHECKS: &[Check] = checks! {
    conv_net_is_trained_as_in_one_process: ALL, BOTH_TYPES;
    conv_net_is_trained_by_gpipe_as_in_one_process: &[PP2, PP4], F64;
    recomputed_segments_give_the_gradients_of_one_process: ALL, F64;
    stages_that_are_frozen_from_the_first_train_the_others: ALL, F64;
    stages_that_are_frozen_and_recomputed_train_the_others: &[PP2, PP2V2], F64;
    last_micro_batch_may_be_smaller: ALL, F64;
    burns_clipping_of_stages_is_that_of_one_process: &[PP2, PP2DP2, PP2V2], F64;
    running_statistics_are_those_of_the_own_micro_batches: ALL, BOTH_TYPES;
    a_model_that_is_frozen_on_every_stage_is_refused: &[PP2], F64;
    evaluation_gives_the_losses_of_one_process: ALL, F64;
};

const ALL: &[Layout] = &[PP1, PP2, PP4, PP2DP2, PP2V2];
const STEPS: usize = 4;

fn conv_net_is_trained_as_in_one_process(run: &Run) -> anyhow::Result<()> {
    train(run, None, Variant::default())
}

fn conv_net_is_trained_by_gpipe_as_in_one_process(run: &Run) -> anyhow::Result<()> {
    train(run, Some(ScheduleKind::GPipe), Variant::default())
}

fn recomputed_segments_give_the_gradients_of_one_process(run: &Run) -> anyhow::Result<()> {
    let variant = Variant {
        is_recomputed: true,
        ..Variant::default()
    };
    train(run, None, variant)
}

/// Two layers of four: the whole first stage of two, and the first two of four.
fn stages_that_are_frozen_from_the_first_train_the_others(run: &Run) -> anyhow::Result<()> {
    let variant = Variant {
        frozen: 2,
        ..Variant::default()
    };
    train(run, None, variant)
}

/// One stage may be frozen as a whole, all of them may not: at wrapping, and by updates.
fn a_model_that_is_frozen_on_every_stage_is_refused(run: &Run) -> anyhow::Result<()> {
    let nothing = "no parameter of the module is trained";
    let kind = ScheduleKind::OneForwardOneBackward;
    let (mut stages, executor) = pipeline(&run.scene, 1, kind, 4, Variant::default())?;
    let frozen = stages.module().clone().no_grad();
    let wrapped = DistributedDataParallel::new(frozen, &run.scene.context, DataParallelConfig::new());
    let error = wrapped.err().context("it was wrapped")?;
    ensure!(error.to_string().starts_with(nothing), "{error}");

    stages.update(|chunks| chunks.no_grad())?;
    let samples = Samples::of_step(&run.scene, Variant::default(), 0, 0);
    executor.train(&mut stages, &samples, |_, losses| mean(losses))?;
    let error = stages.gradients().err().context("it trained nothing")?;
    ensure!(error.to_string().starts_with(nothing), "{error}");
    Ok(())
}

fn stages_that_are_frozen_and_recomputed_train_the_others(run: &Run) -> anyhow::Result<()> {
    let variant = Variant {
        frozen: 2,
        is_recomputed: true,
        ..Variant::default()
    };
    train(run, None, variant)
}

fn last_micro_batch_may_be_smaller(run: &Run) -> anyhow::Result<()> {
    let variant = Variant {
        is_last_smaller: true,
        ..Variant::default()
    };
    train(run, None, variant)
}

fn burns_clipping_of_stages_is_that_of_one_process(run: &Run) -> anyhow::Result<()> {
    for clipping in [GradientClipping::Norm(0.1), GradientClipping::Value(0.05)] {
        train_clipped(run, None, Variant::default(), Some(clipping))?;
    }
    Ok(())
}

fn train(run: &Run, kind: Option<ScheduleKind>, variant: Variant) -> anyhow::Result<()> {
    train_clipped(run, kind, variant, None)
}

fn train_clipped(
    run: &Run,
    kind: Option<ScheduleKind>,
    variant: Variant,
    clipping: Option<GradientClipping>,
) -> anyhow::Result<()> {
    let (scene, num_chunks) = (&run.scene, run.num_chunks);
    let data = scene.context.coordinates().data;
    let data_size = scene.context.grid().data_parallel_size();
    let count = Samples::of_step(scene, variant, 0, data).len();
    let kind = kind.unwrap_or_else(|| ScheduleKind::for_chunks(num_chunks));
    let (mut wrapped, executor) = pipeline(scene, num_chunks, kind, count, variant)?;
    let mut plain = Part::whole(scene, variant);
    let adamw = ElementWiseOptimizer::from(AdamWConfig::new().with_weight_decay(0.1).build());
    let mut optimizer = match clipping {
        Some(clipping) => adamw.with_grad_clipping(clipping),
        None => adamw,
    };
    let mut plain_optimizer = plain_optimizer(&optimizer);
    let learning_rate = 0.02;
    let share = 1.0 / (count * data_size) as f64;
    for step in 0..STEPS {
        let samples: Vec<Vec<Samples>> = (0..data_size)
            .map(|data| Samples::of_step(scene, variant, step, data))
            .collect();
        let losses: Vec<Tensor<1>> = samples.iter().flatten().map(|samples| plain.loss(samples)).collect();
        let expected_losses = read_host(Tensor::cat(losses.clone(), 0));
        let gradients = Tensor::cat(losses, 0).sum().mul_scalar(share).backward();
        let expected = named(&plain, Some(&gradients)).gradients;

        let losses = executor.train(&mut wrapped, &samples[data], |_, losses| {
            mean(losses).mul_scalar(1.0 / count as f64)
        })?;
        let is_last = scene.context.coordinates().pipeline + 1 == scene.context.grid().pipeline_parallel_size();
        ensure!(
            losses.len() == if is_last { count } else { 0 },
            "{} losses",
            losses.len()
        );
        for (round, loss) in losses.into_iter().enumerate() {
            let loss = [read_host(loss)[0] * count as f64];
            let expected = [expected_losses[data * count + round]];
            scene.close(
                &format!("loss {round} of step {step}"),
                &loss,
                &expected,
                &Placement::whole([1]),
            )?;
        }
        let reduced = wrapped.gradients()?;
        let found = gradients_by_name(wrapped.module(), &reduced);
        // What one backward pass rounds off in f32 is more than in a loss.
        let closeness = match scene.dtype {
            DType::F64 if step == 0 => Closeness::Pass,
            _ => Closeness::Training,
        };
        same_values(scene, closeness, &found, &own(&expected, &found, step)?)?;

        let params = GradientsParams::from_grads(gradients, &plain);
        plain = plain_optimizer.step(learning_rate, plain, params);
        wrapped.step(learning_rate, &mut optimizer, reduced)?;
        wrapped.check_replicas()?;
        // Statistics are each data-parallel rank's own, and a recomputed layer takes them twice.
        let has_same_statistics = data_size == 1 && !variant.is_recomputed;
        let mut found = values_by_name(wrapped.module());
        found.retain(|name, _| has_same_statistics || !name.contains("running"));
        let expected = values_by_name(std::slice::from_ref(&plain));
        same_values(scene, Closeness::Training, &found, &own(&expected, &found, step)?)?;
    }
    Ok(())
}

/// Those of the whole model's values that this rank has, too.
fn own(
    expected: &BTreeMap<String, Vec<f64>>,
    found: &BTreeMap<String, Vec<f64>>,
    step: usize,
) -> anyhow::Result<BTreeMap<String, Vec<f64>>> {
    let mut own = expected.clone();
    own.retain(|name, _| found.contains_key(name));
    ensure!(
        own.len() == found.len(),
        "step {step}: {:?} against {:?}",
        found.keys(),
        expected.keys()
    );
    Ok(own)
}

/// After a first step, of the samples of this data-parallel rank alone.
fn running_statistics_are_those_of_the_own_micro_batches(run: &Run) -> anyhow::Result<()> {
    let variant = Variant::default();
    let (scene, num_chunks) = (&run.scene, run.num_chunks);
    let samples = Samples::of_step(scene, variant, 0, scene.context.coordinates().data);
    let kind = ScheduleKind::for_chunks(num_chunks);
    let (mut wrapped, executor) = pipeline(scene, num_chunks, kind, samples.len(), variant)?;
    executor.train(&mut wrapped, &samples, |_, losses| mean(losses))?;
    let plain = Part::whole(scene, variant);
    for samples in &samples {
        plain.loss(samples);
    }
    let statistics = |parts: &[Part]| {
        let mut values = values_by_name(parts);
        values.retain(|name, _| name.contains("running"));
        values
    };
    let found = statistics(wrapped.module());
    ensure!(!found.is_empty(), "no statistics");
    ensure!(
        found.values().flatten().all(|value| *value != 0.0 && *value != 1.0),
        "statistics that were never updated"
    );
    let expected = statistics(&[plain]);
    same_values(scene, Closeness::Bits, &found, &own(&expected, &found, 0)?)
}

fn evaluation_gives_the_losses_of_one_process(run: &Run) -> anyhow::Result<()> {
    let variant = Variant {
        is_last_smaller: true,
        ..Variant::default()
    };
    let (scene, num_chunks) = (&run.scene, run.num_chunks);
    let data = scene.context.coordinates().data;
    let samples = Samples::of_step(scene, variant, 0, data);
    let kind = ScheduleKind::for_chunks(num_chunks);
    let (wrapped, executor) = pipeline(scene, num_chunks, kind, samples.len(), variant)?;
    let schedule = ScheduleConfig {
        kind,
        num_stages: executor.schedule().num_stages(),
        num_chunks,
        num_micro_batches: samples.len(),
    };
    let executor = PipelineExecutor::new(schedule.forward_only()?, &scene.context)?;
    let mut found = Vec::new();
    executor.evaluate(&wrapped.module().valid(), &samples, |number, losses| {
        found.push((number, read_host(mean(losses))));
    })?;
    let plain = Part::whole(scene, variant).valid();
    for (number, loss) in found {
        let expected = read_host(plain.loss(&samples[number]));
        scene.close(&format!("loss {number}"), &loss, &expected, &Placement::whole([1]))?;
    }
    Ok(())
}
