//! Ranks that drift apart, and updates after which nothing is trained: refused by parameter, by steps or by name.

use anyhow::{Context as _, ensure};
use burn::module::Module;
use burn::optim::SgdConfig;
use burn_flex::FlexDevice;
use burn_megatron::data_parallel::StepPart;

use super::gradients::by_name;
use super::nets::{ConvNet, Net, OddNet, Wrapped, named, plain_step, same_values, wrap, wrapped_step};
use super::{ALL, Check, DP2, DP4, Failure, ONE, check};
use crate::parity::cases::B;
use crate::parity::cases::comparison::{Closeness, Scene};

pub const CHECKS: &[Check] = &[
    check(
        "a_frozen_module_is_refused_by_its_parameters_until_it_is_thawed",
        frozen,
        &[ONE, DP2],
    ),
    check("a_part_that_is_frozen_leaves_the_rest_trained", partly_frozen, ALL),
    check("a_module_that_was_moved_keeps_training", moved, ALL),
    check(
        "another_module_on_one_rank_is_named_by_its_parameter",
        other_module,
        &[DP2, DP4],
    ),
    check(
        "an_update_on_one_rank_is_named_by_its_number",
        update_on_one_rank,
        &[DP2, DP4],
    ),
    check(
        "a_step_that_one_rank_leaves_out_is_named_by_its_number",
        step_left_out,
        &[DP2, DP4],
    ),
    check(
        "another_record_leaves_the_wrapped_module_as_it_is",
        other_record,
        &[ONE],
    ),
];

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
fn train_step<M: Net>(wrapped: &mut Wrapped<M>, scene: &Scene, step: usize) -> anyhow::Result<()> {
    let gradients = wrapped_step(wrapped, scene, step)?;
    wrapped.step(0.01, &mut SgdConfig::new().init(), gradients)?;
    Ok(())
}

/// The text of the error, which must be there.
fn refusal<T>(result: anyhow::Result<T>) -> anyhow::Result<String> {
    let error = result.err().context("it was accepted")?;
    Ok(format!("{error:#}"))
}

fn frozen(scene: &Scene) -> anyhow::Result<()> {
    let expected = "no parameter of the module is trained: head.weight, head.bias, ";
    let message = refusal(wrap(ConvNet::new(scene, "net").no_grad(), scene, 40))?;
    ensure!(message.starts_with(expected), "{message:?}");

    let mut wrapped = wrap(ConvNet::new(scene, "net"), scene, 40)?;
    wrapped_step(&mut wrapped, scene, 0)?;
    let message = refusal(wrapped.update(|net| net.no_grad()).map_err(Into::into))?;
    ensure!(message.starts_with(expected), "{message:?}");
    let message = refusal(wrapped_step(&mut wrapped, scene, 1))?;
    ensure!(message.starts_with(expected), "{message:?}");

    let thaw = |mut net: ConvNet<B>| {
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

fn partly_frozen(scene: &Scene) -> anyhow::Result<()> {
    let freeze = |mut net: ConvNet<B>| {
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
fn moved(scene: &Scene) -> anyhow::Result<()> {
    let plain = ConvNet::new(scene, "net");
    let mut wrapped = wrap(ConvNet::new(scene, "net").to_device(&FlexDevice), scene, 40)?;
    for step in 0..2 {
        let gradients = by_name(&wrapped_step(&mut wrapped, scene, step)?);
        let expected = named(&plain, Some(&plain_step(&plain, scene, step))).gradients;
        same_values(scene, Closeness::Pass, &gradients, &expected)?;
        wrapped.update(|net| net.to_device(&FlexDevice))?;
    }
    // It is trained, too.
    let before = named(wrapped.module(), None).values;
    train_step(&mut wrapped, scene, 2)?;
    ensure!(before["head.weight"] != named(wrapped.module(), None).values["head.weight"]);
    Ok(())
}

fn other_module(scene: &Scene) -> anyhow::Result<()> {
    let mut net = OddNet::new(scene, "net");
    let last = scene.context.data_group().size() - 1;
    if scene.context.rank() == last {
        net.sometimes = net.sometimes.no_grad();
    }
    let message = refusal(wrap(net, scene, 40))?;
    let expected = format!(
        "parameter 3 is sometimes.weight [5, 5] F64, trained on rank 0 and sometimes.weight [5, 5] F64, not trained on \
         rank {last}"
    );
    ensure!(message.contains(&expected), "{message:?}");
    Ok(())
}

/// The values change, and nothing else does.
fn update_on_one_rank(scene: &Scene) -> anyhow::Result<()> {
    let mut wrapped = wrap(ConvNet::new(scene, "net"), scene, 40)?;
    train_step(&mut wrapped, scene, 0)?;
    if scene.context.rank() == 1 {
        wrapped.update(|_| ConvNet::new(scene, "another"))?;
    }
    let message = refusal(wrapped_step(&mut wrapped, scene, 1))?;
    let expected = "rank 1 has made 1 step and 1 update where rank 0 has made 1 step and 0 updates (group data)";
    ensure!(message.contains(expected), "{message:?}");
    Ok(())
}

/// As when one rank leaves its step out because its own loss is not finite.
fn step_left_out(scene: &Scene) -> anyhow::Result<()> {
    let mut wrapped = wrap(ConvNet::new(scene, "net"), scene, 40)?;
    train_step(&mut wrapped, scene, 0)?;
    let gradients = wrapped_step(&mut wrapped, scene, 1)?;
    if scene.context.rank() != 1 {
        wrapped.step(0.01, &mut SgdConfig::new().init(), gradients)?;
    } else {
        drop(gradients);
    }
    let message = refusal(wrapped_step(&mut wrapped, scene, 2))?;
    let expected = "rank 1 has made 1 step and 0 updates where rank 0 has made 2 steps and 0 updates (group data)";
    ensure!(message.contains(expected), "{message:?}");
    Ok(())
}

fn other_record(scene: &Scene) -> anyhow::Result<()> {
    let mut wrapped = wrap(OddNet::new(scene, "net"), scene, 40)?;
    let before = named(wrapped.module(), None).values;
    let mut other = OddNet::new(scene, "another");
    other.head = other.sometimes.clone();
    let message = refusal(wrapped.load_record(other.into_record()).map_err(Into::into))?;
    let expected = "the record's parameter head.weight has the shape [5, 5], and the module's has [5, 4]";
    ensure!(message.starts_with(expected), "{message:?}");
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
        wrapped.update(|mut net: ConvNet<B>| {
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
