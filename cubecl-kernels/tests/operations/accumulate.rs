//! `accumulate` against its host version.

use anyhow::ensure;
use burn::tensor::Tensor;
use cubecl_kernels::accumulate::{GradientPlace, GradientSums, accumulate, host};
use cubecl_kernels::precision::compute_type;
use libtest_mimic::Trial;

use crate::support::compare::{expect_close, normal, over};
use crate::support::layouts::{Layout, layouts, vector};
use crate::support::setting::{Claim, Setting, trials_of};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of::<MatchesTheHost>();
    trials.extend(trials_of::<NotesWhatIsNotFinite>());
    trials.extend(trials_of::<LeavesWhatOthersHold>());
    trials
}

/// Returns sums before anything is added.
fn before(elements: usize, parameters: usize) -> host::Sums {
    host::Sums {
        sums: normal(elements, 1),
        non_finite: vec![false; parameters],
    }
}

/// The gradients are of the setting's type, the sums of the type that it is computed in.
fn on_device(setting: &Setting, sums: &mut host::Sums) -> GradientSums {
    let here = setting.inner(compute_type(setting.dtype));
    sums.sums = here.rounded(&sums.sums);
    let flags: Vec<f64> = sums.non_finite.iter().map(|&flag| f64::from(u8::from(flag))).collect();
    GradientSums {
        sums: here.tensor(&sums.sums, [sums.sums.len()]),
        non_finite: here.tensor(&flags, [flags.len()]),
    }
}

fn expect(actual: GradientSums, expected: &host::Sums, additions: usize) -> anyhow::Result<()> {
    let flags: Vec<bool> = actual
        .non_finite
        .into_data()
        .iter::<f64>()
        .map(|flag| flag == 1.0)
        .collect();
    ensure!(
        flags == expected.non_finite,
        "{flags:?}, expected {:?}",
        expected.non_finite
    );
    // Each addition rounds once; the terms are below 8.
    expect_close("sums", actual.sums, &expected.sums, additions as f64, 8.0)
}

struct MatchesTheHost;

impl Claim for MatchesTheHost {
    const NAME: &'static str = "accumulate_matches_the_host";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let shapes = (0usize..40, 1usize..300, 0usize..40, proptest::bool::ANY, layouts());
        let edges = [
            // All of it, at a place where vectors begin, and at one where none does; longer than one cube's part.
            (0, 64, 0, true, Layout::Contiguous),
            (128, 5003, 7, false, Layout::Contiguous),
            (3, 1, 0, false, Layout::Part),
        ];
        over(edges, 12, shapes, |(offset, length, after, is_first, layout)| {
            let mut expected = before(offset + length + after, 3);
            let mut sums = on_device(setting, &mut expected);
            for micro_batch in 0..3 {
                let place = GradientPlace {
                    offset,
                    parameter: micro_batch,
                    is_first: is_first && micro_batch == 0,
                };
                let gradient = setting.rounded(&normal(length, 10 + micro_batch as u64));
                expected.add(&gradient, place);
                sums = accumulate(sums, vector(setting, &gradient, layout).inner(), place)?;
            }
            expect(sums, &expected, 3)
        })
    }
}

struct NotesWhatIsNotFinite;

impl Claim for NotesWhatIsNotFinite {
    const NAME: &'static str = "accumulate_notes_what_is_not_finite";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        // In a vector and after the last whole one; the last value, the largest that all types have, is finite.
        for (at, value) in [(5, f64::NAN), (36, f64::INFINITY), (0, f64::NEG_INFINITY), (2, 65504.0)] {
            let mut expected = before(64, 4);
            expected.non_finite[3] = true;
            let mut sums = on_device(setting, &mut expected);
            for (parameter, bad) in [(1, None), (2, Some(at)), (3, None)] {
                let place = GradientPlace {
                    offset: 16,
                    parameter,
                    is_first: true,
                };
                let mut gradient = setting.rounded(&normal(37, 2));
                if let Some(at) = bad {
                    gradient[at] = setting.rounded(&[value])[0];
                }
                expected.add(&gradient, place);
                sums = accumulate(sums, setting.tensor(&gradient, [37]).inner(), place)?;
            }
            ensure!(expected.non_finite == [false, false, !value.is_finite(), true]);
            expect(sums, &expected, 1).map_err(|error| error.context(format!("{value} at {at}")))?;
        }
        Ok(())
    }
}

/// The sums may be overwritten only if nothing else holds them.
struct LeavesWhatOthersHold;

impl Claim for LeavesWhatOthersHold {
    const NAME: &'static str = "accumulate_leaves_what_others_hold";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let mut expected = before(70, 2);
        let sums = on_device(setting, &mut expected);
        let (held, unchanged) = (sums.clone(), expected.clone());
        let place = GradientPlace {
            offset: 8,
            parameter: 1,
            is_first: false,
        };
        let gradient = vec![f64::INFINITY; 40];
        expected.add(&gradient, place);
        let gradient: Tensor<1> = setting.tensor(&gradient, [40]).inner();
        let added = accumulate(sums, gradient, place)?;
        expect(held, &unchanged, 0)?;
        expect(added, &expected, 1)
    }
}
