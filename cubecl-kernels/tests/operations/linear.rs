//! `linear` and `linear_transposed` against their host version.

use burn::backend::Autodiff;
use burn::tensor::Tensor;
use cubecl_kernels::KernelBackend;
use cubecl_kernels::linear::host::{self, LinearSizes};
use cubecl_kernels::linear::{WeightOrder, linear, linear_transposed};
use cubecl_kernels::precision::is_half;
use libtest_mimic::Trial;
use proptest::prelude::*;

use crate::backends::{Claim, Setting, trials_of};
use crate::compare::{backward, expect_close, normal, over};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of(MatchesTheHost);
    trials.extend(trials_of(TakesViews));
    trials.extend(trials_of(TakesNoRows));
    // On CubeCL it is burn's product, whose factors are rounded to tf32 on CUDA.
    trials.retain(|trial| !trial.name().starts_with("cuda_source"));
    trials
}

/// Compares output and gradients; `view` is its own inverse and says how the matrices lie.
fn check<B: KernelBackend>(
    setting: &Setting<Autodiff<B>>,
    sizes: LinearSizes,
    has_bias: bool,
    view: impl Fn(Tensor<Autodiff<B>, 2>) -> Tensor<Autodiff<B>, 2>,
) -> anyhow::Result<()>
where
    Autodiff<B>: KernelBackend,
{
    let LinearSizes {
        rows,
        d_input,
        d_output,
        order,
    } = sizes;
    let input = setting.rounded(&normal(rows * d_input, 1));
    let weight = setting.rounded(&normal(d_input * d_output, 2));
    let bias = setting.rounded(&normal(d_output, 3));
    let gradient = setting.rounded(&normal(rows * d_output, 4));
    let expected = host::forward(sizes, &input, &weight, has_bias.then_some(&bias));
    let expected_gradients = host::backward(sizes, &input, &weight, &gradient);

    let weight_shape = match order {
        WeightOrder::InputFirst => [d_input, d_output],
        WeightOrder::OutputFirst => [d_output, d_input],
    };
    // Made through the host, so that the memory is really in the view's order.
    let leaf = |values: &[f64], shape| {
        let laid = view(setting.tensor::<2>(values, shape)).into_data();
        let dtype = laid.dtype;
        Tensor::<Autodiff<B>, 2>::from_data(laid, (&setting.device, dtype)).require_grad()
    };
    let (x, w) = (leaf(&input, [rows, d_input]), leaf(&weight, weight_shape));
    let b = setting.tensor(&bias, [d_output]).require_grad();
    let output = match order {
        WeightOrder::InputFirst => linear(view(x.clone()), view(w.clone()), has_bias.then(|| b.clone()))?,
        WeightOrder::OutputFirst => linear_transposed(view(x.clone()), view(w.clone()))?,
    };
    // Sums of n terms of size 1 walk to about √n, and are rounded n times at random. Those of 16 bits are added up in f32,
    // where that is nothing, and rounded once.
    let walk = (rows.max(d_input).max(d_output) as f64).sqrt();
    let (roundings, scale) = match is_half(setting.dtype) {
        true => (1.0, 1.0),
        false => (2.0 + 2.0 * walk, 3.0 * walk),
    };
    expect_close("output", output.clone(), &expected, roundings, scale)?;
    let of_output = view(leaf(&gradient, [rows, d_output]));
    let gradients = backward(vec![[output, of_output]]);
    for (leaf, expected, what) in [
        (&x, &expected_gradients[0], "input"),
        (&w, &expected_gradients[1], "weight"),
    ] {
        let actual = view(Tensor::from_inner(leaf.grad(&gradients).expect("tracked")));
        expect_close(what, actual, expected, roundings, scale)?;
    }
    if has_bias {
        let actual = b.grad(&gradients).expect("tracked");
        expect_close("bias", actual, &expected_gradients[2], roundings, scale)?;
    }
    Ok(())
}

fn sizes([rows, d_input, d_output]: [usize; 3], is_turned: bool) -> LinearSizes {
    LinearSizes {
        rows,
        d_input,
        d_output,
        order: match is_turned {
            false => WeightOrder::InputFirst,
            true => WeightOrder::OutputFirst,
        },
    }
}

#[derive(Clone, Copy)]
struct MatchesTheHost;

impl Claim for MatchesTheHost {
    const NAME: &'static str = "linear_matches_the_host";

    fn check<B: KernelBackend>(self, setting: &Setting<Autodiff<B>>) -> anyhow::Result<()>
    where
        Autodiff<B>: KernelBackend,
    {
        let shapes = (1usize..300, 1usize..70, 1usize..200, any::<(bool, bool)>());
        over(8, shapes, |(rows, d_input, d_output, (is_turned, has_bias))| {
            let sizes = sizes([rows, d_input, d_output], is_turned);
            check(setting, sizes, has_bias && !is_turned, |tensor| tensor)
        })?;
        // A single row, column or term, where other routines may run.
        for shape in [[1, 40, 9], [9, 40, 1], [9, 1, 8], [1, 1, 1]] {
            check(setting, sizes(shape, false), true, |tensor| tensor)?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct TakesViews;

impl Claim for TakesViews {
    const NAME: &'static str = "linear_takes_views";

    fn check<B: KernelBackend>(self, setting: &Setting<Autodiff<B>>) -> anyhow::Result<()>
    where
        Autodiff<B>: KernelBackend,
    {
        for is_turned in [false, true] {
            check(setting, sizes([33, 20, 41], is_turned), !is_turned, Tensor::transpose)?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct TakesNoRows;

impl Claim for TakesNoRows {
    const NAME: &'static str = "linear_takes_no_rows";

    fn check<B: KernelBackend>(self, setting: &Setting<Autodiff<B>>) -> anyhow::Result<()>
    where
        Autodiff<B>: KernelBackend,
    {
        let device = &setting.device;
        let options = (device, setting.dtype);
        let weight = setting.tensor(&normal(12, 1), [3, 4]);
        let output = linear(Tensor::<Autodiff<B>, 2>::zeros([0, 3], options), weight, None)?;
        anyhow::ensure!(output.dims() == [0, 4], "{:?}", output.dims());
        Ok(())
    }
}
