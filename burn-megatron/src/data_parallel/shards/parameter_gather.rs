//! Gathers a bucket's parameters after the update of a sharded optimizer. In host memory those of their gradients' type
//! take the memory of the bucket's gradients, which comes back with them.

use std::ops::Range;

use burn::tensor::{DType, Device, Tensor};

use crate::collectives::{self, CollectiveError, PendingTensor, ProcessGroup, TensorCall, has_device_memory};
use crate::data_parallel::buckets::flat::{FlatBuffer, PendingFlat, main_type, part};
use crate::data_parallel::buckets::gradient_entry::GradientEntry;
use crate::data_parallel::gradients::reduced::ReducedGradients;

/// A bucket's parameters on their way from every rank of the data-parallel group to all.
pub(crate) struct PendingParameters {
    pub(in crate::data_parallel) bucket: usize,
    pub(in crate::data_parallel) group: ProcessGroup,
    pending: Shards,
}

enum Shards {
    /// Parameters of the gradients' type take their memory.
    InPlace(PendingFlat),
    Apart(PendingTensor),
}

/// A bucket's parameters, all shards of them.
pub(in crate::data_parallel) enum GatheredParameters {
    InPlace(FlatBuffer),
    Apart(Tensor<1>),
}

/// The new values of this rank's piece of a parameter, in the parameters' own type.
pub(crate) type UpdatedPiece<'a> = (&'a GradientEntry, Tensor<1>);

impl ReducedGradients {
    /// The number of buckets.
    pub(crate) fn num_buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Starts to gather a bucket's parameters from this rank's new `pieces` of them. The bucket's gradients are lost.
    pub(crate) fn gather_parameters_start(
        &mut self,
        bucket: usize,
        pieces: Vec<UpdatedPiece<'_>>,
        dtype: DType,
        device: &Device,
    ) -> PendingParameters {
        if has_device_memory(device) || main_type(dtype) != dtype || self.sharding.shards_gradients() {
            return self.gather_shard_start(bucket, self.shard_of(bucket, pieces, dtype, device));
        }
        let mut memory = self.lend(bucket);
        for (entry, values) in pieces {
            memory.write(self.owned_in_bucket(entry).start, values);
        }
        let group = self.gather_group(bucket);
        let pending = Shards::InPlace(memory.all_gather_start(&group));
        PendingParameters { bucket, group, pending }
    }

    /// Starts to gather a bucket's parameters from this rank's shard of them.
    pub(crate) fn gather_shard_start(&self, bucket: usize, shard: Tensor<1>) -> PendingParameters {
        let group = self.gather_group(bucket);
        let pending = Shards::Apart(collectives::start(shard, TensorCall::AllGather, &group));
        PendingParameters { bucket, group, pending }
    }

    fn gather_group(&self, bucket: usize) -> ProcessGroup {
        self.shard_group.labelled(&format!("parameters of bucket {bucket}"))
    }

    /// Returns what of a bucket's gradients is complete on this rank: its shard, where they are sharded, or the whole.
    pub(crate) fn own_part(&self, bucket: usize, device: &Device) -> Tensor<1> {
        self.buckets[bucket].tensor(self.complete_range(bucket), device)
    }

    /// The number of its elements.
    pub(crate) fn own_length(&self, bucket: usize) -> usize {
        self.complete_range(bucket).len()
    }

    fn complete_range(&self, bucket: usize) -> Range<usize> {
        let (own, length) = (self.own_shards(), self.shard_length(bucket));
        length * own.start..length * own.end
    }

    /// Returns a parameter of a whole bucket, `[len]`.
    pub(crate) fn of_bucket(&self, values: &Tensor<1>, entry: &GradientEntry) -> Tensor<1> {
        part(values.clone(), entry.slot.range())
    }

    /// Returns this rank's piece of a parameter, of its part of the bucket.
    pub(crate) fn of_own_part(&self, values: &Tensor<1>, entry: &GradientEntry) -> Tensor<1> {
        let (owned, first) = (self.owned_in_bucket(entry), self.complete_range(entry.bucket()).start);
        part(values.clone(), owned.start - first..owned.end - first)
    }

    /// Returns the range of this rank's shard of a bucket.
    fn own_range(&self, bucket: usize) -> Range<usize> {
        let (length, rank) = (self.shard_length(bucket), self.shard_group.rank());
        length * rank..length * (rank + 1)
    }

    /// Returns the range of this rank's piece of a parameter in its bucket.
    fn owned_in_bucket(&self, entry: &GradientEntry) -> Range<usize> {
        let owned = self.owned(entry);
        entry.slot.offset + owned.start..entry.slot.offset + owned.end
    }

    /// This rank's shard of a bucket, with the new values in their places and zeros between.
    fn shard_of(&self, bucket: usize, pieces: Vec<UpdatedPiece<'_>>, dtype: DType, device: &Device) -> Tensor<1> {
        let own = self.own_range(bucket);
        let place = |entry| self.owned_in_bucket(entry).start - own.start;
        let values = pieces.into_iter().map(|(entry, values)| (place(entry), values));
        laid_out(values.collect(), own.len(), dtype, device)
    }
}

impl PendingParameters {
    /// Waits for the bucket.
    ///
    /// # Errors
    /// When the collective failed: the module is lost.
    pub(in crate::data_parallel) fn wait(self) -> Result<GatheredParameters, CollectiveError> {
        Ok(match self.pending {
            Shards::InPlace(pending) => GatheredParameters::InPlace(pending.wait()?),
            Shards::Apart(pending) => GatheredParameters::Apart(pending.tensor()?),
        })
    }
}

impl GatheredParameters {
    /// Returns one of the bucket's parameters, `[len]`.
    pub(in crate::data_parallel) fn of(&self, entry: &GradientEntry, device: &Device) -> Tensor<1> {
        let range = entry.slot.range();
        match self {
            GatheredParameters::InPlace(buffer) => buffer.tensor(range, device),
            GatheredParameters::Apart(values) if has_device_memory(device) => part(values.clone(), range),
            GatheredParameters::Apart(values) => {
                // In memory of its own: a view would keep that of the whole bucket.
                let data = part(values.clone(), range).into_data();
                let dtype = data.dtype();
                Tensor::from_data(data, (device, dtype))
            }
        }
    }

    /// Returns the memory of the bucket's gradients, if the parameters took it.
    pub(in crate::data_parallel) fn into_memory(self) -> Option<FlatBuffer> {
        match self {
            GatheredParameters::InPlace(buffer) => Some(buffer),
            GatheredParameters::Apart(_) => None,
        }
    }
}

/// Returns `length` elements: values from the places that they come with on, and zeros between.
pub(crate) fn laid_out(mut values: Vec<(usize, Tensor<1>)>, length: usize, dtype: DType, device: &Device) -> Tensor<1> {
    values.sort_by_key(|(start, _)| *start);
    let zeros = |length| Tensor::zeros([length], (device, dtype));
    let (mut parts, mut end) = (Vec::with_capacity(2 * values.len() + 1), 0);
    for (start, values) in values {
        if start > end {
            parts.push(zeros(start - end));
        }
        end = start + values.dims()[0];
        parts.push(values);
    }
    if length > end {
        parts.push(zeros(length - end));
    }
    if parts.is_empty() {
        Tensor::empty([0], (device, dtype))
    } else {
        Tensor::cat(parts, 0)
    }
}
