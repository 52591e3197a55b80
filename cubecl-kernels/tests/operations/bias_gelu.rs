//! `bias_gelu` against its host version.

use burn::backend::Autodiff;
use burn::tensor::DType;
use cubecl_kernels::KernelBackend;
use cubecl_kernels::bias_gelu::{bias_gelu, host};
use libtest_mimic::Trial;

use crate::backends::{Claim, Setting, trials_of};
use crate::compare::{backward, differences, dot, expect_differences, expect_rounded, normal, over};
use crate::layouts::{Layout, layouts, matrix, vector};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of(MatchesTheHost);
    trials.extend(trials_of(IsFiniteForLargeNumbers));
    trials.push(Trial::test("host::bias_gelu_gradients_match_differences", || {
        Ok(gradients_match_differences()?)
    }));
    trials
}

#[derive(Clone, Copy)]
struct MatchesTheHost;

impl Claim for MatchesTheHost {
    const NAME: &'static str = "bias_gelu_matches_the_host";

    fn check<B: KernelBackend>(self, setting: &Setting<Autodiff<B>>) -> anyhow::Result<()>
    where
        Autodiff<B>: KernelBackend,
    {
        over(16, (1usize..24, 1usize..70, layouts()), |(rows, columns, layout)| {
            check_one(setting, [rows, columns], layout)
        })?;
        // More rows than one cube adds up, in columns that vectors do and do not divide.
        check_one(setting, [700, 32], Layout::Contiguous)?;
        check_one(setting, [131, 7], Layout::Contiguous)
    }
}

fn check_one<B: KernelBackend>(
    setting: &Setting<Autodiff<B>>,
    [rows, columns]: [usize; 2],
    layout: Layout,
) -> anyhow::Result<()>
where
    Autodiff<B>: KernelBackend,
{
    let count = rows * columns;
    let [input, gradient] = [1, 2].map(|seed| setting.rounded(&normal(count, seed)));
    let bias = setting.rounded(&normal(columns, 3));
    let input_leaf = matrix(setting, &input, [rows, columns], layout).require_grad();
    let bias_leaf = vector(setting, &bias, layout).require_grad();
    let output = bias_gelu(input_leaf.clone(), bias_leaf.clone())?;
    // The argument of the exponential has four roundings, and is below 2 wherever the result is not far below 1.
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

#[derive(Clone, Copy)]
struct IsFiniteForLargeNumbers;

impl Claim for IsFiniteForLargeNumbers {
    const NAME: &'static str = "bias_gelu_is_finite_for_large_numbers";

    fn check<B: KernelBackend>(self, setting: &Setting<Autodiff<B>>) -> anyhow::Result<()>
    where
        Autodiff<B>: KernelBackend,
    {
        let large = if setting.dtype == DType::F16 { 600.0 } else { 1e4 };
        let input = setting.rounded(&[-large, large, -40.0, 40.0, -12.0, 12.0, 0.0, 1e-3]);
        let bias = vec![0.0; input.len()];
        let gradient = vec![1.0; input.len()];
        let shape = [1, input.len()];
        let leaf = setting.tensor(&input, shape).require_grad();
        let output = bias_gelu(leaf.clone(), setting.tensor(&bias, [input.len()]))?;
        expect_rounded("output", output.clone(), &host::forward(&input, &bias), 8.0, 0.5)?;
        let gradients = backward(vec![[output, setting.tensor(&gradient, shape)]]);
        let actual = leaf.grad(&gradients).expect("tracked");
        let [of_input, _] = host::backward(&input, &bias, &gradient);
        expect_rounded("gradient", actual, &of_input, 8.0, 1.0)
    }
}

fn gradients_match_differences() -> anyhow::Result<()> {
    let [input, gradient] = [1, 2].map(|seed| normal(15, seed));
    let bias = normal(5, 3);
    let [of_input, of_bias] = host::backward(&input, &bias, &gradient);
    let expected = differences(|input| dot(&host::forward(input, &bias), &gradient), &input);
    expect_differences("the input's gradient", &of_input, &expected)?;
    let expected = differences(|bias| dot(&host::forward(&input, bias), &gradient), &bias);
    expect_differences("the bias' gradient", &of_bias, &expected)
}
