//! `swiglu` against its host version.

use burn::tensor::DType;
use cubecl_kernels::swiglu::{host, swiglu};
use libtest_mimic::Trial;

use crate::support::compare::{backward, dot, expect_rounded, expect_slopes, normal, over};
use crate::support::layouts::{Layout, layouts, matrix};
use crate::support::setting::{Claim, Setting, largest, plain, trials_of};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of::<MatchesTheHost>();
    trials.extend(trials_of::<IsFiniteForLargeNumbers>());
    trials.extend(trials_of::<ReachesItsLimits>());
    trials.extend(trials_of::<KeepsNotNumbers>());
    trials.push(plain(
        "host::swiglu_gradients_are_slopes_of_the_output",
        gradients_are_slopes,
    ));
    trials
}

struct MatchesTheHost;

impl Claim for MatchesTheHost {
    const NAME: &'static str = "swiglu_matches_the_host";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let edges = [(1, 1), (1, 53), (53, 1)].map(|(rows, columns)| (rows, columns, Layout::Contiguous));
        over(
            edges,
            12,
            (1usize..20, 1usize..70, layouts()),
            |(rows, columns, layout)| {
                let input = setting.rounded(&normal(rows * 2 * columns, 1));
                let gradient = setting.rounded(&normal(rows * columns, 2));
                let leaf = matrix(setting, &input, [rows, 2 * columns], layout).require_grad();
                let output = swiglu(leaf.clone())?;
                // The exponential may be off by three roundings and by two times its argument of up to 4; then the
                // quotient's and two products'.
                expect_rounded("output", output.clone(), &host::forward(&input, columns), 14.0, 0.0)?;
                let gradients = backward(vec![[output, matrix(setting, &gradient, [rows, columns], layout)]]);
                let actual = leaf.grad(&gradients).expect("tracked");
                // The slope is a sum of two terms up to 1, one with the exponential as above; gradients are up to 4.
                let expected = host::backward(&input, &gradient, columns);
                expect_rounded("gradient", actual, &expected, 14.0, 4.0)
            },
        )
    }
}

struct IsFiniteForLargeNumbers;

impl Claim for IsFiniteForLargeNumbers {
    const NAME: &'static str = "swiglu_is_finite_for_large_numbers";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let large = if setting.dtype == DType::F16 { 600.0 } else { 1e4 };
        let input = setting.rounded(&[-large, large, -90.0, 90.0, 1.0, 0.5, 2.0, -1.0]);
        let leaf = setting.tensor(&input, [1, 8]).require_grad();
        let output = swiglu(leaf.clone())?;
        // What the exponential's large arguments add is in numbers far below 1.
        expect_rounded("output", output.clone(), &host::forward(&input, 4), 8.0, 1.0)?;
        let gradient = [1.0; 4];
        let gradients = backward(vec![[output, setting.tensor(&gradient, [1, 4])]]);
        let actual = leaf.grad(&gradients).expect("tracked");
        expect_rounded("gradient", actual, &host::backward(&input, &gradient, 4), 8.0, 1.0)
    }
}

struct ReachesItsLimits;

impl Claim for ReachesItsLimits {
    const NAME: &'static str = "swiglu_reaches_its_limits";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let mut gates = vec![f64::INFINITY, f64::NEG_INFINITY];
        gates.extend(largest(setting.dtype).into_iter().flat_map(|x| [x, -x]));
        let columns = gates.len();
        let mut input = gates.clone();
        input.extend(vec![0.5; columns]);
        let input = setting.rounded(&input);
        let leaf = setting.tensor(&input, [1, 2 * columns]).require_grad();
        let output = swiglu(leaf.clone())?;
        expect_rounded("output", output.clone(), &host::forward(&input, columns), 2.0, 0.0)?;
        let gradient = vec![0.5; columns];
        let gradients = backward(vec![[output, setting.tensor(&gradient, [1, columns])]]);
        let actual = leaf.grad(&gradients).expect("tracked");
        expect_rounded(
            "gradient",
            actual,
            &host::backward(&input, &gradient, columns),
            2.0,
            0.0,
        )
    }
}

struct KeepsNotNumbers;

impl Claim for KeepsNotNumbers {
    const NAME: &'static str = "swiglu_keeps_not_numbers";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let input = [f64::NAN, 1.0, 1.0, 1.0];
        let leaf = setting.tensor(&input, [1, 4]).require_grad();
        let output = swiglu(leaf.clone())?;
        expect_rounded("output", output.clone(), &host::forward(&input, 2), 8.0, 1.0)?;
        let gradients = backward(vec![[output, setting.tensor(&[1.0; 2], [1, 2])]]);
        let actual = leaf.grad(&gradients).expect("tracked");
        expect_rounded("gradient", actual, &host::backward(&input, &[1.0; 2], 2), 8.0, 1.0)
    }
}

fn gradients_are_slopes() -> anyhow::Result<()> {
    let (input, gradient) = (normal(24, 1), normal(12, 2));
    let found = host::backward(&input, &gradient, 4);
    expect_slopes("input", &found, &input, |input| {
        dot(&host::forward(input, 4), &gradient)
    })
}
