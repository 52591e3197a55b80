//! `layer_norm` and `rms_norm` against their host version.

use anyhow::ensure;
use burn::tensor::{DType, Tensor};
use cubecl_kernels::norm::host::HostNorm;
use cubecl_kernels::norm::{NormKind, NormParameters, layer_norm, rms_norm};
use cubecl_kernels::precision::is_half;
use libtest_mimic::Trial;

use crate::support::compare::{backward, dot, epsilon, expect_close, expect_slopes, normal, over};
use crate::support::setting::{Claim, Setting, plain, trials_of};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of::<MatchesTheHost>();
    trials.extend(trials_of::<LongRowsMatchTheHost>());
    trials.extend(trials_of::<DistantRowsKeepTheirVariance>());
    trials.extend(trials_of::<LargeNumbersMatchTheHost>());
    trials.extend(trials_of::<NormsOfNothing>());
    trials.push(plain(
        "host::norm_gradients_are_slopes_of_the_output",
        gradients_are_slopes,
    ));
    trials
}

/// A norm with its parameters drawn for a number of columns, rounded to the setting's type.
pub fn drawn_norm(setting: &Setting, kind: NormKind, has_bias: bool, columns: usize) -> HostNorm {
    let weight: Vec<f64> = normal(columns, 11).iter().map(|x| 1.0 + 0.3 * x).collect();
    HostNorm {
        kind,
        weight: setting.rounded(&weight),
        bias: has_bias.then(|| setting.rounded(&normal(columns, 12))),
        epsilon: 1e-3,
    }
}

/// The same on the device, as leaves.
pub fn on_device(setting: &Setting, host: &HostNorm) -> NormParameters {
    let leaf = |values: &[f64]| setting.view(values, [values.len()]).require_grad();
    NormParameters {
        kind: host.kind,
        weight: leaf(&host.weight),
        bias: host.bias.as_deref().map(leaf),
        epsilon: host.epsilon,
    }
}

/// The public function for the parameters.
fn apply<const D: usize>(input: Tensor<D>, parameters: &NormParameters) -> anyhow::Result<Tensor<D>> {
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

/// Roundings of the type, each of numbers as large as the second, that results of a norm of `rows` may be off.
///
/// Each input is off by a rounding of the mean, which the reciprocal deviation multiplies; a handful of operations
/// follow. Of 16-bit numbers only the result is rounded, and what is as large as the reciprocal is computed in f32.
pub fn tolerance(dtype: DType, norm: &HostNorm, rows: &[f64]) -> (f64, f64) {
    let magnitude = rows.iter().fold(1.0, |largest: f64, x| largest.max(x.abs()));
    let columns = norm.weight.len();
    let reciprocals = rows.chunks_exact(columns).map(|row| norm.statistics(row)[1]);
    let reciprocal = reciprocals.fold(1.0, f64::max);
    if is_half(dtype) {
        (1.0, 1e-2f64.max(magnitude * reciprocal * 1e-3))
    } else {
        (16.0, magnitude * reciprocal)
    }
}

/// Compares output and gradients of a norm of rows with the host's.
fn check(setting: &Setting, norm: &HostNorm, input: &[f64]) -> anyhow::Result<()> {
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

struct MatchesTheHost;

impl Claim for MatchesTheHost {
    const NAME: &'static str = "norms_match_the_host";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let edges = [(1, 1, 0), (1, 41, 0), (41, 1, 0), (1, 1, 2), (1, 41, 2), (41, 1, 2)];
        over(
            edges,
            8,
            (1usize..50, 1usize..90, 0usize..3),
            |(rows, columns, which)| {
                let (kind, has_bias) = [
                    (NormKind::Layer, true),
                    (NormKind::Layer, false),
                    (NormKind::Rms, false),
                ][which];
                let norm = drawn_norm(setting, kind, has_bias, columns);
                check(setting, &norm, &setting.rounded(&normal(rows * columns, 1)))
            },
        )
    }
}

struct LongRowsMatchTheHost;

impl Claim for LongRowsMatchTheHost {
    const NAME: &'static str = "norms_of_long_rows_match_the_host";

    fn check(setting: &Setting) -> anyhow::Result<()> {
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

struct DistantRowsKeepTheirVariance;

impl Claim for DistantRowsKeepTheirVariance {
    const NAME: &'static str = "a_layer_norm_of_rows_far_from_0_keeps_their_variance";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        // So far that the numbers still differ, but the difference of mean square and squared mean is lost.
        let distance = f64::min(8192.0, 0.1 / epsilon(setting.dtype));
        for columns in [2usize, 7, 64, 100, 4099, 20_000] {
            let norm = drawn_norm(setting, NormKind::Layer, true, columns);
            let rows = if columns < 1000 { 5 } else { 2 };
            let input: Vec<f64> = normal(rows * columns, 1).iter().map(|x| distance + x).collect();
            check(setting, &norm, &setting.rounded(&input))
                .map_err(|error| error.context(format!("{rows} rows of {columns} around {distance}")))?;
        }
        Ok(())
    }
}

/// Squares of large numbers do not fit the type that they are in; what is computed in has room for these.
struct LargeNumbersMatchTheHost;

impl Claim for LargeNumbersMatchTheHost {
    const NAME: &'static str = "norms_of_large_numbers_match_the_host";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let largest = if setting.dtype == DType::F16 { 6e4 } else { 1e15 };
        for (kind, columns) in [(NormKind::Layer, 7), (NormKind::Rms, 64), (NormKind::Layer, 4099)] {
            let norm = drawn_norm(setting, kind, kind == NormKind::Layer, columns);
            let input = normal(3 * columns, 1);
            let scale = largest / input.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
            let input: Vec<f64> = input.iter().map(|x| x * scale).collect();
            check(setting, &norm, &setting.rounded(&input))
                .map_err(|error| error.context(format!("{kind:?} of rows of {columns} up to {largest:e}")))?;
        }
        Ok(())
    }
}

struct NormsOfNothing;

impl Claim for NormsOfNothing {
    const NAME: &'static str = "norms_of_no_rows_have_none_and_gradients_of_0";

    fn check(setting: &Setting) -> anyhow::Result<()> {
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
        }
        Ok(())
    }
}

/// The host's backward pass is that of the host's forward pass.
fn gradients_are_slopes() -> anyhow::Result<()> {
    for kind in [NormKind::Layer, NormKind::Rms] {
        let columns = 5;
        let norm = HostNorm {
            kind,
            weight: normal(columns, 1),
            bias: Some(normal(columns, 2)),
            epsilon: 1e-3,
        };
        let (input, gradient) = (normal(3 * columns, 3), normal(3 * columns, 4));
        let bias = norm.bias.clone().expect("given above");
        let with_weight = |weight: &[f64]| HostNorm {
            weight: weight.to_vec(),
            ..norm.clone()
        };
        let with_bias = |bias: &[f64]| HostNorm {
            bias: Some(bias.to_vec()),
            ..norm.clone()
        };
        let found = norm.backward(&input, &gradient);
        expect_slopes("input", &found.input, &input, |input| {
            dot(&norm.forward(input), &gradient)
        })?;
        expect_slopes("weight", &found.weight, &norm.weight, |weight| {
            dot(&with_weight(weight).forward(&input), &gradient)
        })?;
        expect_slopes("bias", &found.bias, &bias, |bias| {
            dot(&with_bias(bias).forward(&input), &gradient)
        })?;
    }
    Ok(())
}
