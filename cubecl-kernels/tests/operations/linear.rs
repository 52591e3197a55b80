//! `linear` and `linear_transposed` against their host version.

use burn::tensor::Tensor;
use cubecl_kernels::linear::host::{self, LinearSizes};
use cubecl_kernels::linear::{WeightOrder, linear, linear_transposed};
use cubecl_kernels::precision::is_half;
use libtest_mimic::Trial;
use proptest::prelude::*;

use crate::support::compare::{backward, dot, expect_close, expect_exactly, expect_slopes, normal, over};
use crate::support::setting::{Claim, Setting, plain, trials_of, trials_of_nothing};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of::<MatchesTheHost>();
    trials.extend(trials_of::<TakesViews>());
    trials.push(plain(
        "host::linear_gradients_are_slopes_of_the_output",
        gradients_are_slopes,
    ));
    trials.extend(trials_of_nothing::<TakesNoRows>());
    trials
}

/// Compares output and gradients; `view` is its own inverse and says how the matrices are stored.
fn check(
    setting: &Setting,
    sizes: LinearSizes,
    has_bias: bool,
    view: impl Fn(Tensor<2>) -> Tensor<2>,
) -> anyhow::Result<()> {
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
        Tensor::<2>::from_data(laid, (&setting.device, setting.dtype)).require_grad()
    };
    let (x, w) = (leaf(&input, [rows, d_input]), leaf(&weight, weight_shape));
    let b = setting.tensor(&bias, [d_output]).require_grad();
    let output = match order {
        WeightOrder::InputFirst => linear(view(x.clone()), view(w.clone()), has_bias.then(|| b.clone()))?,
        WeightOrder::OutputFirst => linear_transposed(view(x.clone()), view(w.clone()))?,
    };
    // Sums of n terms of size 1 walk to about √n, and are rounded n times at random. Those of 16 bits are added up in
    // f32, where that is nothing, and rounded once.
    let walk = (rows.max(d_input).max(d_output) as f64).sqrt();
    let (roundings, scale) = if is_half(setting.dtype) {
        (1.0, 1.0)
    } else if setting.multiplies_in_tf32() {
        (2f64.powi(13), 3.0 * walk)
    } else {
        (2.0 + 2.0 * walk, 3.0 * walk)
    };
    // On CubeCL the product is rounded before the bias is added: it may be as much larger than the sum as the bias is.
    let (output_roundings, output_scale) = if is_half(setting.dtype) && has_bias {
        (
            2.0 * roundings,
            bias.iter().fold(scale, |most, bias| bias.abs().max(most)),
        )
    } else {
        (roundings, scale)
    };
    expect_close("output", output.clone(), &expected, output_roundings, output_scale)?;
    let of_output = view(leaf(&gradient, [rows, d_output]));
    let gradients = backward(vec![[output, of_output]]);
    for (leaf, expected, what) in [
        (&x, &expected_gradients[0], "input"),
        (&w, &expected_gradients[1], "weight"),
    ] {
        let actual = view(leaf.grad(&gradients).expect("tracked"));
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
        order: if !is_turned {
            WeightOrder::InputFirst
        } else {
            WeightOrder::OutputFirst
        },
    }
}

struct MatchesTheHost;

impl Claim for MatchesTheHost {
    const NAME: &'static str = "linear_matches_the_host";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let shapes = (1usize..300, 1usize..70, 1usize..200, any::<(bool, bool)>());
        // A single row, column or term, where other routines may run.
        let edges = [(1, 40, 9), (9, 40, 1), (9, 1, 8), (1, 1, 1)];
        let turned = [false, true].into_iter();
        let edges = turned.flat_map(|turned| edges.map(|(rows, d_in, d_out)| (rows, d_in, d_out, (turned, true))));
        let cases = if setting.takes_few() { 2 } else { 8 };
        over(
            edges,
            cases,
            shapes,
            |(rows, d_input, d_output, (is_turned, has_bias))| {
                let sizes = sizes([rows, d_input, d_output], is_turned);
                check(setting, sizes, has_bias && !is_turned, |tensor| tensor)
            },
        )
    }
}

struct TakesViews;

impl Claim for TakesViews {
    const NAME: &'static str = "linear_takes_views";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        for is_turned in [false, true] {
            check(setting, sizes([33, 20, 41], is_turned), !is_turned, Tensor::transpose)?;
        }
        Ok(())
    }
}

struct TakesNoRows;

impl Claim for TakesNoRows {
    const NAME: &'static str = "linear_takes_no_rows";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        for is_turned in [false, true] {
            check_nothing(setting, sizes([0, 3, 4], is_turned))?;
            // A sum of no terms is the bias.
            check_nothing(setting, sizes([2, 0, 4], is_turned))?;
            check_nothing(setting, sizes([2, 3, 0], is_turned))?;
        }
        Ok(())
    }
}

/// Compares a product without products, of whose tensors some are empty: these are not read, which burn does not do on
/// CUDA.
fn check_nothing(setting: &Setting, sizes: LinearSizes) -> anyhow::Result<()> {
    let LinearSizes {
        rows,
        d_input,
        d_output,
        order,
    } = sizes;
    let leaf = |shape: [usize; 2]| setting.tensor(&vec![0.5; shape[0] * shape[1]], shape).require_grad();
    let (x, bias) = (leaf([rows, d_input]), vec![0.25; d_output]);
    let b = setting.tensor(&bias, [d_output]).require_grad();
    let (w, output, expected) = match order {
        WeightOrder::InputFirst => {
            let w = leaf([d_input, d_output]);
            let output = linear(x.clone(), w.clone(), Some(b.clone()))?;
            (w, output, bias.repeat(rows))
        }
        WeightOrder::OutputFirst => {
            let w = leaf([d_output, d_input]);
            let output = linear_transposed(x.clone(), w.clone())?;
            (w, output, vec![0.0; rows * d_output])
        }
    };
    expect_exactly("output", output.clone(), [rows, d_output], &expected)?;
    let gradient = setting.tensor(&vec![1.0; rows * d_output], [rows, d_output]);
    let gradients = backward(vec![[output, gradient]]);
    for (what, leaf) in [("input", &x), ("weight", &w)] {
        let actual = leaf.grad(&gradients).expect("tracked");
        expect_exactly(what, actual, leaf.dims(), &vec![0.0; leaf.shape().num_elements()])?;
    }
    if order == WeightOrder::InputFirst {
        let actual = b.grad(&gradients).expect("tracked");
        expect_exactly("bias", actual, [d_output], &vec![rows as f64; d_output])?;
    }
    Ok(())
}

fn gradients_are_slopes() -> anyhow::Result<()> {
    for is_turned in [false, true] {
        let sizes = sizes([3, 4, 5], is_turned);
        let [input, weight, bias, gradient] =
            [(12, 1), (20, 2), (5, 3), (15, 4)].map(|(count, seed)| normal(count, seed));
        let output = |input: &[f64], weight: &[f64], bias: &[f64]| {
            dot(&host::forward(sizes, input, weight, Some(bias)), &gradient)
        };
        let [of_input, of_weight, of_bias] = host::backward(sizes, &input, &weight, &gradient);
        expect_slopes("input", &of_input, &input, |input| output(input, &weight, &bias))?;
        expect_slopes("weight", &of_weight, &weight, |weight| output(&input, weight, &bias))?;
        expect_slopes("bias", &of_bias, &bias, |bias| output(&input, &weight, bias))?;
    }
    Ok(())
}
