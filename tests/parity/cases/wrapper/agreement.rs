//! Ranks that drift apart, and updates after which nothing is trained: refused by parameter, by steps or by name.

use anyhow::ensure;
use burn::module::Module;
use burn_megatron::data_parallel::{DistributedDataParallel, StepPart};

use super::gradients::by_name;
use super::nets::{ConvNet, Net, OddNet, named, plain_step, same_values, sgd, wrap, wrapped_step};
use super::{ALL, Check, DP2, DP4, F64, Failure, ONE, checks, expect_refused};
use crate::parity::cases::comparison::{Closeness, Scene};

pub const CHECKS: &[Check] = checks! {
    a_frozen_module_is_refused_by_its_parameters_until_it_is_thawed: &[ONE, DP2], F64;
    a_part_that_is_frozen_leaves_the_rest_trained: ALL, F64;
    a_module_that_was_moved_keeps_training: ALL, F64;
    another_module_on_one_rank_is_named_by_its_parameter: &[DP2, DP4], F64;
    an_update_on_one_rank_is_named_by_its_number: &[DP2, DP4], F64;
    a_step_that_one_rank_leaves_out_is_named_by_its_number: &[DP2, DP4], F64;
    another_record_leaves_the_wrapped_module_as_it_is: &[ONE], F64;
};

pub const FAILURES: &[Failure] = &[
    Failure {
        name: "a_rank_that_freezes_alone_is_named_with_what_both_have_made",
        run: freeze_on_one_rank,
        layout: DP2,
        messages: &[
            "[comparing the modules' parameters]",
            "rank 0 has made 1 step and 1 update",
            "rank 1 has made 1 step and 0 updates",
        ],
    },
    Failure {
        name: "a_rank_that_ends_a_step_early_is_named_with_what_both_have_made",
        run: one_step_less,
        layout: DP2,
        messages: &[
            "it was dropped there, when that rank had made 1 step and 0 updates",
            "rank 0 has made 1 step and 0 updates",
        ],
    },
];

/// Runs a step with an optimizer.
fn train_step<M: Net>(wrapped: &mut DistributedDataParallel<M>, scene: &Scene, step: usize) -> anyhow::Result<()> {
    let gradients = wrapped_step(wrapped, scene, step)?;
    wrapped.step(0.01, &mut sgd(), gradients)?;
    Ok(())
}

fn a_frozen_module_is_refused_by_its_parameters_until_it_is_thawed(scene: &Scene) -> anyhow::Result<()> {
    let expected = "no parameter of the module is trained: head.weight, head.bias, ";
    expect_refused(wrap(ConvNet::new(scene, "net").no_grad(), scene, 40), expected)?;

    let mut wrapped = wrap(ConvNet::new(scene, "net"), scene, 40)?;
    wrapped_step(&mut wrapped, scene, 0)?;
    expect_refused(wrapped.update(|net| net.no_grad()), expected)?;
    expect_refused(wrapped_step(&mut wrapped, scene, 1), expected)?;

    let thaw = |mut net: ConvNet| {
        net.head.weight = net.head.weight.set_require_grad(true);
        net
    };
    wrapped.update(thaw)?;
    let gradients = by_name(&wrapped_step(&mut wrapped, scene, 1)?);
    let plain = thaw(ConvNet::new(scene, "net").no_grad());
    let expected = named(&plain, Some(&plain_step(&plain, scene, 1))).gradients;
    ensure!(expected.len() == 1, "{:?}", expected.keys());
    same_values(scene, Closeness::Pass, &gradients, &expected)
}

fn a_part_that_is_frozen_leaves_the_rest_trained(scene: &Scene) -> anyhow::Result<()> {
    let freeze = |mut net: ConvNet| {
        net.head = net.head.no_grad();
        net
    };
    let mut wrapped = wrap(ConvNet::new(scene, "net"), scene, 40)?;
    wrapped_step(&mut wrapped, scene, 0)?;
    wrapped.update(freeze)?;
    let gradients = by_name(&wrapped_step(&mut wrapped, scene, 1)?);
    let plain = freeze(ConvNet::new(scene, "net"));
    let expected = named(&plain, Some(&plain_step(&plain, scene, 1))).gradients;
    ensure!(expected.contains_key("conv.weight") && !expected.contains_key("head.weight"));
    same_values(scene, Closeness::Pass, &gradients, &expected)
}

/// By burn's `to_device`, after which no parameter is a leaf, before wrapping and after it.
fn a_module_that_was_moved_keeps_training(scene: &Scene) -> anyhow::Result<()> {
    let plain = ConvNet::new(scene, "net");
    let mut wrapped = wrap(ConvNet::new(scene, "net").to_device(&tests::device()), scene, 40)?;
    for step in 0..2 {
        let gradients = by_name(&wrapped_step(&mut wrapped, scene, step)?);
        let expected = named(&plain, Some(&plain_step(&plain, scene, step))).gradients;
        same_values(scene, Closeness::Pass, &gradients, &expected)?;
        wrapped.update(|net| net.to_device(&tests::device()))?;
    }
    // It is trained, too.
    let before = named(wrapped.module(), None).values;
    train_step(&mut wrapped, scene, 2)?;
    ensure!(before["head.weight"] != named(wrapped.module(), None).values["head.weight"]);
    Ok(())
}

fn another_module_on_one_rank_is_named_by_its_parameter(scene: &Scene) -> anyhow::Result<()> {
    let mut net = OddNet::new(scene, "net");
    let last = scene.context.data_group().size() - 1;
    if scene.context.rank() == last {
        net.sometimes = net.sometimes.no_grad();
    }
    let expected = format!(
        "parameter 3 is sometimes.weight [5, 5] F64, trained on rank 0 and sometimes.weight [5, 5] F64, not trained on \
         rank {last}"
    );
    expect_refused(wrap(net, scene, 40), &expected)
}

/// The values change, and nothing else does.
fn an_update_on_one_rank_is_named_by_its_number(scene: &Scene) -> anyhow::Result<()> {
    let mut wrapped = wrap(ConvNet::new(scene, "net"), scene, 40)?;
    train_step(&mut wrapped, scene, 0)?;
    if scene.context.rank() == 1 {
        wrapped.update(|_| ConvNet::new(scene, "another"))?;
    }
    let expected = "rank 1 has made 1 step and 1 update where rank 0 has made 1 step and 0 updates (group data)";
    expect_refused(wrapped_step(&mut wrapped, scene, 1), expected)
}

/// As when one rank leaves its step out because its own loss is not finite.
fn a_step_that_one_rank_leaves_out_is_named_by_its_number(scene: &Scene) -> anyhow::Result<()> {
    let mut wrapped = wrap(ConvNet::new(scene, "net"), scene, 40)?;
    train_step(&mut wrapped, scene, 0)?;
    let gradients = wrapped_step(&mut wrapped, scene, 1)?;
    if scene.context.rank() != 1 {
        wrapped.step(0.01, &mut sgd(), gradients)?;
    } else {
        drop(gradients);
    }
    let expected = "rank 1 has made 1 step and 0 updates where rank 0 has made 2 steps and 0 updates (group data)";
    expect_refused(wrapped_step(&mut wrapped, scene, 2), expected)
}

fn another_record_leaves_the_wrapped_module_as_it_is(scene: &Scene) -> anyhow::Result<()> {
    let mut wrapped = wrap(OddNet::new(scene, "net"), scene, 40)?;
    let before = named(wrapped.module(), None).values;
    let mut other = OddNet::new(scene, "another");
    other.head = other.sometimes.clone();
    let expected = "head.weight: shape mismatch, expected Shape { dims: [5, 4] } but record has Shape { dims: [5, 5] }";
    expect_refused(wrapped.load_record(other.into_record()), expected)?;
    ensure!(named(wrapped.module(), None).values == before);

    let other = OddNet::new(scene, "another");
    let expected = named(&other, None).values;
    wrapped.load_record(other.into_record())?;
    ensure!(named(wrapped.module(), None).values == expected);
    Ok(())
}

fn freeze_on_one_rank(scene: &Scene) -> anyhow::Result<()> {
    let mut wrapped = wrap(ConvNet::new(scene, "net"), scene, 40)?;
    train_step(&mut wrapped, scene, 0)?;
    if scene.context.rank() == 0 {
        wrapped.update(|mut net: ConvNet| {
            net.head = net.head.no_grad();
            net
        })?;
    }
    train_step(&mut wrapped, scene, 1)
}

fn one_step_less(scene: &Scene) -> anyhow::Result<()> {
    let mut wrapped = wrap(OddNet::new(scene, "net"), scene, 1_000_000)?;
    train_step(&mut wrapped, scene, 0)?;
    if scene.context.rank() == 1 {
        return Ok(());
    }
    wrapped.backward(StepPart::Last, |net| net.loss(scene, 0))?;
    wrapped.gradients()?;
    Ok(())
}
