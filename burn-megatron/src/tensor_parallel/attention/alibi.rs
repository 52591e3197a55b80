//! [`Alibi`]: scores that fall with the distance between query and key, each head by its own slope. A model's layers
//! share what is on the device: one copy per device, type and backend.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use burn::tensor::{DType, Device, Tensor};

use super::per_device::{PerDevice, upload};
use crate::context::ParallelContext;
use crate::topology::TopologyError;

/// Attention with linear biases, of the heads that this rank has: `slope · (key − query)`, of their positions, is added
/// to the scaled score. Clones, such as those of a model's layers, share what is on the device.
///
/// # Reference
/// Press et al. 2022, arXiv:2108.12409, section 3.
#[derive(Clone)]
pub struct Alibi {
    slopes: Arc<[f64]>,
    /// An [`OnDevice`] each.
    devices: PerDevice,
}

struct OnDevice {
    /// `[heads]`
    slopes: Tensor<1>,
    /// The biases of the longest sequence so far, `[heads, 2 * seq - 1]`.
    biases: Option<Tensor<2>>,
}

impl Alibi {
    /// Returns the biases of this rank's heads of a model of `n_heads`.
    ///
    /// # Errors
    /// When the tensor-parallel size does not divide the heads.
    pub fn new(n_heads: usize, context: &ParallelContext) -> Result<Self, TopologyError> {
        context
            .config()
            .check_tensor_divides("the number of attention heads", n_heads)?;
        let group = context.tensor_group();
        let count = n_heads / group.size();
        let first = group.rank() * count;
        Ok(Self::of_heads(n_heads, first..first + count))
    }

    fn of_heads(n_heads: usize, heads: Range<usize>) -> Self {
        Self {
            slopes: slopes(n_heads)[heads].into(),
            devices: PerDevice::default(),
        }
    }

    /// The number of heads here.
    pub(super) fn num_heads(&self) -> usize {
        self.slopes.len()
    }

    /// `[heads, 2 * seq - 1]`: of each head the bias of each distance, that of a key `seq - 1` before its query first.
    pub(super) fn biases(&self, seq: usize, dtype: DType, device: &Device) -> Tensor<2> {
        let distances = (2 * seq).saturating_sub(1);
        self.on_device(dtype, device, |found: &mut OnDevice, dtype| {
            let biases = match found.biases.take() {
                Some(biases) if biases.dims()[1] >= distances => biases,
                _ => self.upload(seq, dtype, device),
            };
            found.biases = Some(biases.clone());
            let [_, longest] = biases.dims();
            // The distances of a shorter sequence are those in the middle.
            if longest == distances {
                biases
            } else {
                biases.narrow(1, (longest - distances) / 2, distances)
            }
        })
    }

    /// `[heads]`
    pub(super) fn slopes(&self, dtype: DType, device: &Device) -> Tensor<1> {
        self.on_device(dtype, device, |found: &mut OnDevice, _| found.slopes.clone())
    }

    fn upload(&self, seq: usize, dtype: DType, device: &Device) -> Tensor<2> {
        let last = seq as i64 - 1;
        let of_head = |slope: &f64| {
            let slope = *slope;
            (-last..=last).map(move |distance| slope * distance as f64)
        };
        let values: Vec<f64> = self.slopes.iter().flat_map(of_head).collect();
        let shape = [self.slopes.len(), (2 * seq).saturating_sub(1)];
        upload(values, shape, dtype, device)
    }

    fn on_device<R>(&self, dtype: DType, device: &Device, run: impl FnOnce(&mut OnDevice, DType) -> R) -> R {
        let make = |dtype| OnDevice {
            slopes: upload(self.slopes.to_vec(), [self.slopes.len()], dtype, device),
            biases: None,
        };
        self.devices.with::<_, _>(dtype, device, make, run)
    }
}

impl fmt::Debug for Alibi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Alibi").field("slopes", &self.slopes).finish()
    }
}

/// The slopes of a model's heads: of `n` heads, a power of two, `2^(-8 i / n)` for i from 1; of another number those of
/// `n`, the power of two below it, and then every second one of `2 n` heads.
fn slopes(n_heads: usize) -> Vec<f64> {
    let Some(exponent) = n_heads.checked_ilog2() else {
        return Vec::new();
    };
    let whole = 1_usize << exponent;
    let slope = |number: usize, of: usize| (-8.0 * number as f64 / of as f64).exp2();
    let first = (1..=whole).map(|number| slope(number, whole));
    let rest = (0..n_heads - whole).map(|number| slope(2 * number + 1, 2 * whole));
    first.chain(rest).collect()
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    #[test]
    fn slopes_are_those_of_the_paper() {
        // Section 3: for 8 heads 1/2, 1/4, …, 1/256; for 16 the roots between them, too.
        assert_eq!(slopes(8), [1, 2, 3, 4, 5, 6, 7, 8].map(|power| 0.5_f64.powi(power)));
        let sixteen = slopes(16);
        assert!((sixteen[0] - 0.5_f64.sqrt()).abs() < 1e-15 && sixteen[15] == 1.0 / 256.0);
        // Of 6 heads the slopes of 4, and of 8 the first and the third.
        assert_eq!(slopes(6), [0.25, 0.0625, 1.0 / 64.0, 1.0 / 256.0, 0.5, 0.125]);
        assert!(slopes(0).is_empty());
    }

    #[test]
    fn a_rank_has_the_slopes_of_its_heads() {
        let all = Alibi::of_heads(6, 0..6);
        let second = Alibi::of_heads(6, 3..6);
        assert_eq!(all.slopes[3..], second.slopes[..]);
    }

    #[test]
    fn biases_of_a_shorter_sequence_are_in_the_middle_of_a_longer_ones() {
        let (alibi, other) = (Alibi::of_heads(2, 0..2), Alibi::of_heads(2, 0..2));
        let read = |alibi: &Alibi, seq| {
            let biases = alibi.biases(seq, DType::F64, &Device::flex());
            (biases.dims(), biases.into_data().try_to_vec::<f64>().expect("f64"))
        };
        assert_eq!(
            read(&alibi, 3).1[..5],
            [-2.0, -1.0, 0.0, 1.0, 2.0].map(|distance| distance / 16.0)
        );
        read(&alibi, 7);
        assert_eq!(read(&alibi, 3), read(&other, 3));
    }
}
