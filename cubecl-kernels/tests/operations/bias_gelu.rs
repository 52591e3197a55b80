//! `bias_gelu` against its host version.

use burn::tensor::DType;
use cubecl_kernels::bias_gelu::{bias_gelu, host};
use libtest_mimic::Trial;

use crate::support::compare::{backward, dot, expect_rounded, expect_slopes, normal, over};
use crate::support::layouts::{Layout, layouts, matrix, vector};
use crate::support::setting::{Claim, Setting, largest, plain, trials_of};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of::<MatchesTheHost>();
    trials.extend(trials_of::<IsFiniteForLargeNumbers>());
    trials.extend(trials_of::<ReachesItsLimits>());
    trials.extend(trials_of::<KeepsNotNumbers>());
    trials.push(plain(
        "host::bias_gelu_gradients_are_slopes_of_the_output",
        gradients_are_slopes,
    ));
    trials
}

struct MatchesTheHost;

impl Claim for MatchesTheHost {
    const NAME: &'static str = "bias_gelu_matches_the_host";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let edges = [(1, 1), (1, 53), (53, 1)].map(|(rows, columns)| (rows, columns, Layout::Contiguous));
        over(
            edges,
            16,
            (1usize..24, 1usize..70, layouts()),
            |(rows, columns, layout)| check_one(setting, [rows, columns], layout),
        )?;
        // More rows than one cube adds up, in columns that vectors do and do not divide.
        check_one(setting, [700, 32], Layout::Contiguous)?;
        check_one(setting, [131, 7], Layout::Contiguous)?;
        // Rows of more than one cube, of which the last one has units to spare or none.
        check_one(setting, [9, 769], Layout::Contiguous)?;
        check_one(setting, [40, 1536], Layout::Contiguous)
    }
}

fn check_one(setting: &Setting, [rows, columns]: [usize; 2], layout: Layout) -> anyhow::Result<()> {
    let count = rows * columns;
    let [input, gradient] = [1, 2].map(|seed| setting.rounded(&normal(count, seed)));
    let bias = setting.rounded(&normal(columns, 3));
    let input_leaf = matrix(setting, &input, [rows, columns], layout).require_grad();
    let bias_leaf = vector(setting, &bias, layout).require_grad();
    let output = bias_gelu(input_leaf.clone(), bias_leaf.clone())?;
    // The argument of the exponential has four roundings, and is below 2 wherever the result is not far below 1; the
    // quotient and the product have one each.
    expect_rounded("output", output.clone(), &host::forward(&input, &bias), 10.0, 0.5)?;

    let seed = matrix(setting, &gradient, [rows, columns], layout);
    let gradients = backward(vec![[output, seed]]);
    let [of_input, of_bias] = host::backward(&input, &bias, &gradient);
    let actual = input_leaf.grad(&gradients).expect("tracked");
    // As above, and Vulkan's exponential may be off by three roundings and two times its argument.
    expect_rounded("the input's gradient", actual, &of_input, 32.0, 1.0)?;
    let actual = bias_leaf.grad(&gradients).expect("tracked");
    // The terms' errors add up as their sizes do.
    let scale = of_input.iter().map(|term| term.abs()).sum::<f64>() / columns as f64;
    expect_rounded("the bias' gradient", actual, &of_bias, 32.0, scale.max(1.0))
}

struct IsFiniteForLargeNumbers;

impl Claim for IsFiniteForLargeNumbers {
    const NAME: &'static str = "bias_gelu_is_finite_for_large_numbers";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let large = if setting.dtype == DType::F16 { 600.0 } else { 1e4 };
        let input = setting.rounded(&[-large, large, -40.0, 40.0, -12.0, 12.0, 0.0, 1e-3]);
        let bias = vec![0.0; input.len()];
        let gradient = vec![1.0; input.len()];
        let shape = [1, input.len()];
        let leaf = setting.tensor(&input, shape).require_grad();
        let output = bias_gelu(leaf.clone(), setting.tensor(&bias, [input.len()]))?;
        // As above, but that each number is either far from 0, where its tail is all that is left out, or near it.
        expect_rounded("output", output.clone(), &host::forward(&input, &bias), 8.0, 0.5)?;
        let gradients = backward(vec![[output, setting.tensor(&gradient, shape)]]);
        let actual = leaf.grad(&gradients).expect("tracked");
        let [of_input, _] = host::backward(&input, &bias, &gradient);
        expect_rounded("gradient", actual, &of_input, 8.0, 1.0)
    }
}

struct ReachesItsLimits;

impl Claim for ReachesItsLimits {
    const NAME: &'static str = "bias_gelu_reaches_its_limits";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let mut input = vec![f64::INFINITY, f64::NEG_INFINITY];
        input.extend(largest(setting.dtype).into_iter().flat_map(|x| [x, -x]));
        check_exactly(setting, &setting.rounded(&input))
    }
}

struct KeepsNotNumbers;

impl Claim for KeepsNotNumbers {
    const NAME: &'static str = "bias_gelu_keeps_not_numbers";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        check_exactly(setting, &[f64::NAN, 0.0])
    }
}

/// Checks output and gradients of one row, whose exact values the type has.
fn check_exactly(setting: &Setting, input: &[f64]) -> anyhow::Result<()> {
    let columns = input.len();
    let bias = vec![0.0; columns];
    let gradient = vec![0.5; columns];
    let leaf = setting.tensor(input, [1, columns]).require_grad();
    let output = bias_gelu(leaf.clone(), setting.tensor(&bias, [columns]))?;
    expect_rounded("output", output.clone(), &host::forward(input, &bias), 0.0, 0.0)?;
    let gradients = backward(vec![[output, setting.tensor(&gradient, [1, columns])]]);
    let actual = leaf.grad(&gradients).expect("tracked");
    let [of_input, _] = host::backward(input, &bias, &gradient);
    expect_rounded("gradient", actual, &of_input, 0.0, 0.0)
}

fn gradients_are_slopes() -> anyhow::Result<()> {
    let [input, gradient] = [1, 2].map(|seed| normal(15, seed));
    let bias = normal(5, 3);
    let [of_input, of_bias] = host::backward(&input, &bias, &gradient);
    expect_slopes("input", &of_input, &input, |input| {
        dot(&host::forward(input, &bias), &gradient)
    })?;
    expect_slopes("bias", &of_bias, &bias, |bias| {
        dot(&host::forward(&input, bias), &gradient)
    })
}
