//! `scaled_masked_softmax` against its host version.

use anyhow::ensure;
use burn::tensor::{Bool, Device, Tensor, TensorData};
use cubecl_kernels::precision::is_half;
use cubecl_kernels::softmax::{MAX_KEYS, SoftmaxMask, host, scaled_masked_softmax};
use libtest_mimic::Trial;

use crate::support::compare::{backward, dot, expect_close, expect_slopes, normal, over};
use crate::support::setting::{Claim, Setting, plain, trials_of};

pub fn trials() -> Vec<Trial> {
    let mut trials = trials_of::<MatchesTheHost>();
    trials.extend(trials_of::<RowsWithoutAKeyAreZero>());
    trials.extend(trials_of::<LongRowsMatchTheHost>());
    trials.extend(trials_of::<NothingIsTheSoftmaxOfNothing>());
    trials.push(plain(
        "host::softmax_gradients_are_slopes_of_the_output",
        gradients_are_slopes,
    ));
    trials
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Masks {
    Nothing,
    Causal,
    /// Drawn at random, for all samples or heads at once, or for each.
    Given {
        batch: usize,
        heads: usize,
    },
}

/// A case: the shape of the scores, the scale, and the mask.
struct Case {
    dims: [usize; 4],
    scale: f64,
    masks: Masks,
    spread: f64,
}

impl Case {
    fn masked(&self) -> Vec<bool> {
        let [batch, heads, queries, keys] = self.dims;
        let coordinates = (0..batch * heads * queries * keys).map(|index| {
            let (row, key) = (index / keys, index % keys);
            (row / queries / heads, row / queries % heads, row % queries, key)
        });
        let is_masked = |(sample, head, query, key)| match self.masks {
            Masks::Nothing => false,
            Masks::Causal => key > query,
            Masks::Given { batch, heads } => drawn([sample % batch, head % heads, query, key]),
        };
        coordinates.map(is_masked).collect()
    }

    /// The mask as the operation takes it.
    fn mask(&self, device: &Device) -> SoftmaxMask {
        let [_, _, queries, keys] = self.dims;
        match self.masks {
            Masks::Nothing => SoftmaxMask::Nothing,
            Masks::Causal => SoftmaxMask::Causal,
            Masks::Given { batch, heads } => {
                // Transposed, and turned back by a view: the mask need not be contiguous.
                let at = |index: usize| {
                    let (row, query) = (index / queries, index % queries);
                    drawn([row / keys / heads, row / keys % heads, query, row % keys])
                };
                let values: Vec<bool> = (0..batch * heads * keys * queries).map(at).collect();
                let data = TensorData::new(values, [batch, heads, keys, queries]);
                let mask = Tensor::<4, Bool>::from_data(data, device);
                SoftmaxMask::Given(mask.swap_dims(2, 3))
            }
        }
    }

    /// Compares output and gradient with the host's.
    fn check(&self, setting: &Setting) -> anyhow::Result<()> {
        let (count, keys) = (self.dims.iter().product(), self.dims[3]);
        let scores: Vec<f64> = normal(count, 1).iter().map(|x| x * self.spread).collect();
        let (scores, gradient) = (setting.rounded(&scores), setting.rounded(&normal(count, 2)));
        let masked = self.masked();
        let is_masked = |row: usize, key: usize| masked[row * keys + key];
        let expected = host::forward(&scores, keys, self.scale, is_masked);

        let leaf = setting.view(&scores, self.dims).require_grad();
        let output = scaled_masked_softmax(leaf.clone(), self.mask(&setting.device), self.scale)?;
        // Of 16-bit numbers, only the result is rounded. In the others, a score's rounding before the exponential
        // counts as often as the score is large, and those of the exponential and of the sum come to it. Results below
        // the normal numbers of f16 are rounded as the smallest of these.
        let magnitude = self.scale * self.spread;
        let roundings = if is_half(setting.dtype) {
            1.0
        } else {
            32.0 + 16.0 * magnitude
        };
        expect_close("output", output.clone(), &expected, roundings, 1e-4)?;
        let zeros = output.clone().into_data();
        for (value, masked) in zeros.iter::<f64>().zip(&masked) {
            ensure!(!masked || value == 0.0, "a masked key has the probability {value}");
        }

        // The probabilities that the backward pass sees are the rounded ones.
        let probabilities: Vec<f64> = zeros.iter::<f64>().collect();
        let expected = host::backward(&probabilities, &gradient, keys, self.scale);
        let gradients = backward(vec![[output, setting.view(&gradient, self.dims)]]);
        let actual = leaf.grad(&gradients).expect("tracked");
        // The sum over the keys has terms of up to 4, and roundings that grow with the root of their number.
        let roundings = if is_half(setting.dtype) { 1.0 } else { 16.0 };
        expect_close("gradient", actual, &expected, roundings, self.scale * 1e-1)
    }
}

/// Whether a drawn mask is true at a place: for some two of five.
fn drawn([sample, head, query, key]: [usize; 4]) -> bool {
    (sample * 7 + head * 3 + query * 11 + key * key * 13) % 5 < 2
}

struct MatchesTheHost;

impl Claim for MatchesTheHost {
    const NAME: &'static str = "softmax_matches_the_host";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let shapes = (1usize..3, 1usize..4, 1usize..14, 1usize..80, 0usize..6);
        let edges = [
            (1, 1, 1, 1, 2),
            (1, 1, 1, 53, 2),
            (1, 1, 53, 1, 2),
            (1, 1, 1, 1, 0),
            (1, 1, 53, 1, 3),
        ];
        over(edges, 9, shapes, |(batch, heads, queries, keys, which)| {
            let masks = match which {
                0 | 1 => Masks::Causal,
                2 => Masks::Nothing,
                3 => Masks::Given { batch, heads },
                4 => Masks::Given { batch, heads: 1 },
                _ => Masks::Given { batch: 1, heads: 1 },
            };
            let queries = if masks == Masks::Causal { keys } else { queries };
            Case {
                dims: [batch, heads, queries, keys],
                scale: 0.3,
                masks,
                spread: 2.0,
            }
            .check(setting)
        })
    }
}

struct LongRowsMatchTheHost;

impl Claim for LongRowsMatchTheHost {
    const NAME: &'static str = "softmax_of_long_rows_and_large_scores_matches_the_host";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let cases = [
            (1, MAX_KEYS, Masks::Nothing, 1.0),
            (2, MAX_KEYS - 3, Masks::Given { batch: 1, heads: 1 }, 1.0),
            (3, 4099, Masks::Nothing, 1.0),
            (260, 260, Masks::Causal, 1.0),
            (5, 33, Masks::Nothing, 8e3),
        ];
        for (queries, keys, masks, spread) in cases {
            let dims = [1, 1, queries, keys];
            let case = Case {
                dims,
                scale: 1.0,
                masks,
                spread,
            };
            case.check(setting)
                .map_err(|error| error.context(format!("{dims:?} {masks:?} {spread}")))?;
        }
        Ok(())
    }
}

struct RowsWithoutAKeyAreZero;

impl Claim for RowsWithoutAKeyAreZero {
    const NAME: &'static str = "softmax_of_rows_without_a_key_is_zero_and_nan_spreads_over_its_row_alone";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        let keys = 37;
        // Row 0 as usual, 1 all −∞, 2 with one −∞, 3 wholly masked, 4 with a NaN.
        let mut scores = setting.rounded(&normal(5 * keys, 3));
        scores[keys..2 * keys].fill(f64::NEG_INFINITY);
        scores[2 * keys + 5] = f64::NEG_INFINITY;
        scores[4 * keys + 8] = f64::NAN;
        let is_masked = |row: usize, _| row == 3;
        let masked: Vec<bool> = (0..5 * keys).map(|index| is_masked(index / keys, index)).collect();
        let mask = Tensor::from_data(TensorData::new(masked, [1, 1, 5, keys]), &setting.device);
        let expected = host::forward(&scores, keys, 1.0, is_masked);
        ensure!(expected[keys..2 * keys].iter().all(|p| *p == 0.0));
        ensure!(expected[3 * keys..4 * keys].iter().all(|p| *p == 0.0));
        ensure!(expected[4 * keys..].iter().all(|p| p.is_nan()));

        let leaf = setting.tensor(&scores, [1, 1, 5, keys]).require_grad();
        let output = scaled_masked_softmax(leaf.clone(), SoftmaxMask::Given(mask), 1.0)?;
        expect_close("output", output.clone(), &expected, 48.0, 1e-4)?;
        let gradient = setting.rounded(&normal(5 * keys, 4));
        let gradients = backward(vec![[output, setting.tensor(&gradient, [1, 1, 5, keys])]]);
        let actual = leaf.grad(&gradients).expect("tracked");
        let expected = host::backward(&expected, &gradient, keys, 1.0);
        // The host's probabilities are not rounded here: those of 16 bits add a rounding to each term of the sum.
        expect_close("gradient", actual, &expected, 48.0, 1e-1)
    }
}

struct NothingIsTheSoftmaxOfNothing;

impl Claim for NothingIsTheSoftmaxOfNothing {
    const NAME: &'static str = "softmax_of_no_elements_has_none";

    fn check(setting: &Setting) -> anyhow::Result<()> {
        for dims in [[0, 2, 3, 3], [2, 2, 0, 0], [1, 1, 3, 0]] {
            let leaf = setting.tensor::<4>(&[], dims).require_grad();
            let output = scaled_masked_softmax(leaf.clone(), SoftmaxMask::Nothing, 1.0)?;
            ensure!(output.dims() == dims, "{:?} for {dims:?}", output.dims());
            let gradients = backward(vec![[output, setting.tensor(&[], dims)]]);
            let gradient = leaf.grad(&gradients).expect("tracked");
            ensure!(gradient.dims() == dims, "{:?} for {dims:?}", gradient.dims());
        }
        Ok(())
    }
}

/// The host's backward pass is that of the host's forward pass.
fn gradients_are_slopes() -> anyhow::Result<()> {
    let (keys, scale) = (5, 0.7);
    let is_masked = |row: usize, key: usize| key > row;
    let (scores, gradient) = (normal(4 * keys, 5), normal(4 * keys, 6));
    let output = host::forward(&scores, keys, scale, is_masked);
    let found = host::backward(&output, &gradient, keys, scale);
    expect_slopes("scores", &found, &scores, |scores| {
        dot(&host::forward(scores, keys, scale, is_masked), &gradient)
    })
}
