//! `Dropout`: which elements fall depends on their place in the model and in the global batch alone.

use std::cell::Cell;

use burn::config::Config;
use burn::module::{Flag, Module, Param};
use burn::tensor::{DType, Device, Tensor, TensorData};

use super::mix::mix;
use super::philox::key_words;
use super::{ColumnShard, RandomStream, RowDropout, StepCoordinates};
use crate::precision::{is_half, narrow, widen};

/// Which dropout of the model this is: every site has its own number, so no two share a mask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DropoutSite {
    /// The global layer number, counted over all pipeline stages.
    pub layer: u32,
    /// The site's number inside its layer.
    pub number: u32,
}

impl DropoutSite {
    /// Returns the site of a global name, such as `encoder.layers.3.pwff.dropout`: 64 bits of its hash, so that sites
    /// of different names have different masks.
    pub fn named(name: &str) -> Self {
        let [layer, number] = RandomStream::new(0, name).key();
        Self { layer, number }
    }
}

/// Configuration of [`Dropout`].
#[derive(Config, Debug)]
pub struct DropoutConfig {
    /// The probability with which an element becomes zero.
    pub probability: f64,
}

/// Sets elements to zero with a probability, and scales the others so that the mean is kept.
#[derive(Module, Debug)]
pub struct Dropout {
    probability: f64,
    layer: u32,
    number: u32,
    training: Param<Flag>,
}

impl DropoutConfig {
    /// Returns the dropout of a site.
    ///
    /// # Panics
    /// When the probability is outside `[0, 1)`.
    pub fn init(&self, site: DropoutSite) -> Dropout {
        assert!(
            (0.0..1.0).contains(&self.probability),
            "the dropout probability must be in [0, 1), got {}",
            self.probability
        );
        Dropout {
            probability: self.probability,
            layer: site.layer,
            number: site.number,
            training: Param::from_bool(true),
        }
    }
}

thread_local! {
    static IS_OFF: Cell<bool> = const { Cell::new(false) };
}

/// Runs work on this thread without dropout: an evaluation by a module with autodiff.
pub(crate) fn without_dropout<R>(work: impl FnOnce() -> R) -> R {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            IS_OFF.set(self.0);
        }
    }
    let _before = Before(IS_OFF.replace(true));
    work()
}

impl Dropout {
    /// Drops elements of an activation; the identity without autodiff, and at probability 0.
    ///
    /// # Shapes
    /// - `input`: `[tokens, d_model]` or `[batch, seq, d_model]`, a row per token of `step.tokens`
    /// - output: as `input`
    ///
    /// # Communication
    /// None: every rank computes its own part of the one global mask.
    ///
    /// # Panics
    /// When the number of rows is not that of `step.tokens`.
    pub fn forward<const D: usize>(&self, input: Tensor<D>, step: &StepCoordinates) -> Tensor<D> {
        let columns = ColumnShard::new(input.dims()[D - 1], 0, 1);
        self.forward_columns(input, step, &columns)
    }

    /// Drops elements of features that a column-parallel layer has shared out: every layout drops the same elements of
    /// the whole activation, which [`forward`](Self::forward) would drop on one rank.
    ///
    /// # Shapes
    /// - `input`: `[tokens, features]` or `[batch, seq, features]`, a row per token of `step.tokens`, its columns those
    ///   of `columns` in the whole activation
    /// - output: as `input`
    ///
    /// # Communication
    /// None.
    ///
    /// # Panics
    /// When the number of rows is not that of `step.tokens`, or the number of columns is not that of `columns`.
    pub fn forward_columns<const D: usize>(
        &self,
        input: Tensor<D>,
        step: &StepCoordinates,
        columns: &ColumnShard,
    ) -> Tensor<D> {
        let Some(dropout) = self.of_rows(step, &input.device()) else {
            return input;
        };
        let shape = input.dims();
        let (rows, width) = (shape[..D - 1].iter().product(), shape[D - 1]);
        assert!(
            columns.len() == width,
            "dropout: the input has {width} columns, its shard {}",
            columns.len()
        );
        check(&dropout, rows, 1, columns.end());
        let mut mask = vec![0.0f32; rows * width];
        for (row, mut mask) in mask.chunks_exact_mut(width.max(1)).enumerate() {
            for range in columns.ranges() {
                let (part, rest) = mask.split_at_mut(range.len());
                dropout.fill_columns(part, [row, 0, range.start], 1.0, 0.0);
                mask = rest;
            }
        }
        apply(mask, input, &dropout)
    }

    /// The probability with which an element becomes zero.
    pub fn probability(&self) -> f64 {
        self.probability
    }

    /// Returns whether elements fall on this device: not without autodiff, nor at probability 0, nor in a module that
    /// is [frozen](Module::freeze) or made by [`valid`](Module::valid), nor while a trainer evaluates sharded
    /// parameters, for which it has autodiff.
    pub fn is_active(&self, device: &Device) -> bool {
        self.probability > 0.0 && self.training.is_enabled() && device.is_autodiff() && !IS_OFF.get()
    }

    /// Drops attention probabilities; the identity without autodiff, and at probability 0.
    ///
    /// # Shapes
    /// - `input`: `[batch, heads, seq_query, seq_key]`, this rank's heads, the first of which is `first_head` of the
    ///   model; `step.tokens` has the `batch * seq_query` queries
    /// - output: as `input`
    ///
    /// # Communication
    /// None.
    ///
    /// # Panics
    /// When the number of queries is not that of `step.tokens`.
    pub fn forward_attention(&self, input: Tensor<4>, step: &StepCoordinates, first_head: usize) -> Tensor<4> {
        let Some(dropout) = self.of_attention(step, first_head, &input.device()) else {
            return input;
        };
        let [batch, heads, queries, keys] = input.dims();
        check(&dropout, batch * queries, heads, keys);
        let mut mask = vec![0.0f32; batch * heads * queries * keys];
        for (row, mask) in mask.chunks_exact_mut(keys).enumerate() {
            let (sample, head, query) = (row / (heads * queries), row / queries % heads, row % queries);
            dropout.fill_row(mask, sample * queries + query, head, 1.0, 0.0);
        }
        apply(mask, input, &dropout)
    }

    /// Returns this dropout at the coordinates of a step, for an operation that drops elements of the step's tokens
    /// itself.
    ///
    /// None without autodiff, and at probability 0: then nothing falls.
    pub fn of_rows(&self, step: &StepCoordinates, device: &Device) -> Option<RowDropout> {
        self.of_attention(step, 0, device)
    }

    /// Returns this dropout at the coordinates of a step, for an operation that drops attention weights itself.
    ///
    /// None without autodiff, and at probability 0: then nothing falls. `first_head` is the number in the model of the
    /// first of this rank's heads.
    pub fn of_attention(&self, step: &StepCoordinates, first_head: usize, device: &Device) -> Option<RowDropout> {
        self.is_active(device).then(|| RowDropout {
            key: site_key(step.seed, self.layer, self.number),
            // Samples and iterations wrap after 2^32, where a mask would come a second time.
            iteration: step.iteration as u32,
            first_head: first_head as u32,
            probability: self.probability,
            places: step.tokens.rows(),
        })
    }
}

fn check(dropout: &RowDropout, rows: usize, heads: usize, columns: usize) {
    if let Err(error) = dropout.check("dropout", rows, heads, columns) {
        panic!("{error}");
    }
}

/// The input times the mask, scaled by `1 / (1 - probability)`.
fn apply<const D: usize>(mask: Vec<f32>, input: Tensor<D>, dropout: &RowDropout) -> Tensor<D> {
    let data = TensorData::new(mask, input.shape());
    let dtype: DType = input.dtype();
    let mask = Tensor::<D>::from_data(data, (&input.device(), dtype));
    if is_half(dtype) {
        // In 16 bits the scale is off by up to an eps, for all elements alike, and the mean with it.
        return narrow(widen(input * mask).mul_scalar(dropout.scale()), dtype);
    }
    input * mask.mul_scalar(dropout.scale())
}

/// The generator's key for a site: a finaliser that spreads every bit of seed, layer and number over the key.
fn site_key(seed: u64, layer: u32, number: u32) -> [u32; 2] {
    let site = u64::from(layer) << 32 | u64::from(number);
    key_words(mix(seed.wrapping_add(mix(site.wrapping_add(0x9E37_79B9_7F4A_7C15)))))
}

#[cfg(test)]
mod tests {
    use super::super::TokenMap;
    use super::*;

    fn dropout(number: u32) -> Dropout {
        DropoutConfig::new(0.3).init(DropoutSite { layer: 2, number })
    }

    fn step(samples: &[u64]) -> StepCoordinates {
        StepCoordinates {
            seed: 5,
            iteration: 3,
            tokens: TokenMap::of_samples(samples, 6),
        }
    }

    fn hidden(samples: &[u64], number: u32) -> Vec<f32> {
        let input = Tensor::<2>::ones([samples.len() * 6, 7], &Device::flex().autodiff());
        let output = dropout(number).forward(input, &step(samples));
        output.into_data().try_to_vec().expect("f32")
    }

    #[test]
    fn a_shard_of_tokens_drops_what_the_whole_drops() {
        let whole = hidden(&[4, 9], 0);
        let step = step(&[4, 9]);
        for shards in [2, 3, 4] {
            let joined: Vec<f32> = (0..shards)
                .flat_map(|index| {
                    let input = Tensor::<2>::ones([12 / shards, 7], &Device::flex().autodiff());
                    let output = dropout(0).forward(input, &step.shard(index, shards));
                    output.into_data().try_to_vec::<f32>().expect("f32")
                })
                .collect();
            assert_eq!(joined, whole);
        }
    }

    #[test]
    fn a_batch_of_samples_drops_what_its_rows_drop() {
        let input = Tensor::<3>::ones([2, 6, 7], &Device::flex().autodiff());
        let output = dropout(0).forward(input, &step(&[4, 9]));
        assert_eq!(output.into_data().try_to_vec::<f32>().expect("f32"), hidden(&[4, 9], 0));
    }

    #[test]
    fn a_shard_of_columns_drops_what_the_whole_drops() {
        let step = step(&[4, 9]);
        let whole = dropout(0).forward(Tensor::<3>::ones([2, 6, 30], &Device::flex().autodiff()), &step);
        for (fused, shards) in [(1, 2), (1, 3), (1, 6), (3, 2), (2, 5)] {
            for index in 0..shards {
                let columns = ColumnShard::of_fused(fused, 30 / fused, index, shards);
                let input = Tensor::<3>::ones([2, 6, columns.len()], &Device::flex().autodiff());
                let parts = columns
                    .ranges()
                    .iter()
                    .map(|range| whole.clone().slice([0..2, 0..6, range.clone()]));
                let expected = Tensor::cat(parts.collect(), 2);
                assert_eq!(
                    dropout(0).forward_columns(input, &step, &columns).into_data(),
                    expected.into_data()
                );
            }
        }
    }

    #[test]
    fn a_sample_drops_the_same_whichever_batch_it_is_in() {
        assert_eq!(hidden(&[4, 9], 0)[42..], hidden(&[9], 0));
    }

    #[test]
    fn heads_of_a_shard_drop_what_they_drop_in_the_whole() {
        let input = |heads| Tensor::<4>::ones([2, heads, 6, 6], &Device::flex().autodiff());
        let whole = dropout(1).forward_attention(input(4), &step(&[1, 2]), 0);
        for first in [0, 2] {
            let part = dropout(1).forward_attention(input(2), &step(&[1, 2]), first);
            let expected = whole.clone().slice([0..2, first..first + 2]);
            assert_eq!(part.into_data(), expected.into_data());
        }
    }

    #[test]
    fn sites_samples_and_iterations_have_their_own_masks() {
        assert_ne!(hidden(&[4], 0), hidden(&[4], 1));
        assert_ne!(hidden(&[4], 0), hidden(&[5], 0));
    }

    #[test]
    fn the_kept_share_and_the_scale_are_right() {
        let values = hidden(&(0..500).collect::<Vec<_>>(), 0);
        let kept = values.iter().filter(|&&v| v != 0.0).count() as f64 / values.len() as f64;
        // Five standard errors of a share of 0.7.
        assert!((kept - 0.7).abs() < 5.0 * (0.21 / values.len() as f64).sqrt(), "{kept}");
        assert!(values.iter().all(|&v| v == 0.0 || v == (1.0f64 / 0.7) as f32));
    }

    #[test]
    fn nothing_falls_without_autodiff_nor_in_validation() {
        let device = Device::flex().autodiff();
        let dropout = dropout(0);
        for (dropout, device) in [
            (dropout.clone(), device.clone().inner()),
            (dropout.valid(), device.clone()),
            (dropout.clone().freeze(), device.clone()),
        ] {
            let input = Tensor::<2>::ones([6, 7], &device);
            let output = dropout.forward(input.clone(), &step(&[1]));
            assert_eq!(output.into_data(), input.into_data());
        }
        assert!(dropout.valid().train().is_active(&device));
    }
}
