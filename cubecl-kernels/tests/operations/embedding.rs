//! Embeddings against their host version.

use anyhow::ensure;
use burn::tensor::{DType, Tensor};
use cubecl_kernels::embedding::{TokenRange, add_rows, embedding, host};
use cubecl_kernels::precision::compute_type;
use libtest_mimic::Trial;

use crate::support::compare::{backward, expect_close, expect_exactly, normal, over};
use crate::support::layouts::{Layout, layouts, matrix};
use crate::support::setting::{Claim, Setting, trials_of};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of::<MatchesTheHost>();
    trials.extend(trials_of::<AddsRowsInPlace>());
    trials.extend(trials_of::<AddsTheSameEachTime>());
    trials.extend(trials_of::<TakesNothing>());
    trials
}

/// Tokens of a text: few of them often, many seldom or never, some outside the range.
fn tokens(count: usize, range: TokenRange) -> Vec<i64> {
    let numbers = (0..count).map(|index| {
        let spread = (range.count + 4).max(1);
        let number = match index % 3 {
            0 => index * 7919 % spread,
            1 => index % 2,
            _ => range.count / 2,
        };
        number as i64 + range.first as i64 - 2
    });
    numbers.collect()
}

/// A table whose last rows no token has, forward and backward.
struct MatchesTheHost;

impl Claim for MatchesTheHost {
    const NAME: &'static str = "embedding_matches_the_host";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let shapes = (1usize..40, 1usize..60, 1usize..30, 0usize..20, layouts());
        let edges = [
            (1, 1, 1, 0, Layout::Contiguous),
            (1, 9, 64, 3, Layout::Contiguous),
            (30, 2, 7, 5, Layout::Transposed),
        ];
        over(edges, 12, shapes, |(count, tokens, columns, first, layout)| {
            check_one(setting, TokenRange { first, count }, tokens, columns, layout)
        })?;
        // More tokens than a cube looks at once, and rows that several cubes share.
        check_one(
            setting,
            TokenRange { first: 3, count: 20 },
            1100,
            20,
            Layout::Contiguous,
        )?;
        check_one(setting, TokenRange { first: 0, count: 3 }, 5, 2052, Layout::Contiguous)
    }
}

fn check_one(
    setting: &Setting,
    range: TokenRange,
    num_tokens: usize,
    columns: usize,
    layout: Layout,
) -> anyhow::Result<()> {
    let shape @ [rows, _] = [range.count + 2, columns];
    let table = setting.rounded(&normal(rows * columns, 1));
    let gradient = setting.rounded(&normal(num_tokens * columns, 2));
    let numbers = tokens(num_tokens, range);
    let leaf = matrix(setting, &table, shape, layout).require_grad();
    let output = embedding(leaf.clone(), setting.integers(&numbers), range)?;
    expect_close(
        "rows",
        output.clone(),
        &host::embedding(&table, columns, &numbers, range),
        0.0,
        0.0,
    )?;
    let gradients = backward(vec![[
        output,
        matrix(setting, &gradient, [num_tokens, columns], layout),
    ]]);
    let mut expected = vec![0.0; rows * columns];
    host::add_rows(&mut expected, columns, &numbers, &gradient, range);
    let actual = leaf.grad(&gradients).expect("tracked");
    // A rounding for each term of a sum in the type that is computed in, and one of the result.
    expect_terms(setting, actual.reshape([rows * columns]), &expected, num_tokens)
}

fn expect_terms(setting: &Setting, actual: Tensor<1>, expected: &[f64], num_tokens: usize) -> anyhow::Result<()> {
    let is_half = compute_type(setting.dtype) != actual.dtype();
    let terms = if is_half { 0.0 } else { num_tokens as f64 };
    expect_close("sums", actual, expected, 1.0, terms)
}

/// Into the middle of a buffer of the type that gradients are added up in, of which the rest stays.
struct AddsRowsInPlace;

impl Claim for AddsRowsInPlace {
    const NAME: &'static str = "add_rows_leaves_other_rows";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let wide = setting.inner(compute_type(setting.dtype));
        let inner = setting.inner(setting.dtype);
        let range = TokenRange { first: 5, count: 6 };
        for (offset, columns) in [(16, 8), (3, 5)] {
            let before = wide.rounded(&normal(offset + range.count * columns + 9, 1));
            let numbers = [6, 10, 6, 4, 11, 6, -3, 1 << 30];
            let gradient = inner.rounded(&normal(numbers.len() * columns, 2));
            let sums: Tensor<1> = wide.tensor(&before, [before.len()]);
            let held = sums.clone();
            let rows = inner.tensor(&gradient, [numbers.len(), columns]);
            let added = add_rows(sums, offset, inner.integers(&numbers), rows, range)?;
            let mut expected = before.clone();
            host::add_rows(&mut expected[offset..], columns, &numbers, &gradient, range);
            expect_close("sums", added.clone(), &expected, 4.0, 4.0)?;
            let actual: Vec<f64> = added.into_data().iter::<f64>().collect();
            let rows = |row: usize| offset + row * columns..offset + (row + 1) * columns;
            for untouched in [
                0..offset,
                rows(0),
                rows(2),
                rows(3),
                rows(4),
                rows(6).start..before.len(),
            ] {
                ensure!(
                    actual[untouched.clone()] == before[untouched.clone()],
                    "{untouched:?} has changed"
                );
            }
            let held: Vec<f64> = held.into_data().iter::<f64>().collect();
            ensure!(held == before, "the sums that are held were written over");
        }
        Ok(())
    }
}

/// In the tokens' order: a sum of large numbers that cancel and of small ones shows another.
struct AddsTheSameEachTime;

impl Claim for AddsTheSameEachTime {
    const NAME: &'static str = "add_rows_adds_in_the_order_of_tokens";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let wide = setting.inner(compute_type(setting.dtype));
        let inner = setting.inner(setting.dtype);
        let range = TokenRange { first: 0, count: 2 };
        // 4096 swallows what comes between it and its opposite, in f32 too.
        let terms = [4096.0, 2f64.powi(-14), -4096.0, 2f64.powi(-14)];
        let gradient: Vec<f64> = (0..600).map(|index| terms[index / 2 % 4]).collect();
        let numbers: Vec<i64> = (0..600).map(|index| index % 2).collect();
        let mut expected = [0.0f64; 2];
        for (index, term) in gradient.iter().enumerate() {
            let sum = expected[index % 2] + term;
            expected[index % 2] = wide.rounded(&[sum])[0];
        }
        if setting.dtype != DType::F64 {
            ensure!(
                expected[0] != 300.0 * 2f64.powi(-14),
                "the terms do not tell orders apart"
            );
        }
        let sums = wide.tensor(&[0.0; 2], [2]);
        let rows: Tensor<2> = inner.tensor(&gradient, [600, 1]);
        let added = add_rows(sums, 0, inner.integers(&numbers), rows, range)?;
        expect_close("sums", added, &expected, 0.0, 0.0)
    }
}

struct TakesNothing;

impl Claim for TakesNothing {
    const NAME: &'static str = "embedding_takes_nothing";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        // Tokens, rows and columns.
        for [num_tokens, count, columns] in [[0, 3, 4], [5, 0, 4], [5, 3, 0], [0, 0, 0]] {
            let range = TokenRange { first: 0, count };
            let leaf = setting
                .tensor::<2>(&vec![1.0; count * columns], [count, columns])
                .require_grad();
            let output = embedding(leaf.clone(), setting.integers(&vec![7; num_tokens]), range)?;
            let dims = [num_tokens, columns];
            expect_exactly("rows", output.clone(), dims, &vec![0.0; num_tokens * columns])?;
            let ones = setting.tensor(&vec![1.0; num_tokens * columns], [num_tokens, columns]);
            let gradients = backward(vec![[output, ones]]);
            let found = leaf.grad(&gradients).expect("tracked");
            let expected = vec![0.0; count * columns];
            expect_exactly("the table's gradient", found, [count, columns], &expected)?;
        }
        Ok(())
    }
}
