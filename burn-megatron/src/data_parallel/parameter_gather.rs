//! Gathers a bucket's parameters behind the update of a sharded optimizer, in the memory of the bucket's gradients.
//!
//! Called by [`ShardedOptimizer`](crate::optimizer::ShardedOptimizer).

use burn::tensor::{DType, TensorData};
use half::{bf16, f16};

use super::flat::{FlatBuffer, PendingFlat};
use super::gradients::{GradientEntry, ReducedGradients};
use crate::collectives::{CollectiveElement, CollectiveError, Pending};

/// A bucket's parameters on their way from every rank of the data-parallel group to all.
pub(crate) struct PendingParameters {
    bucket: usize,
    pending: Shards,
}

enum Shards {
    /// Parameters of the gradients' type take their memory.
    Main(PendingFlat),
    BF16(Pending<Vec<bf16>>),
    F16(Pending<Vec<f16>>),
}

/// A bucket's parameters, all shards of them.
pub(crate) struct GatheredParameters {
    bucket: usize,
    values: Values,
}

enum Values {
    /// In the bucket's memory.
    Main,
    BF16(Vec<bf16>),
    F16(Vec<f16>),
}

impl ReducedGradients {
    /// The number of buckets.
    pub(crate) fn num_buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Starts to gather a bucket's parameters: `owned` are the new values of this rank's pieces, each with its parameter,
    /// in the parameters' own type. The bucket's gradients are lost.
    pub(crate) fn gather_parameters_start(
        &mut self,
        bucket: usize,
        owned: &[(&GradientEntry, TensorData)],
        dtype: DType,
    ) -> PendingParameters {
        let group = self.data_group.labelled(&format!("parameters of bucket {bucket}"));
        let pending = match dtype {
            DType::BF16 => Shards::BF16(group.all_gather_start(self.shard_of::<bf16>(bucket, owned))),
            DType::F16 => Shards::F16(group.all_gather_start(self.shard_of::<f16>(bucket, owned))),
            _ => {
                let mut memory = std::mem::replace(&mut self.buckets[bucket], FlatBuffer::zeros(0, dtype));
                for (entry, values) in owned {
                    memory.accumulate(entry.slot.offset + self.owned(entry).start, values, true);
                }
                Shards::Main(memory.all_gather_start(&group))
            }
        };
        PendingParameters { bucket, pending }
    }

    /// Waits for a bucket's parameters.
    ///
    /// # Errors
    /// When the collective failed: the module is lost.
    pub(crate) fn gather_parameters_finish(
        &mut self,
        pending: PendingParameters,
    ) -> Result<GatheredParameters, CollectiveError> {
        let bucket = pending.bucket;
        let values = match pending.pending {
            Shards::Main(pending) => {
                self.buckets[bucket] = pending.wait()?;
                Values::Main
            }
            Shards::BF16(pending) => Values::BF16(pending.wait()?),
            Shards::F16(pending) => Values::F16(pending.wait()?),
        };
        Ok(GatheredParameters { bucket, values })
    }

    /// Returns a parameter of a gathered bucket, `[len]`; none where it lies in another bucket.
    pub(crate) fn gathered(&self, gathered: &GatheredParameters, entry: &GradientEntry) -> Option<TensorData> {
        let slot = entry.slot;
        let range = slot.offset..slot.offset + slot.len;
        (slot.bucket == gathered.bucket).then(|| match &gathered.values {
            Values::Main => self.buckets[slot.bucket].tensor_data(slot.offset, vec![slot.len]),
            Values::BF16(values) => TensorData::new(values[range].to_vec(), [slot.len]),
            Values::F16(values) => TensorData::new(values[range].to_vec(), [slot.len]),
        })
    }

    /// This rank's shard of a bucket, with the new values in their places.
    fn shard_of<T: CollectiveElement + burn::tensor::Element>(
        &self,
        bucket: usize,
        owned: &[(&GradientEntry, TensorData)],
    ) -> Vec<T> {
        let length = self.shard_length(bucket);
        let start = length * self.data_group.rank();
        let mut shard = vec![T::zeroed(); length];
        for (entry, values) in owned {
            let values = values.as_slice::<T>().expect("parameters have one element type");
            let at = entry.slot.offset + self.owned(entry).start;
            if !values.is_empty() {
                shard[at - start..][..values.len()].copy_from_slice(values);
            }
        }
        shard
    }
}
