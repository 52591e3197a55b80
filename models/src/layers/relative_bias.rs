//! [`RelativeBias`]: T5's learned numbers for each head and range of distances, which attention adds to its scores.

use burn::module::{Module, Param};
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use burn_megatron::context::{ParameterScope, ParameterSpec};
use burn_megatron::parameters::{Distribution, ParameterInit, Placement, ShardIdentity};
use burn_megatron::topology::TopologyError;
use serde::{Deserialize, Serialize};

/// Which distances have a number in common.
///
/// Half of the buckets have one distance each, the others ranges that grow up to `max_distance` with the logarithm;
/// what is farther is in the last one. Where tokens see both directions, each direction has half of the buckets.
///
/// # Reference
/// Raffel et al. 2019, arXiv:1910.10683, section 2.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DistanceBuckets {
    pub count: usize,
    /// From where on distances are in the last bucket.
    pub max_distance: usize,
    /// True if tokens see those after them.
    pub is_bidirectional: bool,
}

/// A number of each bucket for each of this rank's heads.
#[derive(Module, Debug)]
pub struct RelativeBias {
    /// `[buckets, n_heads / tp]`.
    pub weight: Param<Tensor<2>>,
    identity: ShardIdentity,
}

impl DistanceBuckets {
    /// The bucket of a key that is `distance` tokens after its query, or before it if that is negative.
    pub fn bucket(self, distance: i64) -> usize {
        let (mut count, mut first) = (self.count, 0);
        let distance = if self.is_bidirectional {
            count /= 2;
            if distance > 0 {
                first = count;
            }
            distance.unsigned_abs() as usize
        } else {
            distance.min(0).unsigned_abs() as usize
        };
        let num_exact = count / 2;
        if distance < num_exact {
            return first + distance;
        }
        // In f32, as transformers computes it: a distance at the edge of a bucket falls to the same side.
        let growth =
            (distance as f32 / num_exact as f32).ln() / (self.max_distance as f64 / num_exact as f64).ln() as f32;
        let bucket = num_exact + (growth * (count - num_exact) as f32) as usize;
        first + bucket.min(count - 1)
    }

    /// Returns this rank's heads' numbers, as they start.
    ///
    /// # Errors
    /// When the tensor-parallel size does not divide the heads.
    pub fn init(
        self,
        n_heads: usize,
        init: ParameterInit,
        device: &Device,
        scope: &ParameterScope,
    ) -> Result<RelativeBias, TopologyError> {
        scope.check_tensor_divides("the number of attention heads", n_heads)?;
        let group = scope.context().tensor_group();
        let placement = Placement::shard(&[self.count, n_heads], 1, group.rank(), group.size());
        let identity = scope.shard_identity(&[("weight", &placement)]);
        let spec = ParameterSpec {
            placement,
            distribution: Distribution::Sharded,
            init,
        };
        Ok(RelativeBias {
            weight: scope.parameter("weight", [self.count, n_heads / group.size()], &spec, device),
            identity,
        })
    }

    /// Returns what attention adds to the scores of `queries` and `keys` tokens, from the numbers of the buckets.
    ///
    /// # Shapes
    /// - `weight`: `[buckets, heads]`
    /// - output: `[heads, queries + keys - 1]`, the number of key `k` and query `q` at `k - q + queries - 1`
    pub fn table(self, weight: Tensor<2>, queries: usize, keys: usize) -> Tensor<2> {
        let last = queries as i64 - 1;
        let distances = -last..keys as i64;
        let buckets: Vec<i32> = distances.map(|distance| self.bucket(distance) as i32).collect();
        let count = buckets.len();
        let device = weight.device();
        let buckets = Tensor::<1, Int>::from_data(TensorData::new(buckets, [count]), (&device, DType::I32));
        weight.select(0, buckets).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buckets(is_bidirectional: bool) -> DistanceBuckets {
        DistanceBuckets {
            count: 32,
            max_distance: 128,
            is_bidirectional,
        }
    }

    #[test]
    fn buckets_are_those_of_transformers() {
        // `T5Attention._relative_position_bucket` of these distances.
        let distances = [
            -200, -128, -100, -50, -20, -12, -8, -7, -1, 0, 1, 7, 8, 12, 20, 50, 100, 128, 200,
        ];
        let both = [15, 15, 15, 13, 10, 9, 8, 7, 1, 0, 17, 23, 24, 25, 26, 29, 31, 31, 31];
        let before = [31, 31, 30, 24, 17, 12, 8, 7, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for (is_bidirectional, expected) in [(true, both), (false, before)] {
            let found = distances.map(|distance| buckets(is_bidirectional).bucket(distance));
            assert_eq!(found, expected);
        }
    }

    #[test]
    fn the_table_has_each_distance_at_its_place() {
        let device = Default::default();
        let weight = Tensor::<1, Int>::arange(0..64, &device).float().reshape([32, 2]);
        let found = buckets(true)
            .table(weight, 3, 4)
            .into_data()
            .try_to_vec::<f32>()
            .unwrap();
        let of_first_head = [-2, -1, 0, 1, 2, 3].map(|distance| 2.0 * buckets(true).bucket(distance) as f32);
        assert_eq!(found[..6], of_first_head);
        assert_eq!(found[6..], of_first_head.map(|number| number + 1.0));
    }
}
