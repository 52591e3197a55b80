//! `swiglu` against its host version.

use burn::backend::Autodiff;
use cubecl_kernels::KernelBackend;
use cubecl_kernels::swiglu::{host, swiglu};
use libtest_mimic::Trial;

use crate::backends::{Claim, Setting, trials_of};
use crate::compare::{backward, expect_close, normal, over};

pub fn trials() -> Vec<Trial> {
    trials_of(MatchesTheHost)
}

#[derive(Clone, Copy)]
struct MatchesTheHost;

impl Claim for MatchesTheHost {
    const NAME: &'static str = "swiglu_matches_the_host";

    fn check<B: KernelBackend>(self, setting: &Setting<Autodiff<B>>) -> anyhow::Result<()>
    where
        Autodiff<B>: KernelBackend,
    {
        over(12, (1usize..20, 1usize..70), |(rows, columns)| {
            let input = setting.rounded(&normal(rows * 2 * columns, 1));
            let gradient = setting.rounded(&normal(rows * columns, 2));
            let leaf = setting.tensor(&input, [rows, 2 * columns]).require_grad();
            let output = swiglu(leaf.clone())?;
            // One rounding of the exponential, one of the quotient, two of the products and that of the result.
            expect_close("output", output.clone(), &host::forward(&input, columns), 5.0, 0.0)?;
            let gradients = backward(vec![[output, setting.tensor(&gradient, [rows, columns])]]);
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
