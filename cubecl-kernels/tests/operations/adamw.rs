//! `adamw` against its host version.

use anyhow::ensure;
use burn::tensor::{DType, Tensor};
use cubecl_kernels::adamw::{AdamWBuffers, AdamWRanges, AdamWStep, adamw, adamw_ranges, host};
use cubecl_kernels::precision::compute_type;
use libtest_mimic::Trial;

use crate::support::compare::{expect_equal, expect_rounded, normal, numbers, over};
use crate::support::layouts::{Layout, vector};
use crate::support::setting::{Claim, Setting, trials_of};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of::<MatchesTheHost>();
    trials.extend(trials_of::<LeavesWhatOthersHold>());
    trials.extend(trials_of::<RangesAreUpdatedAsTheyAreAlone>());
    trials
}

const STEP: AdamWStep = AdamWStep {
    learning_rate: 0.05,
    beta_1: 0.9,
    beta_2: 0.999,
    epsilon: 1e-8,
    weight_decay: 0.1,
    gradient_scale: 1.0,
    time: 1,
};

/// The gradients are of the setting's type, as is the copy; the buffers are of the type that it is computed in.
struct MatchesTheHost;

impl Claim for MatchesTheHost {
    const NAME: &'static str = "adamw_matches_the_host";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let shapes = (
            1usize..300,
            proptest::bool::ANY,
            proptest::bool::ANY,
            proptest::bool::ANY,
        );
        over(
            [(1, true, true, true)],
            10,
            shapes,
            |(count, decays, has_scale, has_copy)| {
                let weight_decay = if decays { 0.1 } else { 0.0 };
                let gradient_scale = if has_scale { 1.0 / 1024.0 } else { 1.0 };
                let step = AdamWStep {
                    weight_decay,
                    gradient_scale,
                    ..STEP
                };
                let copy = has_copy.then_some(setting.dtype);
                several_steps(setting, count, step, copy)
            },
        )?;
        // Longer than one cube's part, and a copy of another type than the gradient's.
        several_steps(setting, 5003, STEP, Some(compute_type(setting.dtype)))
    }
}

fn several_steps(setting: &Setting, count: usize, step: AdamWStep, copy: Option<DType>) -> anyhow::Result<()> {
    let here = setting.inner(compute_type(setting.dtype));
    let mut expected = host::Buffers {
        parameter: here.rounded(&normal(count, 1)),
        moment_1: vec![0.0; count],
        moment_2: vec![0.0; count],
    };
    let mut buffers = AdamWBuffers {
        parameter: here.tensor(&expected.parameter, [count]),
        moment_1: here.tensor(&expected.moment_1, [count]),
        moment_2: here.tensor(&expected.moment_2, [count]),
    };
    for time in 1..=4 {
        let step = AdamWStep { time, ..step };
        let gradient: Vec<f64> = normal(count, 10 + time)
            .iter()
            .map(|x| x / step.gradient_scale)
            .collect();
        let gradient = setting.rounded(&gradient);
        expected.step(&gradient, &step);
        let gradient = setting.tensor(&gradient, [count]).inner();
        let (updated, copied) = adamw(buffers, gradient, &step, copy)?;
        // Each step adds some roundings of the parameter or of the update, which is below 1.
        let roundings = 8.0 * time as f64;
        expect_rounded("moment 1", updated.moment_1.clone(), &expected.moment_1, roundings, 1.0)?;
        expect_rounded("moment 2", updated.moment_2.clone(), &expected.moment_2, roundings, 0.0)?;
        expect_rounded(
            "parameter",
            updated.parameter.clone(),
            &expected.parameter,
            roundings,
            1.0,
        )?;
        ensure!(
            copied.is_some() == copy.is_some(),
            "a copy of {copy:?}: {}",
            copied.is_some()
        );
        if let (Some(copied), Some(dtype)) = (copied, copy) {
            ensure!(
                copied.dtype() == dtype,
                "the copy is {:?}, expected {dtype:?}",
                copied.dtype()
            );
            expect_rounded("copy", copied, &numbers(&updated.parameter), 0.0, 0.0)?;
        }
        buffers = updated;
    }
    Ok(())
}

/// The buffers may be overwritten only if nothing else holds them.
struct LeavesWhatOthersHold;

impl Claim for LeavesWhatOthersHold {
    const NAME: &'static str = "adamw_leaves_what_others_hold";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let here = setting.inner(compute_type(setting.dtype));
        let count = 37;
        for layout in [Layout::Contiguous, Layout::Part] {
            let [parameter, moment_1] = [1, 2].map(|seed| here.rounded(&normal(count, seed)));
            let moment_2: Vec<f64> = here.rounded(&normal(count, 3).iter().map(|x| x * x).collect::<Vec<_>>());
            let gradient = setting.rounded(&normal(count, 4));
            let buffers = AdamWBuffers {
                parameter: vector(&here, &parameter, layout),
                moment_1: vector(&here, &moment_1, layout),
                moment_2: vector(&here, &moment_2, layout),
            };
            let held = buffers.clone();
            let step = AdamWStep { time: 7, ..STEP };
            let (updated, _) = adamw(buffers, vector(setting, &gradient, layout).inner(), &step, None)?;
            for (what, held, before) in [
                ("parameter", held.parameter, &parameter),
                ("moment 1", held.moment_1, &moment_1),
                ("moment 2", held.moment_2, &moment_2),
            ] {
                ensure!(
                    &numbers(&held) == before,
                    "{layout:?}: the {what} that is held was written over"
                );
            }
            let mut expected = host::Buffers {
                parameter,
                moment_1,
                moment_2,
            };
            expected.step(&gradient, &step);
            expect_rounded("parameter", updated.parameter, &expected.parameter, 8.0, 1.0)?;
        }
        Ok(())
    }
}

/// Ranges of one buffer, each by its own step: the bits that each has when it is updated by itself, and what is in none
/// of them stays.
struct RangesAreUpdatedAsTheyAreAlone;

impl Claim for RangesAreUpdatedAsTheyAreAlone {
    const NAME: &'static str = "adamw_updates_ranges_as_they_are_alone";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let (decays, stays) = (
            STEP,
            AdamWStep {
                weight_decay: 0.0,
                time: 5,
                ..STEP
            },
        );
        let steps = |[first, second]: [Vec<std::ops::Range<usize>>; 2]| {
            [(decays, first), (stays, second)].map(|(step, ranges)| AdamWRanges { step, ranges })
        };
        // Ends in the midst of a vector, an empty range, one that several cubes share; then ranges that begin anywhere.
        let cases = [
            (6144, [vec![0..37, 256..256, 512..6001], vec![128..256, 6016..6144]]),
            (211, [vec![3..4, 9..100], vec![100..150, 151..211]]),
            (64, [vec![], vec![]]),
        ];
        for (count, ranges) in cases {
            check_ranges(setting, count, &steps(ranges)).map_err(|error| error.context(format!("{count}")))?;
        }
        Ok(())
    }
}

fn check_ranges(setting: &Setting, count: usize, steps: &[AdamWRanges]) -> anyhow::Result<()> {
    let here = setting.inner(compute_type(setting.dtype));
    let squares: Vec<f64> = normal(count, 3).iter().map(|x| x * x).collect();
    let before = [normal(count, 1), normal(count, 2), squares].map(|values| here.rounded(&values));
    let gradient = here.rounded(&normal(count, 4));
    let buffers = AdamWBuffers::from_array(before.each_ref().map(|values| here.tensor(values, [count])));
    let held = buffers.clone();
    let whole: Tensor<1> = here.tensor(&gradient, [count]);
    let (updated, copied) = adamw_ranges(buffers, whole, steps, setting.dtype)?;
    ensure!(copied.dtype() == setting.dtype && copied.dims() == [count]);
    let copied = numbers(&copied);
    let updated = updated.into_array().map(|buffer| numbers(&buffer));
    let held = held.into_array().map(|buffer| numbers(&buffer));
    ensure!(held == before, "what is held was written over");
    let mut expected = before.clone();
    for AdamWRanges { step, ranges } in steps {
        for range in ranges.iter().filter(|range| !range.is_empty()) {
            let length = range.len();
            let part = |values: &[f64]| here.tensor::<1>(&values[range.clone()], [length]);
            let own = AdamWBuffers::from_array(before.each_ref().map(|values| part(values)));
            let (own, copy) = adamw(own, part(&gradient), step, Some(setting.dtype))?;
            for (expected, own) in expected.iter_mut().zip(own.into_array()) {
                expected[range.clone()].copy_from_slice(&numbers(&own));
            }
            let copy = numbers(&copy.expect("asked for"));
            expect_equal(&format!("the copy of {range:?}"), &copied[range.clone()], &copy)?;
        }
    }
    for ((what, updated), expected) in ["parameter", "moment 1", "moment 2"].iter().zip(updated).zip(expected) {
        expect_equal(
            &format!("the {what} of ranges, next to each alone"),
            &updated,
            &expected,
        )?;
    }
    Ok(())
}
