//! `layer_norm`, `rms_norm` and `add_norm` against their host versions.

use anyhow::ensure;
use burn::backend::Autodiff;
use burn::tensor::backend::Backend;
use burn::tensor::{DType, Tensor};
use cubecl_kernels::KernelBackend;
use cubecl_kernels::bias_dropout_add::host as sum;
use cubecl_kernels::norm::host::HostNorm;
use cubecl_kernels::norm::{Addends, NormKind, NormParameters, add_norm, layer_norm, rms_norm};
use cubecl_kernels::precision::is_half;
use cubecl_kernels::random::{RowDropout, RowPlace};
use libtest_mimic::Trial;

use crate::backends::{Claim, Setting, trials_of};
use crate::compare::{backward, epsilon, expect_close, normal, over, slopes};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of(MatchesTheHost);
    trials.extend(trials_of(LongRowsMatchTheHost));
    trials.extend(trials_of(DistantRowsKeepTheirVariance));
    trials.extend(trials_of(SumAndNormMatchTheHost));
    trials.extend(trials_of(OutputsWithoutAGradientCountForNothing));
    trials.extend(trials_of(NormsOfNothing));
    trials.push(Trial::test("host::norm_gradient_is_the_slope", || {
        Ok(gradient_is_the_slope()?)
    }));
    trials
}

/// A norm with its parameters drawn for a number of columns, rounded to the setting's type.
fn drawn_norm<B: Backend>(setting: &Setting<B>, kind: NormKind, has_bias: bool, columns: usize) -> HostNorm {
    let weight: Vec<f64> = normal(columns, 11).iter().map(|x| 1.0 + 0.3 * x).collect();
    HostNorm {
        kind,
        weight: setting.rounded(&weight),
        bias: has_bias.then(|| setting.rounded(&normal(columns, 12))),
        epsilon: 1e-3,
    }
}

/// The same on the device, as leaves.
fn on_device<B: KernelBackend>(setting: &Setting<Autodiff<B>>, host: &HostNorm) -> NormParameters<Autodiff<B>> {
    let leaf = |values: &[f64]| setting.view(values, [values.len()]).require_grad();
    NormParameters {
        kind: host.kind,
        weight: leaf(&host.weight),
        bias: host.bias.as_deref().map(leaf),
        epsilon: host.epsilon,
    }
}

/// The public function for the parameters.
fn apply<B: KernelBackend, const D: usize>(
    input: Tensor<B, D>,
    parameters: &NormParameters<B>,
) -> anyhow::Result<Tensor<B, D>> {
    let NormParameters {
        kind,
        weight,
        bias,
        epsilon,
    } = parameters.clone();
    Ok(match kind {
        NormKind::Layer => layer_norm(input, weight, bias, epsilon)?,
        NormKind::Rms => rms_norm(input, weight, epsilon)?,
    })
}

/// How many roundings of the type, each of numbers as large as the second, results of a norm of `rows` may be off.
///
/// Each input is off by a rounding of the mean, which the reciprocal deviation multiplies; a handful of operations
/// follow. Of 16-bit numbers only the result is rounded, and what is as large as the reciprocal is computed in f32.
fn tolerance(dtype: DType, norm: &HostNorm, rows: &[f64]) -> (f64, f64) {
    let magnitude = rows.iter().fold(1.0, |largest: f64, x| largest.max(x.abs()));
    let columns = norm.weight.len();
    let reciprocals = rows.chunks_exact(columns).map(|row| norm.statistics(row)[1]);
    let reciprocal = reciprocals.fold(1.0, f64::max);
    match is_half(dtype) {
        true => (1.0, 1e-2f64.max(magnitude * reciprocal * 1e-3)),
        false => (16.0, magnitude * reciprocal),
    }
}

/// Compares output and gradients of a norm of rows with the host's.
fn check<B: KernelBackend>(setting: &Setting<Autodiff<B>>, norm: &HostNorm, input: &[f64]) -> anyhow::Result<()>
where
    Autodiff<B>: KernelBackend,
{
    let columns = norm.weight.len();
    let shape = [input.len() / columns, columns];
    let gradient = setting.rounded(&normal(input.len(), 2));
    let (leaf, parameters) = (setting.view(input, shape).require_grad(), on_device(setting, norm));
    let output = apply(leaf.clone(), &parameters)?;
    let (roundings, scale) = tolerance(setting.dtype, norm, input);
    expect_close("output", output.clone(), &norm.forward(input), roundings, scale)?;

    let gradients = backward(vec![[output, setting.view(&gradient, shape)]]);
    let expected = norm.backward(input, &gradient);
    let of_input = leaf.grad(&gradients).expect("tracked");
    // The reciprocal multiplies once more, and the largest gradients are of about 4.
    let (_, largest) = tolerance(DType::F32, norm, input);
    let of_input_scale = if is_half(setting.dtype) {
        scale
    } else {
        4.0 * largest * largest
    };
    expect_close("gradient", of_input, &expected.input, roundings, of_input_scale)?;
    // Sums over the rows, whose roundings grow with the root of their number.
    let scale = 4.0 * scale * (shape[0] as f64).sqrt();
    let of_weight = parameters.weight.grad(&gradients).expect("tracked");
    expect_close("weight's gradient", of_weight, &expected.weight, roundings, scale)?;
    if let Some(bias) = &parameters.bias {
        let of_bias = bias.grad(&gradients).expect("tracked");
        expect_close("bias's gradient", of_bias, &expected.bias, roundings, scale)?;
    }
    Ok(())
}

#[derive(Clone, Copy)]
struct MatchesTheHost;

impl Claim for MatchesTheHost {
    const NAME: &'static str = "norms_match_the_host";

    fn check<B: KernelBackend>(self, setting: &Setting<Autodiff<B>>) -> anyhow::Result<()>
    where
        Autodiff<B>: KernelBackend,
    {
        over(12, (1usize..50, 1usize..90, 0usize..3), |(rows, columns, which)| {
            let (kind, has_bias) = [
                (NormKind::Layer, true),
                (NormKind::Layer, false),
                (NormKind::Rms, false),
            ][which];
            let norm = drawn_norm(setting, kind, has_bias, columns);
            check(setting, &norm, &setting.rounded(&normal(rows * columns, 1)))
        })
    }
}

#[derive(Clone, Copy)]
struct LongRowsMatchTheHost;

impl Claim for LongRowsMatchTheHost {
    const NAME: &'static str = "norms_of_long_rows_match_the_host";

    fn check<B: KernelBackend>(self, setting: &Setting<Autodiff<B>>) -> anyhow::Result<()>
    where
        Autodiff<B>: KernelBackend,
    {
        let cases = [
            (NormKind::Layer, 3, 1024),
            (NormKind::Rms, 3, 4096),
            (NormKind::Layer, 2, 12_289),
            (NormKind::Rms, 1, 40_000),
        ];
        for (kind, rows, columns) in cases {
            let norm = drawn_norm(setting, kind, kind == NormKind::Layer, columns);
            check(setting, &norm, &setting.rounded(&normal(rows * columns, 1)))
                .map_err(|error| error.context(format!("{kind:?} of {rows} rows of {columns}")))?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct DistantRowsKeepTheirVariance;

impl Claim for DistantRowsKeepTheirVariance {
    const NAME: &'static str = "a_layer_norm_of_rows_far_from_0_keeps_their_variance";

    fn check<B: KernelBackend>(self, setting: &Setting<Autodiff<B>>) -> anyhow::Result<()>
    where
        Autodiff<B>: KernelBackend,
    {
        // So far that the numbers still differ, but the difference of mean square and squared mean is lost.
        let distance = f64::min(8192.0, 0.1 / epsilon(setting.dtype));
        for columns in [2usize, 7, 64, 100] {
            let norm = drawn_norm(setting, NormKind::Layer, true, columns);
            let input: Vec<f64> = normal(5 * columns, 1).iter().map(|x| distance + x).collect();
            let input = setting.rounded(&input);
            let output = apply(setting.tensor(&input, [5, columns]), &on_device(setting, &norm))?;
            let (roundings, scale) = tolerance(setting.dtype, &norm, &input);
            expect_close("output", output, &norm.forward(&input), roundings.min(4.0), scale)?;
        }
        Ok(())
    }
}

/// The dropout of a number of rows, which are the samples 5, 6, ... of 3 positions each.
fn dropout(rows: usize) -> RowDropout {
    let place = |row: usize| RowPlace {
        position: (row % 3) as u32,
        sample: 5 + (row / 3) as u32,
    };
    RowDropout {
        key: [17, 0x8000_0001],
        iteration: 9,
        first_head: 0,
        probability: 0.3,
        places: (0..rows).map(place).collect(),
    }
}

#[derive(Clone, Copy)]
struct SumAndNormMatchTheHost;

impl Claim for SumAndNormMatchTheHost {
    const NAME: &'static str = "add_norm_matches_the_host";

    fn check<B: KernelBackend>(self, setting: &Setting<Autodiff<B>>) -> anyhow::Result<()>
    where
        Autodiff<B>: KernelBackend,
    {
        let shapes = (1usize..30, 1usize..90, 0usize..5);
        over(12, shapes, |(rows, columns, which)| {
            let kind = [NormKind::Layer, NormKind::Rms][which % 2];
            let (has_bias, drops) = [(true, true), (false, true), (true, false), (false, false), (true, true)][which];
            let norm = drawn_norm(setting, kind, kind == NormKind::Layer, columns);
            let dropout = drops.then(|| dropout(rows));
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
            expect_close("hidden", hidden.clone(), &expected, 2.0, 4.0)?;
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
            // As for the norm alone; two roundings more for the sum of both gradients and for what dropout multiplies by.
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

#[derive(Clone, Copy)]
struct OutputsWithoutAGradientCountForNothing;

impl Claim for OutputsWithoutAGradientCountForNothing {
    const NAME: &'static str = "add_norm_passes_gradients_of_one_output_alone";

    fn check<B: KernelBackend>(self, setting: &Setting<Autodiff<B>>) -> anyhow::Result<()>
    where
        Autodiff<B>: KernelBackend,
    {
        let (rows, columns) = (6, 20);
        let shape = [rows, columns];
        let norm = drawn_norm(setting, NormKind::Rms, false, columns);
        let [input, residual, gradient] = [1, 2, 3].map(|seed| setting.rounded(&normal(rows * columns, seed)));
        for which in 0..2 {
            let addends = Addends {
                input: setting.tensor(&input, shape).require_grad(),
                bias: None,
                residual: setting.tensor(&residual, shape).require_grad(),
                dropout: Some(dropout(rows)),
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
            let [of_input, _] = sum::backward(&of_sum, Some(&dropout(rows)), columns);
            let found = addends.input.grad(&gradients).expect("tracked");
            expect_close("input's gradient", found, &of_input, 16.0, 1.0)?;
            let found = addends.residual.grad(&gradients).expect("tracked");
            expect_close("residual's gradient", found, &of_sum, 16.0, 1.0)?;
        }
        Ok(())
    }
}

#[derive(Clone, Copy)]
struct NormsOfNothing;

impl Claim for NormsOfNothing {
    const NAME: &'static str = "norms_of_no_rows_have_none_and_gradients_of_0";

    fn check<B: KernelBackend>(self, setting: &Setting<Autodiff<B>>) -> anyhow::Result<()>
    where
        Autodiff<B>: KernelBackend,
    {
        for (kind, has_bias) in [(NormKind::Layer, true), (NormKind::Rms, false)] {
            let norm = drawn_norm(setting, kind, has_bias, 9);
            let parameters = on_device(setting, &norm);
            let nothing = || setting.tensor::<2>(&[], [0, 9]);
            let leaf = nothing().require_grad();
            let output = apply(leaf.clone(), &parameters)?;
            ensure!(output.dims() == [0, 9], "{:?}", output.dims());
            let gradients = backward(vec![[output, nothing()]]);
            ensure!(leaf.grad(&gradients).expect("tracked").dims() == [0, 9]);
            let of_weight = parameters.weight.grad(&gradients).expect("tracked");
            expect_close("weight's gradient", of_weight, &[0.0; 9], 0.0, 0.0)?;

            let addends = Addends {
                input: nothing().require_grad(),
                bias: Some(setting.tensor(&[1.0; 9], [9]).require_grad()),
                residual: nothing().require_grad(),
                dropout: Some(dropout(0)),
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

/// The host's backward pass is that of the host's forward pass.
fn gradient_is_the_slope() -> anyhow::Result<()> {
    for kind in [NormKind::Layer, NormKind::Rms] {
        let columns = 5;
        let norm = HostNorm {
            kind,
            weight: normal(columns, 1),
            bias: Some(normal(columns, 2)),
            epsilon: 1e-3,
        };
        let (input, gradient) = (normal(3 * columns, 3), normal(3 * columns, 4));
        let with_weight = |weight: &[f64]| HostNorm {
            weight: weight.to_vec(),
            ..norm.clone()
        };
        let found = norm.backward(&input, &gradient);
        let pairs = [
            (found.input, slopes(&input, &gradient, |input| norm.forward(input))),
            (
                found.weight,
                slopes(&norm.weight, &gradient, |weight| with_weight(weight).forward(&input)),
            ),
        ];
        for (found, slopes) in pairs {
            for (found, slope) in found.iter().zip(slopes) {
                ensure!(
                    (found - slope).abs() < 1e-6,
                    "{kind:?}: {found}, but the slope is {slope}"
                );
            }
        }
    }
    Ok(())
}
