//! How closely results must agree with the f64 host version, and inputs to try.

use anyhow::{bail, ensure};
use burn::tensor::{DType, Gradients, Tensor};
use cubecl_kernels::precision::{compute_type, is_half};
use cubecl_kernels::tape::{inner, record};
use proptest::test_runner::{Config, TestRng, TestRunner};

/// The distance between 1 and the next number of a type.
pub fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F32 => f64::from(f32::EPSILON),
        DType::F16 => 2f64.powi(-10),
        DType::BF16 => 2f64.powi(-7),
        other => panic!("{other:?} is not computed with"),
    }
}

/// Checks that a tensor has the expected values: each within `roundings` epsilons of its type, of the value or of
/// `scale`, whichever is larger. Sums of many terms say by `roundings` and `scale` how many and how large.
pub fn expect_close<const D: usize>(
    what: &str,
    actual: Tensor<D>,
    expected: &[f64],
    roundings: f64,
    scale: f64,
) -> anyhow::Result<()> {
    let epsilon = epsilon(actual.dtype());
    expect_within(what, actual, expected, |_, expected| {
        roundings * epsilon * expected.abs().max(scale)
    })
}

/// Checks that a tensor has the expected values, computed in f32 (f64 for f64) and rounded to its type once: each
/// within `roundings` epsilons of the type that is computed in, of the value or of `scale`, and half an epsilon of its
/// own.
pub fn expect_rounded<const D: usize>(
    what: &str,
    actual: Tensor<D>,
    expected: &[f64],
    roundings: f64,
    scale: f64,
) -> anyhow::Result<()> {
    let dtype = actual.dtype();
    let inside = roundings * epsilon(compute_type(dtype));
    let once = if is_half(dtype) { 0.5 * epsilon(dtype) } else { 0.0 };
    expect_within(what, actual, expected, |_, expected| {
        let size = expected.abs();
        // The spacing of f16's numbers does not shrink below its smallest normal one.
        inside * size.max(scale) + once * size.max(2f64.powi(-14))
    })
}

/// Checks that each value is the expected one to what is `allowed` for its place and the expected value. What is not
/// finite must be just that: any number would be within a part of infinity.
pub fn expect_within<const D: usize>(
    what: &str,
    actual: Tensor<D>,
    expected: &[f64],
    allowed: impl Fn(usize, f64) -> f64,
) -> anyhow::Result<()> {
    let data = actual.into_data();
    let values: Vec<f64> = data.iter::<f64>().collect();
    ensure!(
        values.len() == expected.len(),
        "{what}: {} values, expected {}",
        values.len(),
        expected.len()
    );
    for (index, (&value, &expected)) in values.iter().zip(expected).enumerate() {
        let allowed = if expected.is_finite() {
            allowed(index, expected)
        } else {
            0.0
        };
        let is_same = value == expected || (value.is_nan() && expected.is_nan());
        ensure!(
            is_same || (value - expected).abs() <= allowed,
            "{what}: value {index} of {:?} is {value:e}, expected {expected:e} within {allowed:e}",
            data.shape()
        );
    }
    Ok(())
}

/// Expects the same numbers, to the last bit but for the sign of zero.
pub fn expect_equal(what: &str, found: &[f64], expected: &[f64]) -> anyhow::Result<()> {
    ensure!(
        found.len() == expected.len(),
        "{what}: {} numbers, expected {}",
        found.len(),
        expected.len()
    );
    let other = found
        .iter()
        .zip(expected)
        .position(|(found, expected)| found != expected);
    match other {
        Some(place) => bail!(
            "{what}: value {place} is {}, expected {}",
            found[place],
            expected[place]
        ),
        None => Ok(()),
    }
}

/// The numbers of a tensor. What is empty is not read: reading launches a kernel, which CUDA refuses for no elements.
pub fn numbers<const D: usize>(tensor: &Tensor<D>) -> Vec<f64> {
    if tensor.dims().contains(&0) {
        return Vec::new();
    }
    tensor.to_data().iter::<f64>().collect()
}

/// Checks that a tensor has this shape, and exactly these values.
pub fn expect_exactly<const D: usize>(
    what: &str,
    actual: Tensor<D>,
    dims: [usize; D],
    expected: &[f64],
) -> anyhow::Result<()> {
    let found = actual.dims();
    ensure!(found == dims, "{what}: the shape is {found:?}, expected {dims:?}");
    expect_equal(what, &numbers(&actual), expected)
}

/// Checks that the length of the difference from the expected values is within `roundings` epsilons of the type of
/// their own length: rounding errors are not all on one side, so that this bound is many times closer than that of each
/// value.
pub fn expect_norm<const D: usize>(
    what: &str,
    actual: Tensor<D>,
    expected: &[f64],
    roundings: f64,
) -> anyhow::Result<()> {
    let epsilon = epsilon(actual.dtype());
    let values: Vec<f64> = actual.into_data().iter::<f64>().collect();
    let difference: Vec<f64> = values.iter().zip(expected).map(|(a, b)| a - b).collect();
    let length = |values: &[f64]| dot(values, values).sqrt();
    let found = length(&difference) / (epsilon * length(expected));
    ensure!(
        values.len() == expected.len() && found <= roundings,
        "{what}: as a whole it is off by {found:.2} roundings, expected at most {roundings}"
    );
    Ok(())
}

/// Returns the gradients of the leaves of some outputs, each of which is given with its gradient.
pub fn backward<const D: usize>(outputs: Vec<[Tensor<D>; 2]>) -> Gradients {
    let roots = outputs.into_iter().map(|[output, gradient]| {
        let gradient = inner(&gradient);
        let nothing = Tensor::<1>::zeros([1], &gradient.device());
        record(output, nothing, move |_, _| Some(gradient))
    });
    let root = roots.reduce(|a: Tensor<1>, b| a + b);
    root.expect("there is an output").backward()
}

/// Checks gradients of the host against the slopes of a function `at` a place, from central differences.
pub fn expect_slopes(what: &str, actual: &[f64], at: &[f64], function: impl Fn(&[f64]) -> f64) -> anyhow::Result<()> {
    ensure!(
        actual.len() == at.len(),
        "{what}: {} gradients of {} numbers",
        actual.len(),
        at.len()
    );
    // The cube root of the rounding: there the errors of truncation and of rounding are about the same.
    let step = 1e-5;
    let mut moved = at.to_vec();
    for (index, (&middle, &actual)) in at.iter().zip(actual).enumerate() {
        let mut value_at = |place: f64| {
            moved[index] = place;
            function(&moved)
        };
        let slope = (value_at(middle + step) - value_at(middle - step)) / (2.0 * step);
        value_at(middle);
        ensure!(
            (actual - slope).abs() <= 1e-8 * slope.abs().max(1.0),
            "{what}: gradient {index} is {actual:e}, the slope {slope:e}"
        );
    }
    Ok(())
}

/// Numbers that look like N(0, 1), the same for the same seed.
pub fn normal(count: usize, seed: u64) -> Vec<f64> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x1234_5678_9ABC_DEF0;
    let mut uniform = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    };
    (0..count)
        .map(|_| {
            let (radius, angle) = (1.0 - uniform(), uniform());
            (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
        })
        .collect()
}

/// Runs a claim over the shapes at the `edges` of what there is, then over `cases` shapes drawn by proptest. Those are
/// always the same, and the smallest failing one is reported.
pub fn over<S: proptest::strategy::Strategy>(
    edges: impl IntoIterator<Item = S::Value>,
    cases: u32,
    shapes: S,
    check: impl Fn(S::Value) -> anyhow::Result<()>,
) -> anyhow::Result<()>
where
    S::Value: Clone,
{
    for edge in edges {
        check(edge.clone()).map_err(|error| error.context(format!("{edge:?}")))?;
    }
    let config = Config {
        cases,
        failure_persistence: None,
        max_shrink_iters: 64,
        ..Config::default()
    };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(Default::default()));
    let outcome = runner.run(&shapes, |shape| {
        check(shape).map_err(|error| proptest::test_runner::TestCaseError::fail(format!("{error:#}")))
    });
    outcome.map_err(|error| anyhow::anyhow!("{error}"))
}

/// The sum of the products of two lists.
pub fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
