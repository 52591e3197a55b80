//! `add_norm` against its host version: the sum of `bias_dropout_add`, and a norm of it.

use anyhow::ensure;
use burn::tensor::DType;
use cubecl_kernels::bias_dropout_add::host as sum;
use cubecl_kernels::norm::host::HostNorm;
use cubecl_kernels::norm::{Addends, NormKind, add_norm, norm_of_stream};
use cubecl_kernels::precision::is_half;
use libtest_mimic::Trial;

use crate::norm::{drawn_norm, on_device, tolerance};
use crate::support::compare::{backward, dot, expect_close, expect_rounded, expect_slopes, normal, over};
use crate::support::dropout::dropout;
use crate::support::setting::{Claim, Setting, plain, trials_of};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of::<MatchesTheHost>();
    trials.extend(trials_of::<NormsAStream>());
    trials.extend(trials_of::<OutputsWithoutAGradientCountForNothing>());
    trials.extend(trials_of::<TakesNoRows>());
    trials.push(plain(
        "host::add_norm_gradients_are_slopes_of_the_outputs",
        gradients_are_slopes,
    ));
    trials
}

struct MatchesTheHost;

impl Claim for MatchesTheHost {
    const NAME: &'static str = "add_norm_matches_the_host";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let shapes = (1usize..30, 1usize..90, 0usize..5);
        let edges = [(1, 1, 0), (1, 41, 1), (41, 1, 2)];
        over(edges, 8, shapes, |(rows, columns, which)| {
            let kind = [NormKind::Layer, NormKind::Rms][which % 2];
            let (has_bias, drops) = [(true, true), (false, true), (true, false), (false, false), (true, true)][which];
            let norm = drawn_norm(setting, kind, kind == NormKind::Layer, columns);
            let dropout = drops.then(|| dropout(rows, 0.3));
            let shape = [rows, columns];
            let drawn = |seed| setting.rounded(&normal(rows * columns, seed));
            let [input, residual, of_hidden, of_output] = [1, 2, 3, 4].map(drawn);
            let bias = has_bias.then(|| setting.rounded(&normal(columns, 5)));

            let leaf = |values: &[f64]| setting.view(values, shape).require_grad();
            let addends = Addends {
                input: leaf(&input),
                bias: bias.as_ref().map(|bias| setting.tensor(bias, [columns]).require_grad()),
                residual: leaf(&residual),
                dropout: dropout.clone(),
            };
            let parameters = on_device(setting, &norm);
            let [hidden, output] = add_norm(addends.clone(), parameters.clone())?;
            let expected = sum::forward(&input, bias.as_deref(), &residual, dropout.as_ref(), columns);
            // Four roundings of numbers below 8, as of the sum alone.
            expect_rounded("hidden", hidden.clone(), &expected, 4.0, 8.0)?;
            // The norm is that of the rounded sum, as the backward pass sees it.
            let data = hidden.clone().into_data();
            let sums: Vec<f64> = data.iter::<f64>().collect();
            let (roundings, scale) = tolerance(setting.dtype, &norm, &sums);
            expect_close("output", output.clone(), &norm.forward(&sums), roundings, scale)?;

            let gradients = backward(vec![
                [hidden, setting.view(&of_hidden, shape)],
                [output, setting.view(&of_output, shape)],
            ]);
            let expected = norm.backward(&sums, &of_output);
            let of_sum: Vec<f64> = expected.input.iter().zip(&of_hidden).map(|(a, b)| a + b).collect();
            let [of_input, of_bias] = sum::backward(&of_sum, dropout.as_ref(), columns);
            let (_, largest) = tolerance(DType::F32, &norm, &sums);
            // As for the norm alone; two roundings more for the sum of both gradients and for what dropout multiplies
            // by.
            let input_scale = if is_half(setting.dtype) {
                4.0
            } else {
                4.0 * largest * largest
            };
            let roundings = roundings + 2.0;
            let found = addends.residual.grad(&gradients).expect("tracked");
            expect_close("residual's gradient", found, &of_sum, roundings, input_scale)?;
            let found = addends.input.grad(&gradients).expect("tracked");
            expect_close("input's gradient", found.clone(), &of_input, roundings, input_scale)?;
            for (found, expected) in found.into_data().iter::<f64>().zip(&of_input) {
                let has_fallen = *expected == 0.0;
                ensure!(
                    !has_fallen || found == 0.0,
                    "an element that falls has the gradient {found}"
                );
            }
            let many = (rows as f64).sqrt();
            if let Some(bias) = &addends.bias {
                let found = bias.grad(&gradients).expect("tracked");
                expect_close("bias's gradient", found, &of_bias, roundings, input_scale * many)?;
            }
            let scale = 4.0 * scale * many;
            let found = parameters.weight.grad(&gradients).expect("tracked");
            expect_close("weight's gradient", found, &expected.weight, roundings, scale)?;
            if let Some(bias) = &parameters.bias {
                let found = bias.grad(&gradients).expect("tracked");
                expect_close("norm's bias's gradient", found, &expected.bias, roundings, scale)?;
            }
            Ok(())
        })
    }
}

/// A stream stays as it is, and receives the gradients of itself and of its norm.
struct NormsAStream;

impl Claim for NormsAStream {
    const NAME: &'static str = "norm_of_stream_matches_the_host";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        over([(1, 1), (1, 41)], 6, (1usize..30, 1usize..90), |(rows, columns)| {
            let norm = drawn_norm(setting, NormKind::Layer, true, columns);
            let shape = [rows, columns];
            let drawn = |seed| setting.rounded(&normal(rows * columns, seed));
            let [stream, of_stream, of_output] = [1, 2, 3].map(drawn);
            let leaf = setting.view(&stream, shape).require_grad();
            let parameters = on_device(setting, &norm);
            let [same, output] = norm_of_stream(leaf.clone(), parameters.clone())?;
            expect_close("stream", same.clone(), &stream, 0.0, 0.0)?;
            let (roundings, scale) = tolerance(setting.dtype, &norm, &stream);
            expect_close("output", output.clone(), &norm.forward(&stream), roundings, scale)?;

            let gradients = backward(vec![
                [same, setting.view(&of_stream, shape)],
                [output, setting.view(&of_output, shape)],
            ]);
            let expected = norm.backward(&stream, &of_output);
            let of_both: Vec<f64> = expected.input.iter().zip(&of_stream).map(|(a, b)| a + b).collect();
            let (_, largest) = tolerance(DType::F32, &norm, &stream);
            let input_scale = if is_half(setting.dtype) {
                4.0
            } else {
                4.0 * largest * largest
            };
            // As of the sum with a norm: two roundings more for the sum of both gradients.
            let found = leaf.grad(&gradients).expect("tracked");
            expect_close("stream's gradient", found, &of_both, roundings + 2.0, input_scale)?;
            let scale = 4.0 * scale * (rows as f64).sqrt();
            let found = parameters.weight.grad(&gradients).expect("tracked");
            expect_close("weight's gradient", found, &expected.weight, roundings, scale)
        })
    }
}

struct OutputsWithoutAGradientCountForNothing;

impl Claim for OutputsWithoutAGradientCountForNothing {
    const NAME: &'static str = "add_norm_passes_gradients_of_one_output_alone";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let (rows, columns) = (6, 20);
        let shape = [rows, columns];
        let norm = drawn_norm(setting, NormKind::Rms, false, columns);
        let [input, residual, gradient] = [1, 2, 3].map(|seed| setting.rounded(&normal(rows * columns, seed)));
        for which in 0..2 {
            let addends = Addends {
                input: setting.tensor(&input, shape).require_grad(),
                bias: None,
                residual: setting.tensor(&residual, shape).require_grad(),
                dropout: Some(dropout(rows, 0.3)),
            };
            let outputs = add_norm(addends.clone(), on_device(setting, &norm))?;
            let data = outputs[0].clone().into_data();
            let sums: Vec<f64> = data.iter::<f64>().collect();
            let output = outputs[which].clone();
            let gradients = backward(vec![[output, setting.tensor(&gradient, shape)]]);
            let of_sum = match which {
                0 => gradient.clone(),
                _ => norm.backward(&sums, &gradient).input,
            };
            let [of_input, _] = sum::backward(&of_sum, Some(&dropout(rows, 0.3)), columns);
            let found = addends.input.grad(&gradients).expect("tracked");
            // The reciprocal deviation is about 1. As of the norm alone, 16 roundings of the numbers that go into a
            // gradient; in 16 bits there are two, of gradients up to 4, and one more of those that dropout multiplies.
            expect_close("input's gradient", found, &of_input, 16.0, 1.0)?;
            let found = addends.residual.grad(&gradients).expect("tracked");
            expect_close("residual's gradient", found, &of_sum, 16.0, 1.0)?;
        }
        Ok(())
    }
}

struct TakesNoRows;

impl Claim for TakesNoRows {
    const NAME: &'static str = "add_norm_of_no_rows_has_none_and_a_bias_gradient_of_0";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let nothing = || setting.tensor::<2>(&[], [0, 9]);
        for (kind, has_bias) in [(NormKind::Layer, true), (NormKind::Rms, false)] {
            let norm = drawn_norm(setting, kind, has_bias, 9);
            let addends = Addends {
                input: nothing().require_grad(),
                bias: Some(setting.tensor(&[1.0; 9], [9]).require_grad()),
                residual: nothing().require_grad(),
                dropout: Some(dropout(0, 0.3)),
            };
            let outputs = add_norm(addends.clone(), on_device(setting, &norm))?;
            ensure!(outputs[0].dims() == [0, 9] && outputs[1].dims() == [0, 9]);
            let gradients = backward(outputs.map(|output| [output, nothing()]).to_vec());
            let of_bias = addends
                .bias
                .as_ref()
                .and_then(|bias| bias.grad(&gradients))
                .expect("tracked");
            expect_close("bias's gradient", of_bias, &[0.0; 9], 0.0, 0.0)?;
        }
        Ok(())
    }
}

/// The host's gradients, of the sum and of its norm at once, are slopes of what it computes forward.
fn gradients_are_slopes() -> anyhow::Result<()> {
    let (rows, columns) = (3, 5);
    for kind in [NormKind::Layer, NormKind::Rms] {
        let norm = HostNorm {
            kind,
            weight: normal(columns, 1),
            bias: Some(normal(columns, 2)),
            epsilon: 1e-3,
        };
        let [input, residual, of_hidden, of_output] = [3, 4, 5, 6].map(|seed| normal(rows * columns, seed));
        let (bias, dropout) = (normal(columns, 7), dropout(rows, 0.3));
        let loss = |norm: &HostNorm, input: &[f64], bias: &[f64], residual: &[f64]| {
            let hidden = sum::forward(input, Some(bias), residual, Some(&dropout), columns);
            dot(&hidden, &of_hidden) + dot(&norm.forward(&hidden), &of_output)
        };
        let hidden = sum::forward(&input, Some(&bias), &residual, Some(&dropout), columns);
        let of_norm = norm.backward(&hidden, &of_output);
        let of_sum: Vec<f64> = of_norm.input.iter().zip(&of_hidden).map(|(a, b)| a + b).collect();
        let [of_input, of_bias] = sum::backward(&of_sum, Some(&dropout), columns);
        expect_slopes("residual", &of_sum, &residual, |residual| {
            loss(&norm, &input, &bias, residual)
        })?;
        expect_slopes("input", &of_input, &input, |input| loss(&norm, input, &bias, &residual))?;
        expect_slopes("bias", &of_bias, &bias, |bias| loss(&norm, &input, bias, &residual))?;
        expect_slopes("weight", &of_norm.weight, &norm.weight, |weight| {
            let weight = weight.to_vec();
            loss(&HostNorm { weight, ..norm.clone() }, &input, &bias, &residual)
        })?;
        expect_slopes(
            "the norm's bias",
            &of_norm.bias,
            norm.bias.as_deref().expect("given above"),
            |of_norm| {
                let bias = &bias;
                let norm = HostNorm {
                    bias: Some(of_norm.to_vec()),
                    ..norm.clone()
                };
                loss(&norm, &input, bias, &residual)
            },
        )?;
    }
    Ok(())
}
