//! How closely results must agree with the f64 host version, and inputs to try.

use anyhow::ensure;
use burn::backend::Autodiff;
use burn::tensor::backend::AutodiffBackend;
use burn::tensor::{DType, Tensor, backend::Backend};
use cubecl_kernels::tape::{primitive, record};
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

/// Checks that a tensor has the expected values: each within `roundings` epsilons of its type, of the value or of `scale`,
/// whichever is larger. Sums of many terms say by `roundings` and `scale` how many and how large.
pub fn expect_close<B: Backend, const D: usize>(
    what: &str,
    actual: Tensor<B, D>,
    expected: &[f64],
    roundings: f64,
    scale: f64,
) -> anyhow::Result<()> {
    let epsilon = epsilon(actual.dtype());
    let data = actual.into_data();
    let values: Vec<f64> = data.iter::<f64>().collect();
    ensure!(
        values.len() == expected.len(),
        "{what}: {} values, expected {}",
        values.len(),
        expected.len()
    );
    for (index, (&value, &expected)) in values.iter().zip(expected).enumerate() {
        let allowed = roundings * epsilon * expected.abs().max(scale);
        let is_same = value == expected || (value.is_nan() && expected.is_nan());
        ensure!(
            is_same || (value - expected).abs() <= allowed,
            "{what}: value {index} of {:?} is {value:e}, expected {expected:e} within {allowed:e}",
            data.shape
        );
    }
    Ok(())
}

/// The gradients of the leaves behind outputs, each given with its gradient.
pub fn backward<B: Backend, const D: usize>(
    outputs: Vec<[Tensor<Autodiff<B>, D>; 2]>,
) -> <Autodiff<B> as AutodiffBackend>::Gradients {
    let roots = outputs.into_iter().map(|[output, gradient]| {
        let nothing = Tensor::<B, 1>::zeros([1], &output.device());
        let gradient = primitive(gradient.inner());
        record([primitive(output)], nothing, move |_, _| [Some(gradient)])
    });
    let root = roots.reduce(|a: Tensor<Autodiff<B>, 1>, b| a + b);
    root.expect("there is an output").backward()
}

/// The derivatives of `gradient · function` by each of the values, by central differences: exact to some 1e-8.
pub fn slopes(values: &[f64], gradient: &[f64], function: impl Fn(&[f64]) -> Vec<f64>) -> Vec<f64> {
    let at = |index: usize, step: f64| -> f64 {
        let mut moved = values.to_vec();
        moved[index] += step;
        function(&moved).iter().zip(gradient).map(|(y, g)| y * g).sum()
    };
    let step = 1e-5;
    (0..values.len())
        .map(|index| (at(index, step) - at(index, -step)) / (2.0 * step))
        .collect()
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

/// Runs a claim over shapes drawn by proptest: always the same ones, `cases` of them, the smallest failing one told.
pub fn over<S: proptest::strategy::Strategy>(
    cases: u32,
    shapes: S,
    check: impl Fn(S::Value) -> anyhow::Result<()>,
) -> anyhow::Result<()>
where
    S::Value: Clone,
{
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
