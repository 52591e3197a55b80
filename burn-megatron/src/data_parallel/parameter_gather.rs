//! Gathers a bucket's parameters after the update of a sharded optimizer. In host memory those of their gradients' type
//! take the memory of the bucket's gradients.

use std::ops::Range;

use burn::tensor::{DType, Tensor, backend::Backend};
use cubecl_kernels::tape::{float, primitive};

use super::flat::{PendingFlat, main_type, part};
use super::gradient_entry::GradientEntry;
use super::gradients::ReducedGradients;
use crate::collectives::{CollectiveBackend, CollectiveError, PendingTensor, TensorCall};

/// A bucket's parameters on their way from every rank of the data-parallel group to all.
pub(crate) struct PendingParameters<B: Backend> {
    bucket: usize,
    pending: Shards<B>,
}

enum Shards<B: Backend> {
    /// Parameters of the gradients' type take their memory.
    InPlace(PendingFlat<B>),
    Apart(PendingTensor<B>),
}

/// A bucket's parameters, all shards of them.
pub(crate) struct GatheredParameters<B: Backend> {
    bucket: usize,
    values: Values<B>,
}

enum Values<B: Backend> {
    InPlace,
    Apart(Tensor<B, 1>),
}

/// The new values of this rank's piece of a parameter, in the parameters' own type.
pub(crate) type UpdatedPiece<'a, B> = (&'a GradientEntry, Tensor<B, 1>);

impl<B: CollectiveBackend> ReducedGradients<B> {
    /// The number of buckets.
    pub(crate) fn num_buckets(&self) -> usize {
        self.buckets.len()
    }

    /// Starts to gather a bucket's parameters from this rank's new `pieces` of them. The bucket's gradients are lost.
    pub(crate) fn gather_parameters_start(
        &mut self,
        bucket: usize,
        pieces: Vec<UpdatedPiece<'_, B>>,
        dtype: DType,
        device: &B::Device,
    ) -> PendingParameters<B> {
        let group = self.data_group.labelled(&format!("parameters of bucket {bucket}"));
        let pending = if B::HAS_DEVICE_MEMORY || main_type(dtype) != dtype {
            let shard = self.shard_of(bucket, pieces, dtype, device);
            Shards::Apart(B::start(primitive(shard), TensorCall::AllGather, &group))
        } else {
            let mut memory = std::mem::take(&mut self.buckets[bucket]);
            for (entry, values) in pieces {
                memory.write(self.owned_in_bucket(entry).start, values);
            }
            Shards::InPlace(memory.all_gather_start(&group))
        };
        PendingParameters { bucket, pending }
    }

    /// Waits for a bucket's parameters.
    ///
    /// # Errors
    /// When the collective failed: the module is lost.
    pub(crate) fn gather_parameters_finish(
        &mut self,
        pending: PendingParameters<B>,
    ) -> Result<GatheredParameters<B>, CollectiveError> {
        let bucket = pending.bucket;
        let values = match pending.pending {
            Shards::InPlace(pending) => {
                self.buckets[bucket] = pending.wait()?;
                Values::InPlace
            }
            Shards::Apart(pending) => Values::Apart(float(pending.wait()?)),
        };
        Ok(GatheredParameters { bucket, values })
    }

    /// Returns a parameter of a gathered bucket, `[len]`; `None` if it is in another bucket.
    pub(crate) fn gathered(
        &self,
        gathered: &GatheredParameters<B>,
        entry: &GradientEntry,
        device: &B::Device,
    ) -> Option<Tensor<B, 1>> {
        let (slot, range) = (entry.slot, entry.slot.range());
        (slot.bucket == gathered.bucket).then(|| match &gathered.values {
            Values::InPlace => self.buckets[slot.bucket].tensor(range, device),
            Values::Apart(values) if B::HAS_DEVICE_MEMORY => part(values.clone(), range),
            Values::Apart(values) => {
                // In memory of its own: a view would keep that of the whole bucket.
                let data = part(values.clone(), range).into_data();
                let dtype = data.dtype;
                Tensor::from_data(data, (device, dtype))
            }
        })
    }

    /// Returns the range of this rank's shard of a bucket.
    fn own_range(&self, bucket: usize) -> Range<usize> {
        let (length, rank) = (self.shard_length(bucket), self.data_group.rank());
        length * rank..length * (rank + 1)
    }

    /// Returns the range of this rank's piece of a parameter in its bucket.
    fn owned_in_bucket(&self, entry: &GradientEntry) -> Range<usize> {
        let owned = self.owned(entry);
        entry.slot.offset + owned.start..entry.slot.offset + owned.end
    }

    /// This rank's shard of a bucket, with the new values in their places and zeros between.
    fn shard_of(
        &self,
        bucket: usize,
        mut pieces: Vec<UpdatedPiece<'_, B>>,
        dtype: DType,
        device: &B::Device,
    ) -> Tensor<B, 1> {
        let own = self.own_range(bucket);
        pieces.sort_by_key(|(entry, _)| entry.slot.offset);
        let zeros = |length| Tensor::zeros([length], (device, dtype));
        let (mut parts, mut end) = (Vec::with_capacity(2 * pieces.len() + 1), own.start);
        for (entry, values) in pieces {
            let range = self.owned_in_bucket(entry);
            if range.start > end {
                parts.push(zeros(range.start - end));
            }
            parts.push(values);
            end = range.end;
        }
        if own.end > end {
            parts.push(zeros(own.end - end));
        }
        if parts.is_empty() {
            Tensor::empty([0], (device, dtype))
        } else {
            Tensor::cat(parts, 0)
        }
    }
}
