//! `sum_of_squares` against its host version.

use anyhow::ensure;
use burn::tensor::{DType, Tensor};
use cubecl_kernels::l2_norm::{SquaredPart, host, sum_of_squares, sums_of_squares};
use libtest_mimic::Trial;

use crate::support::compare::{expect_rounded, normal, over};
use crate::support::layouts::{Layout, layouts, vector};
use crate::support::setting::{Claim, Setting, trials_of};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of::<MatchesTheHost>();
    trials.extend(trials_of::<PartsMatchTheHost>());
    trials
}

struct MatchesTheHost;

impl Claim for MatchesTheHost {
    const NAME: &'static str = "sum_of_squares_matches_the_host";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let lists = proptest::collection::vec(1usize..700, 1..5);
        over(
            [(vec![1], Layout::Contiguous), (vec![1, 1, 1], Layout::Part)],
            12,
            (lists, layouts()),
            |(counts, layout)| check_one(setting, &counts, layout),
        )?;
        // An error that grew with the number of elements would be hundreds of roundings here.
        check_one(setting, &[70_000, 1, 30_001], Layout::Contiguous)?;
        ensure!(sum_of_squares(Vec::new())?.is_none(), "there is no sum of no buffers");
        Ok(())
    }
}

fn check_one(setting: &Setting, counts: &[usize], layout: Layout) -> anyhow::Result<()> {
    let numbered = counts.iter().zip(1..);
    let numbers: Vec<Vec<f64>> = numbered
        .map(|(&count, seed)| setting.rounded(&normal(count, seed)))
        .collect();
    let buffers = numbers.iter().map(|numbers| vector(setting, numbers, layout).inner());
    let sum = sum_of_squares(buffers.collect())?;
    let expected = [host::sum_of_squares(&numbers)];
    // In f64, where errors do not matter, elements may be added up one after the other.
    let roundings = if setting.dtype == DType::F64 { 400.0 } else { 24.0 };
    expect_rounded("sum", sum.expect("there is a buffer"), &expected, roundings, 0.0)
}

/// Sums of parts of buffers; and each has the same bits alone, or with other parts next to it.
struct PartsMatchTheHost;

impl Claim for PartsMatchTheHost {
    const NAME: &'static str = "sums_of_squares_of_parts_match_the_host";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let part = |buffer, range, sum| SquaredPart { buffer, range, sum };
        let cases = [
            // One after the other, and a sum that has none.
            vec![
                part(0, 0..128, 0),
                part(0, 128..140, 2),
                part(1, 256..900, 0),
                part(1, 0..7, 3),
            ],
            // Where no vector begins, nothing, and one element.
            vec![
                part(0, 3..14, 3),
                part(1, 5..5, 1),
                part(1, 899..900, 1),
                part(0, 14..150, 0),
            ],
            // Longer than what one cube adds up.
            vec![part(2, 0..30_000, 1), part(2, 30_208..70_001, 0), part(0, 0..150, 1)],
        ];
        let numbered = [150, 900, 70_001].into_iter().zip(1..);
        let numbers: Vec<Vec<f64>> = numbered
            .map(|(count, seed)| setting.rounded(&normal(count, seed)))
            .collect();
        let buffers = || -> Vec<Tensor<1>> {
            let tensors = numbers
                .iter()
                .map(|numbers| vector(setting, numbers, Layout::Contiguous));
            tensors.map(Tensor::inner).collect()
        };
        let sums = |parts: &[SquaredPart]| sums_of_squares(buffers(), parts, 4).map(|sums| sums.expect("buffers"));
        for parts in cases {
            let together = sums(&parts)?;
            let roundings = if setting.dtype == DType::F64 { 400.0 } else { 24.0 };
            let expected = host::sums_of_squares(&numbers, &parts, 4);
            expect_rounded("sums", together.clone(), &expected, roundings, 0.0)?;
            let together: Vec<f64> = together.into_data().iter::<f64>().collect();
            for sum in 0..4 {
                let own: Vec<SquaredPart> = parts.iter().filter(|part| part.sum == sum).cloned().collect();
                let alone: Vec<f64> = sums(&own)?.into_data().iter::<f64>().collect();
                ensure!(
                    alone[sum] == together[sum],
                    "sum {sum} of {parts:?}: {} alone, {} with the others",
                    alone[sum],
                    together[sum]
                );
            }
        }
        Ok(())
    }
}
