//! `bias_dropout_add` against its host version.

use anyhow::ensure;
use cubecl_kernels::bias_dropout_add::{bias_dropout_add, host};
use cubecl_kernels::norm::Addends;
use libtest_mimic::Trial;

use crate::support::compare::{backward, dot, expect_rounded, expect_slopes, normal, over};
use crate::support::dropout::dropout;
use crate::support::layouts::{Layout, layouts, matrix, vector};
use crate::support::setting::{Claim, Setting, plain, trials_of};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of::<MatchesTheHost>();
    trials.extend(trials_of::<DropsTheSameElements>());
    trials.push(plain(
        "host::bias_dropout_add_gradients_are_slopes_of_the_sum",
        gradients_are_slopes,
    ));
    trials
}

#[derive(Clone, Copy, Debug)]
struct Case {
    rows: usize,
    columns: usize,
    layout: Layout,
    has_bias: bool,
    has_dropout: bool,
}

struct MatchesTheHost;

impl Claim for MatchesTheHost {
    const NAME: &'static str = "bias_dropout_add_matches_the_host";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let shapes = (
            1usize..24,
            1usize..70,
            layouts(),
            proptest::bool::ANY,
            proptest::bool::ANY,
        );
        let edges = [(1, 1), (1, 53), (53, 1)].map(|(rows, columns)| (rows, columns, Layout::Contiguous, true, true));
        over(edges, 16, shapes, |(rows, columns, layout, has_bias, has_dropout)| {
            let case = Case {
                rows,
                columns,
                layout,
                has_bias,
                has_dropout,
            };
            check_one(setting, case)
        })?;
        // More rows than one cube adds up.
        let case = Case {
            rows: 700,
            columns: 32,
            layout: Layout::Contiguous,
            has_bias: true,
            has_dropout: true,
        };
        check_one(setting, case)
    }
}

fn check_one(setting: &Setting, case: Case) -> anyhow::Result<()> {
    let Case {
        rows,
        columns,
        layout,
        has_bias,
        has_dropout,
    } = case;
    let shape = [rows, columns];
    let [input, residual, gradient] = [1, 2, 3].map(|seed| setting.rounded(&normal(rows * columns, seed)));
    let bias = setting.rounded(&normal(columns, 4));
    let dropout = has_dropout.then(|| dropout(rows, 0.3));
    let input_leaf = matrix(setting, &input, shape, layout).require_grad();
    let residual_leaf = matrix(setting, &residual, shape, layout).require_grad();
    let bias_leaf = has_bias.then(|| vector(setting, &bias, layout).require_grad());
    let output = bias_dropout_add(Addends {
        input: input_leaf.clone(),
        bias: bias_leaf.clone(),
        residual: residual_leaf.clone(),
        dropout: dropout.clone(),
    })?;
    let host_bias = has_bias.then_some(bias.as_slice());
    let expected = host::forward(&input, host_bias, &residual, dropout.as_ref(), columns);
    // Four roundings of numbers below 8.
    expect_rounded("output", output.clone(), &expected, 4.0, 8.0)?;

    let seed = matrix(setting, &gradient, shape, layout);
    let gradients = backward(vec![[output, seed]]);
    let [of_input, of_bias] = host::backward(&gradient, dropout.as_ref(), columns);
    let actual = input_leaf.grad(&gradients).expect("tracked");
    expect_rounded("the input's gradient", actual, &of_input, 2.0, 0.0)?;
    let actual = residual_leaf.grad(&gradients).expect("tracked");
    expect_rounded("the residual's gradient", actual, &gradient, 0.0, 0.0)?;
    if let Some(bias_leaf) = bias_leaf {
        let actual = bias_leaf.grad(&gradients).expect("tracked");
        // The terms' errors add up as their sizes do.
        let scale = of_input.iter().map(|term| term.abs()).sum::<f64>() / columns as f64;
        expect_rounded("the bias' gradient", actual, &of_bias, 16.0, scale.max(1.0))?;
    }
    Ok(())
}

/// Bit for bit the elements of the host's generator.
struct DropsTheSameElements;

impl Claim for DropsTheSameElements {
    const NAME: &'static str = "bias_dropout_add_drops_the_same_elements";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        // Vectors of every size divide one of these.
        for columns in [257, 130, 44, 64] {
            let rows = 9;
            let dropout = dropout(rows, 0.5);
            let sum = bias_dropout_add(Addends {
                input: setting.tensor(&vec![1.0; rows * columns], [rows, columns]),
                bias: None,
                residual: setting.tensor(&vec![0.0; rows * columns], [rows, columns]),
                dropout: Some(dropout.clone()),
            })?;
            let values: Vec<f64> = sum.into_data().iter::<f64>().collect();
            let mut expected = vec![0.0; rows * columns];
            for (row, expected) in expected.chunks_exact_mut(columns).enumerate() {
                dropout.fill_row(expected, row, 0, 2.0, 0.0);
            }
            ensure!(values == expected, "with {columns} columns other elements fall");
        }
        Ok(())
    }
}

fn gradients_are_slopes() -> anyhow::Result<()> {
    let [input, residual, gradient] = [1, 2, 3].map(|seed| normal(15, seed));
    let (bias, dropout) = (normal(5, 4), dropout(3, 0.4));
    let sum = |input: &[f64], bias: &[f64]| {
        let sum = host::forward(input, Some(bias), &residual, Some(&dropout), 5);
        dot(&sum, &gradient)
    };
    let [of_input, of_bias] = host::backward(&gradient, Some(&dropout), 5);
    expect_slopes("input", &of_input, &input, |input| sum(input, &bias))?;
    expect_slopes("bias", &of_bias, &bias, |bias| sum(&input, bias))
}
