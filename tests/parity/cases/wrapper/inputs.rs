//! Tensor-parallel ranks that are given different samples: they share each layer, so that must not train on.

use anyhow::ensure;
use burn::module::Module;
use burn::tensor::Tensor;
use burn_megatron::data_parallel::{DataParallelConfig, DistributedDataParallel, StepPart};
use burn_megatron::tensor_parallel::{
    ColumnParallelLinear, ColumnParallelLinearConfig, RowParallelLinear, RowParallelLinearConfig,
    VocabParallelEmbedding, VocabParallelEmbeddingConfig,
};

use super::nets::sgd;
use super::{Check, F64, TP2, TP2SP, TP4, checks, expect_refused};
use crate::parity::cases::comparison::Scene;

pub const CHECKS: &[Check] = checks! {
    other_samples_on_a_tensor_rank_are_refused_by_layer_and_ranks: &[TP2, TP4], F64;
    other_targets_on_a_tensor_rank_are_refused_by_both_losses: &[TP2, TP4], F64;
    other_tokens_on_a_tensor_rank_are_refused_by_layer_and_ranks: &[TP2, TP2SP], F64;
    samples_are_compared_in_the_first_step_and_every_so_many: &[TP2], F64;
    inputs_that_differ_by_rounding_are_the_same: &[TP2], F64;
    a_batch_can_be_compared_by_itself: &[TP2, TP2SP], F64;
    an_update_on_one_tensor_rank_is_named_by_its_number: &[TP2, TP2SP], F64;
    a_step_that_one_tensor_rank_leaves_out_is_named_by_its_number: &[TP2, TP2SP], F64;
    another_module_on_a_tensor_rank_is_named_by_its_parameter: &[TP2], F64;
};

const SAMPLES: usize = 4;

/// Two layers, cut as Megatron-LM cuts an MLP.
#[derive(Module, Debug)]
struct Mlp {
    up: ColumnParallelLinear,
    down: RowParallelLinear,
}

type Wrapped = DistributedDataParallel<Mlp>;

fn wrap(scene: &Scene, interval: usize) -> anyhow::Result<Wrapped> {
    let context = scene.context.scope("net");
    let mlp = Mlp {
        up: ColumnParallelLinearConfig::new(3, 8).init(&tests::device(), &context.scope("up"))?,
        down: RowParallelLinearConfig::new(8, 2).init(&tests::device(), &context.scope("down"))?,
    };
    let config = DataParallelConfig::new().with_check_inputs_interval(interval);
    Ok(DistributedDataParallel::new(mlp, &scene.context, config)?)
}

/// What a rank sees in a step.
struct Batch {
    input: Tensor<2>,
    target: Tensor<2>,
}

fn batch(scene: &Scene, input: &str, target: &str) -> Batch {
    Batch {
        input: scene.tensor(scene.random(input, SAMPLES * 3), [SAMPLES, 3]),
        target: scene.tensor(scene.random(target, SAMPLES * 2), [SAMPLES, 2]),
    }
}

/// One step, without an optimizer.
fn step(wrapped: &mut Wrapped, batch: Batch) -> anyhow::Result<()> {
    wrapped.backward(StepPart::Last, |mlp| {
        let difference = mlp.down.forward(mlp.up.forward(batch.input)) - batch.target;
        (difference.clone() * difference).sum()
    })?;
    wrapped.gradients()?;
    Ok(())
}

/// What the last rank of the tensor group is given, and what the others are.
fn of_last<'a>(scene: &Scene, last: &'a str, others: &'a str) -> &'a str {
    if scene.group().rank() + 1 == scene.size() {
        last
    } else {
        others
    }
}

fn other_samples_on_a_tensor_rank_are_refused_by_layer_and_ranks(scene: &Scene) -> anyhow::Result<()> {
    let mut wrapped = wrap(scene, 100)?;
    let last = scene.size() - 1;
    let expected = format!(
        "rank {last} was given another input than rank 0, at the input of net.up, a column-parallel layer (group \
         tensor)"
    );
    expect_refused(
        step(&mut wrapped, batch(scene, of_last(scene, "a", "b"), "target")),
        &expected,
    )
}

fn other_targets_on_a_tensor_rank_are_refused_by_both_losses(scene: &Scene) -> anyhow::Result<()> {
    let mut wrapped = wrap(scene, 100)?;
    let last = scene.size() - 1;
    let message =
        step(&mut wrapped, batch(scene, "input", of_last(scene, "a", "b"))).map_err(|error| error.to_string());
    let expected = format!(" on rank {last} (group tensor)");
    let is_named = |message: &String| message.starts_with("the loss of step 1 is ") && message.contains(&expected);
    ensure!(message.as_ref().is_err_and(is_named), "{message:?}");
    Ok(())
}

fn other_tokens_on_a_tensor_rank_are_refused_by_layer_and_ranks(scene: &Scene) -> anyhow::Result<()> {
    let table: VocabParallelEmbedding =
        VocabParallelEmbeddingConfig::new(8, 4).init(&tests::device(), &scene.context.scope("table"))?;
    let config = DataParallelConfig::new();
    let mut wrapped = DistributedDataParallel::new(table, &scene.context, config)?;
    let mine = [1, 5, 2, scene.group().rank() as i32];
    let tokens = scene.ids(&mine);
    let loss = wrapped.backward(StepPart::Last, |table| table.forward(tokens).sum());
    let expected = "rank 1 was given another input than rank 0, at the tokens of table, an embedding (group tensor)";
    expect_refused(loss, expected)
}

/// Steps 0 and 3 of every three are compared; none is if the interval is zero.
fn samples_are_compared_in_the_first_step_and_every_so_many(scene: &Scene) -> anyhow::Result<()> {
    let other = || batch(scene, of_last(scene, "a", "b"), "target");
    let mut wrapped = wrap(scene, 3)?;
    step(&mut wrapped, batch(scene, "input", "target"))?;
    step(&mut wrapped, other())?;
    step(&mut wrapped, other())?;
    expect_refused(step(&mut wrapped, other()), "")?;

    let mut wrapped = wrap(scene, 0)?;
    step(&mut wrapped, other())?;
    Ok(())
}

fn inputs_that_differ_by_rounding_are_the_same(scene: &Scene) -> anyhow::Result<()> {
    let mut wrapped = wrap(scene, 1)?;
    let mut mine = batch(scene, "input", "target");
    mine.input = mine.input.mul_scalar(1.0 + 1e-6 * scene.group().rank() as f64);
    step(&mut wrapped, mine)
}

fn a_batch_can_be_compared_by_itself(scene: &Scene) -> anyhow::Result<()> {
    let context = &scene.context;
    context.check_same_batch(&scene.ids(&[1, 2, 3]))?;
    context.check_same_batch(&batch(scene, "input", "target").input)?;
    let other = scene.ids(&[1, 2, 3 + scene.group().rank() as i32]);
    let expected = "rank 1 was given another input than rank 0, at the batch (group model)";
    expect_refused(context.check_same_batch(&other), expected)?;
    let longer = scene.ids(&vec![1; 2 + scene.group().rank()]);
    expect_refused(context.check_same_batch(&longer), "")
}

fn an_update_on_one_tensor_rank_is_named_by_its_number(scene: &Scene) -> anyhow::Result<()> {
    let mut wrapped = wrap(scene, 0)?;
    step(&mut wrapped, batch(scene, "input", "target"))?;
    if scene.group().rank() == 1 {
        wrapped.update(|mlp| mlp)?;
    }
    let expected = "rank 1 has made 0 steps and 1 update where rank 0 has made 0 steps and 0 updates (group model)";
    expect_refused(step(&mut wrapped, batch(scene, "input", "target")), expected)
}

fn a_step_that_one_tensor_rank_leaves_out_is_named_by_its_number(scene: &Scene) -> anyhow::Result<()> {
    let mut wrapped = wrap(scene, 0)?;
    let loss = |mlp: Mlp, batch: Batch| mlp.down.forward(mlp.up.forward(batch.input)).sum();
    wrapped.backward(StepPart::Last, |mlp| loss(mlp, batch(scene, "input", "target")))?;
    let gradients = wrapped.gradients()?;
    if scene.group().rank() == 0 {
        wrapped.step(0.01, &mut sgd(), gradients)?;
    } else {
        drop(gradients);
    }
    let expected = "rank 1 has made 0 steps and 0 updates where rank 0 has made 1 step and 0 updates (group model)";
    expect_refused(step(&mut wrapped, batch(scene, "input", "target")), expected)
}

fn another_module_on_a_tensor_rank_is_named_by_its_parameter(scene: &Scene) -> anyhow::Result<()> {
    let width = [8, 12][scene.group().rank()];
    let layer = ColumnParallelLinearConfig::new(3, width).init(&tests::device(), &scene.context.scope("up"))?;
    let wrapped = DistributedDataParallel::new(layer, &scene.context, DataParallelConfig::new());
    let expected = "parameter 1 is weight [3, 1, 8] F64, trained on rank 0 and weight [3, 1, 12] F64";
    expect_refused(wrapped, expected)
}
