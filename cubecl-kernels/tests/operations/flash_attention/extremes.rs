//! Attention of what is not finite, of large scores and of nothing.

use burn::tensor::Tensor;
use cubecl_kernels::flash_attention::host::{self, HostInputs};
use cubecl_kernels::flash_attention::{AttentionMask, flash_attention};
use cubecl_kernels::precision::is_half;
use libtest_mimic::Trial;

use super::case::{Tolerance, largest, small};
use crate::support::compare::{backward, expect_close};
use crate::support::setting::{Claim, Setting, trials_of, trials_of_nothing};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of::<ShowsWhatIsNotFinite>();
    trials.extend(trials_of::<TakesLargeScores>());
    trials.extend(trials_of::<TakesGrowingScores>());
    trials.extend(trials_of_nothing::<TakesNothing>());
    trials
}

struct ShowsWhatIsNotFinite;

impl Claim for ShowsWhatIsNotFinite {
    const NAME: &'static str = "flash_attention_shows_what_is_not_finite";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        // What is spoilt: an element of the query, of the key, of the value.
        for (which, spoilt) in [
            (0, f64::NAN),
            (0, f64::INFINITY),
            (1, f64::NAN),
            (1, f64::NEG_INFINITY),
            (2, f64::NAN),
            (2, f64::NEG_INFINITY),
        ] {
            let case = small(40, 50, AttentionMask::Full, 16);
            let mut inputs = case.normal(setting);
            let place = inputs[which].len() / 3;
            inputs[which][place] = spoilt;
            case.check(setting, inputs)
                .map_err(|error| error.context(format!("{spoilt} in input {which}")))?;
        }
        // A third of the rows, the first included, see only scores of −∞.
        let case = small(20, 20, AttentionMask::Causal, 1);
        let [mut query, key, value] = case.normal(setting);
        let key: Vec<f64> = key.into_iter().map(f64::abs).collect();
        for (index, element) in query.iter_mut().enumerate() {
            *element = if index % 3 == 0 {
                f64::NEG_INFINITY
            } else {
                element.abs()
            };
        }
        let slices = [&query, &key, &value].map(Vec::as_slice);
        let (expected, _) = host::forward(case.sizes, HostInputs::new(slices), &case.options());
        anyhow::ensure!(expected[0] == 0.0, "nothing is seen: {}", expected[0]);
        let [query_shape, key_shape] = case.shapes();
        let output = flash_attention(
            setting.tensor(&query, query_shape),
            setting.tensor(&key, key_shape),
            setting.tensor(&value, key_shape),
            case.options(),
        )?;
        expect_close("output", output, &expected, 4.0, largest(&expected))
    }
}

struct TakesLargeScores;

impl Claim for TakesLargeScores {
    const NAME: &'static str = "flash_attention_takes_large_scores";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        // A common part of all scores that is 3840, far beyond where exponentials end, and whole numbers of a few on
        // top of it. All numbers and products are exact in every type, and so are the scores in f32: usual tolerances
        // hold.
        let mut case = small(40, 70, AttentionMask::Full, 16);
        case.scale = Some(16.0);
        let [query, key, value] = case.normal(setting);
        let whole = |values: &[f64], first: f64, unit: f64| -> Vec<f64> {
            let elements = values.iter().enumerate();
            elements
                .map(|(index, value)| match index % 16 {
                    0 => first,
                    _ => unit * value.round().clamp(-1.0, 1.0),
                })
                .collect()
        };
        let (query, key) = (whole(&query, 240.0, 1.0 / 16.0), whole(&key, 1.0, 1.0));
        let mut tolerance = Tolerance::of(setting.dtype);
        // The first elements' gradients of keys are thousands of times the others'.
        tolerance.is_by_element = true;
        if !is_half(setting.dtype) {
            // The logarithm that the backward pass reads is a rounded number of 3840: a relative error of the weights.
            tolerance.output += 3840.0;
            tolerance.gradient += 3840.0;
            tolerance.norm = [3840.0, 3840.0];
        }
        case.check_within(setting, [query, key, value], tolerance)
    }
}

/// Every block of keys has larger scores than those before: what was summed is scaled each time.
struct TakesGrowingScores;

impl Claim for TakesGrowingScores {
    const NAME: &'static str = "flash_attention_takes_growing_scores";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        for (d_head, growth, mask) in [
            (16, 4.0, AttentionMask::Full),
            (16, 16.0, AttentionMask::Causal),
            (16, 240.0, AttentionMask::Full),
            (64, 16.0, AttentionMask::Full),
            (128, 16.0, AttentionMask::Causal),
        ] {
            let keys = 275;
            let queries = if mask == AttentionMask::Causal { keys } else { 70 };
            let mut case = small(queries, keys, mask, d_head);
            case.sizes.batch = 1;
            case.sizes.heads = 2;
            case.sizes.kv_heads = 1;
            case.scale = Some(16.0);
            let [query, key, value] = case.normal(setting);
            // Whole numbers of a few, and a part that grows by twice `growth` every 32 keys. All numbers and products
            // are exact in every type, and so are the scores in f32: usual tolerances hold. They hold a key's element
            // against the largest of all keys; the 19 keys of the largest part, which nearly all weights are on, are
            // enough for that to be as large as what is added up. Of three keys it would not be: rounding of the
            // logarithm at 4080 is then 1.2 times what is allowed, on every backend that reads it.
            let whole = |values: &[f64], unit: f64, first: &dyn Fn(usize) -> f64| -> Vec<f64> {
                let elements = values.iter().enumerate();
                elements
                    .map(|(index, value)| match index % d_head {
                        0 => first(index / d_head),
                        element if element < 16 => unit * value.round().clamp(-1.0, 1.0),
                        _ => 0.0,
                    })
                    .collect()
            };
            let query = whole(&query, 1.0 / 16.0, &|_| growth);
            let key = whole(&key, 1.0, &|key| (key / 32) as f64 / 8.0);
            let mut tolerance = Tolerance::of(setting.dtype);
            // The first elements' gradients of keys are many times the others'.
            tolerance.is_by_element = true;
            if !is_half(setting.dtype) {
                // As of large scores: the logarithm is a rounded number of this size.
                let most = 16.0 * growth * (keys / 32) as f64 / 8.0;
                tolerance.output += most;
                tolerance.gradient += most;
                tolerance.norm = tolerance.norm.map(|roundings| roundings + most);
            }
            case.check_within(setting, [query, key, value], tolerance)?;
        }
        Ok(())
    }
}

struct TakesNothing;

impl Claim for TakesNothing {
    const NAME: &'static str = "flash_attention_takes_empty_tensors";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        for (batch, queries, keys) in [(0, 5, 5), (2, 0, 4), (2, 4, 0)] {
            let mut case = small(queries, keys, AttentionMask::Full, 16);
            case.sizes.batch = batch;
            let [query_shape, key_shape] = case.shapes();
            let [query, key, value] = case.normal(setting);
            let [query, key, value] = [
                setting.tensor(&query, query_shape).require_grad(),
                setting.tensor(&key, key_shape).require_grad(),
                setting.tensor(&value, key_shape).require_grad(),
            ];
            let output = flash_attention(query.clone(), key.clone(), value.clone(), case.options())?;
            let gradient = setting.tensor(&vec![1.0; query_shape.iter().product()], query_shape);
            let gradients = backward(vec![[output.clone(), gradient]]);
            expect_zeros("output", output, query_shape)?;
            for (leaf, shape) in [(query, query_shape), (key, key_shape), (value, key_shape)] {
                expect_zeros("gradient", leaf.grad(&gradients).expect("tracked"), shape)?;
            }
        }
        Ok(())
    }
}

/// Checks that a tensor has a shape and nothing but zeros. An empty one is not read: reading launches a kernel, which
/// CUDA refuses for no elements.
fn expect_zeros(what: &str, actual: Tensor<4>, shape: [usize; 4]) -> anyhow::Result<()> {
    anyhow::ensure!(
        actual.dims() == shape,
        "{what}: {:?}, expected {shape:?}",
        actual.dims()
    );
    match shape.iter().product() {
        0 => Ok(()),
        count => expect_close(what, actual, &vec![0.0; count], 0.0, 0.0),
    }
}
