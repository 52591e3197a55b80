//! `swiglu` against its host version.

use burn::backend::Autodiff;
use burn::tensor::DType;
use cubecl_kernels::KernelBackend;
use cubecl_kernels::swiglu::{host, swiglu};
use libtest_mimic::Trial;

use crate::backends::{Claim, Setting, trials_of};
use crate::compare::{backward, expect_close, expect_rounded, normal, over};
use crate::layouts::{layouts, matrix};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of(MatchesTheHost);
    trials.extend(trials_of(IsFiniteForLargeNumbers));
    trials
}

#[derive(Clone, Copy)]
struct MatchesTheHost;

impl Claim for MatchesTheHost {
    const NAME: &'static str = "swiglu_matches_the_host";

    fn check<B: KernelBackend>(self, setting: &Setting<Autodiff<B>>) -> anyhow::Result<()>
    where
        Autodiff<B>: KernelBackend,
    {
        over(12, (1usize..20, 1usize..70, layouts()), |(rows, columns, layout)| {
            let input = setting.rounded(&normal(rows * 2 * columns, 1));
            let gradient = setting.rounded(&normal(rows * columns, 2));
            let leaf = matrix(setting, &input, [rows, 2 * columns], layout).require_grad();
            let output = swiglu(leaf.clone())?;
            // One rounding of the exponential, one of the quotient, two of the products and that of the result.
            expect_close("output", output.clone(), &host::forward(&input, columns), 5.0, 0.0)?;
            let gradients = backward(vec![[output, matrix(setting, &gradient, [rows, columns], layout)]]);
            let actual = leaf.grad(&gradients).expect("tracked");
            expect_close(
                "gradient",
                actual,
                &host::backward(&input, &gradient, columns),
                8.0,
                1.0,
            )
        })
    }
}

#[derive(Clone, Copy)]
struct IsFiniteForLargeNumbers;

impl Claim for IsFiniteForLargeNumbers {
    const NAME: &'static str = "swiglu_is_finite_for_large_numbers";

    fn check<B: KernelBackend>(self, setting: &Setting<Autodiff<B>>) -> anyhow::Result<()>
    where
        Autodiff<B>: KernelBackend,
    {
        let large = if setting.dtype == DType::F16 { 600.0 } else { 1e4 };
        let input = setting.rounded(&[-large, large, -90.0, 90.0, 1.0, 0.5, 2.0, -1.0]);
        let leaf = setting.tensor(&input, [1, 8]).require_grad();
        let output = swiglu(leaf.clone())?;
        expect_rounded("output", output.clone(), &host::forward(&input, 4), 8.0, 1.0)?;
        let gradient = [1.0; 4];
        let gradients = backward(vec![[output, setting.tensor(&gradient, [1, 4])]]);
        let actual = leaf.grad(&gradients).expect("tracked");
        expect_rounded("gradient", actual, &host::backward(&input, &gradient, 4), 8.0, 1.0)
    }
}
