//! Programs that give ranks different things: refused, with what differs and on which ranks.

use std::time::Duration;

use anyhow::ensure;
use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::{Device, FloatDType, Tensor};
use burn_megatron::collectives::{GroupConfig, catch_collective_error};
use burn_megatron::context::ParallelContext;
use burn_megatron::data_parallel::{DataParallelConfig, DistributedDataParallel, StepPart};
use burn_megatron::initialize;
use burn_megatron::launch::World;
use burn_megatron::sharded::{Mesh, PlacedDataParallel, Plan, backward, distribute, parallelize};
use burn_megatron::topology::ParallelConfig;
use libtest_mimic::Trial;
use tests::harness::{Case, Job};

use super::layouts::{DATA, TENSOR};
use super::passes::placed_device;

/// A program, and what both ranks say of it.
const MISTAKES: &[(&str, &[&str])] = &[
    (
        "batches_of_other_lengths",
        &[
            "rank 0 gave distribute a batch of shape [8, 3], and rank 1 gave distribute a batch of shape [10, 3]",
            "every rank gives distribute the same whole batch",
        ],
    ),
    (
        "own_samples_that_are_not_distributed",
        &["the loss is ", " on rank 0 and ", " on rank 1", "goes to from_local"],
    ),
    (
        "own_samples_in_distributed_data_parallel",
        &["the loss is ", " on rank 0 and ", " on rank 1", "goes to from_local"],
    ),
    (
        "own_samples_that_are_distributed",
        &["rank 0 and rank 1 gave distribute a batch of shape [4, 3] of different elements"],
    ),
    (
        "a_loss_that_is_scaled_on_one_rank",
        &["the loss is ", "whatever scales the loss must be the same on all"],
    ),
    (
        "a_step_that_one_rank_leaves_out",
        &["the global batch of data_shard or shard_loader is 8..16 on rank 0 and 16..24 on rank 1 (group data)"],
    ),
    (
        "a_learning_rate_of_one_rank",
        &["the learning rate of the last step is 0.1 on rank 0 and 0.2 on rank 1 (group data)"],
    ),
    (
        "a_rank_that_ends_after_a_forward_pass",
        &["rank 1 gave the group up: it was dropped there"],
    ),
    (
        "a_model_on_another_device",
        &["parameter weight: a tensor on Device<Flex", "sharded::device"],
    ),
    (
        "a_state_that_is_read_on_another_thread",
        &[
            "is a collective of the thread that trains",
            "sharded::whole_record(&optimizer)",
        ],
    ),
];

pub fn trials() -> Vec<Trial> {
    let trial = |&(mistake, messages): &(&'static str, &[&'static str])| {
        let case = Case::new("sharded_models", "mistaken").with("mistake", mistake);
        let job = Job::new(case, 2).ends_within(Duration::from_secs(50));
        job.fails_with(format!("ranks_do_not_train_on_with_{mistake}"), messages)
    };
    MISTAKES.iter().map(trial).collect()
}

pub fn run(case: &Case, world: &World) -> anyhow::Result<()> {
    let mistake: String = case.setting("mistake")?;
    let is_second = world.rank() == 1;
    let device = &placed_device(FloatDType::F32)?;
    device.seed(1);
    let context = || ParallelConfig::new().init(world);
    match mistake.as_str() {
        "batches_of_other_lengths" => {
            let mesh = Mesh::of(&context()?)?;
            let length = if is_second { 10 } else { 8 };
            train(device, &mesh, &Plan::new(), |layer, _| {
                let batch = distribute(rows(device, 0..length), &mesh, DATA, 0);
                Ok(layer.forward(batch).mean())
            })
        }
        "own_samples_that_are_not_distributed" => {
            let context = context()?;
            train(device, &Mesh::of(&context)?, &Plan::new(), |layer, step| {
                Ok(layer.forward(own_rows(device, &context, step)?).mean())
            })
        }
        "own_samples_in_distributed_data_parallel" => {
            let context = context()?;
            let mesh = Mesh::of(&context)?;
            let layer = parallelize(layer(device), &Plan::new(), &mesh)?;
            let mut model = PlacedDataParallel::new(layer, &mesh, &context, DataParallelConfig::new())?;
            let batch = own_rows(device, &context, 0)?;
            model.backward(StepPart::Last, |layer: Linear| layer.forward(batch).mean())?;
            Ok(())
        }
        "own_samples_that_are_distributed" => {
            let context = context()?;
            let mesh = Mesh::of(&context)?;
            train(device, &mesh, &Plan::new(), |layer, step| {
                let batch = distribute(own_rows(device, &context, step)?, &mesh, DATA, 0);
                Ok(layer.forward(batch).mean())
            })
        }
        "a_loss_that_is_scaled_on_one_rank" => {
            let mesh = Mesh::connect(world, &[(TENSOR, 2)], &GroupConfig::new())?;
            let scale = if is_second { 0.5 } else { 1.0 };
            train(device, &mesh, &Plan::new().shard("weight", TENSOR, 1), |layer, _| {
                Ok(layer.forward(rows(device, 0..8)).sum().exp() * scale)
            })
        }
        "a_step_that_one_rank_leaves_out" => {
            let context = context()?;
            wrapped(&context, (0..3).filter(|&step| !(is_second && step == 1)), |_| 0.1)
        }
        "a_learning_rate_of_one_rank" => {
            let context = context()?;
            wrapped(&context, 0..3, |step| if is_second && step == 1 { 0.2 } else { 0.1 })
        }
        "a_rank_that_ends_after_a_forward_pass" => {
            let mesh = Mesh::connect(world, &[(TENSOR, 2)], &GroupConfig::new())?;
            let plan = Plan::new().shard("weight", TENSOR, 1);
            let layer = parallelize(layer(device), &plan, &mesh)?;
            let loss = catch_collective_error(|| layer.forward(rows(device, 0..8)).sum().tanh())?;
            if is_second {
                drop((loss, layer, mesh));
                return Ok(());
            }
            let Err(error) = backward(loss, &layer) else {
                return Ok(());
            };
            // Its locks are free: the device can be used after it.
            let sum = Tensor::<1>::ones([3], device).sum().into_scalar::<f32>();
            ensure!(sum == 3.0, "after {error} a sum is {sum}");
            Err(error.into())
        }
        "a_model_on_another_device" => {
            let mesh = Mesh::connect(world, &[(TENSOR, 2)], &GroupConfig::new())?;
            parallelize(layer(&Device::flex()), &Plan::new(), &mesh)?;
            Ok(())
        }
        "a_state_that_is_read_on_another_thread" => {
            let mesh = Mesh::connect(world, &[(TENSOR, 2)], &GroupConfig::new())?;
            let plan = Plan::new().shard("weight", TENSOR, 1);
            let weight = parallelize(layer(device), &plan, &mesh)?.weight.val();
            let read = std::thread::spawn(move || catch_collective_error(|| weight.into_data()));
            read.join().expect("errors are caught")?;
            Ok(())
        }
        other => anyhow::bail!("there is no mistake {other}"),
    }
}

fn layer(device: &Device) -> Linear {
    initialize(LinearConfig::new(3, 2).init(device))
}

/// Samples of three numbers.
fn rows(device: &Device, samples: std::ops::Range<usize>) -> Tensor<2> {
    let count = samples.len();
    let numbers = (samples.start * 3) as i64..(samples.end * 3) as i64;
    Tensor::arange(numbers, device).float().reshape([count, 3]) * 0.1
}

/// This rank's of a batch of eight.
fn own_rows(device: &Device, context: &ParallelContext, step: usize) -> anyhow::Result<Tensor<2>> {
    Ok(rows(device, context.data_shard(step * 8..(step + 1) * 8)?))
}

fn train(
    device: &Device,
    mesh: &Mesh,
    plan: &Plan,
    loss: impl Fn(&Linear, usize) -> anyhow::Result<Tensor<1>>,
) -> anyhow::Result<()> {
    let mut model = parallelize(layer(device), plan, mesh)?;
    let mut optimizer = SgdConfig::new().init();
    for step in 0..3 {
        let loss = catch_collective_error(|| loss(&model, step))??;
        let (loss, gradients) = backward(loss, &model)?;
        model = optimizer.step(0.1, model, gradients);
        println!("step {step}: {}", loss.into_scalar::<f32>());
    }
    Ok(())
}

/// Trains without a mesh.
fn wrapped(
    context: &ParallelContext,
    steps: impl Iterator<Item = usize>,
    learning_rate: impl Fn(usize) -> f64,
) -> anyhow::Result<()> {
    let device = &tests::device();
    let mut model = DistributedDataParallel::new(layer(device), context, DataParallelConfig::new())?;
    let mut optimizer = SgdConfig::new().init();
    for step in steps {
        let batch = own_rows(device, context, step)?;
        model.train_step(learning_rate(step), &mut optimizer, |layer| layer.forward(batch).mean())?;
    }
    println!("{} parameters", model.module().num_params());
    Ok(())
}
