//! `sum_of_squares` against its host version.

use anyhow::ensure;
use burn::backend::Autodiff;
use burn::tensor::DType;
use cubecl_kernels::KernelBackend;
use cubecl_kernels::l2_norm::{host, sum_of_squares};
use libtest_mimic::Trial;

use crate::backends::{Claim, Setting, trials_of};
use crate::compare::{expect_rounded, normal, over};
use crate::layouts::{Layout, layouts, vector};

pub fn trials() -> Vec<Trial> {
    trials_of(MatchesTheHost)
}

#[derive(Clone, Copy)]
struct MatchesTheHost;

impl Claim for MatchesTheHost {
    const NAME: &'static str = "sum_of_squares_matches_the_host";

    fn check<B: KernelBackend>(self, setting: &Setting<Autodiff<B>>) -> anyhow::Result<()>
    where
        Autodiff<B>: KernelBackend,
    {
        let lists = proptest::collection::vec(1usize..700, 1..5);
        over(
            [(vec![1], Layout::Contiguous), (vec![1, 1, 1], Layout::Part)],
            12,
            (lists, layouts()),
            |(counts, layout)| check_one::<B>(setting, &counts, layout),
        )?;
        // An error that grew with the number of elements would be hundreds of roundings here.
        check_one::<B>(setting, &[70_000, 1, 30_001], Layout::Contiguous)?;
        ensure!(
            sum_of_squares::<B>(Vec::new())?.is_none(),
            "there is no sum of no buffers"
        );
        Ok(())
    }
}

fn check_one<B: KernelBackend>(setting: &Setting<Autodiff<B>>, counts: &[usize], layout: Layout) -> anyhow::Result<()> {
    let numbered = counts.iter().zip(1..);
    let numbers: Vec<Vec<f64>> = numbered
        .map(|(&count, seed)| setting.rounded(&normal(count, seed)))
        .collect();
    let buffers = numbers.iter().map(|numbers| vector(setting, numbers, layout).inner());
    let sum = sum_of_squares::<B>(buffers.collect())?;
    let expected = [host::sum_of_squares(&numbers)];
    // In f64, where errors do not matter, elements may be added up one after the other.
    let roundings = if setting.dtype == DType::F64 { 400.0 } else { 24.0 };
    expect_rounded("sum", sum.expect("there is a buffer"), &expected, roundings, 0.0)
}
