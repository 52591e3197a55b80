//! Gathers a bucket's parameters after the update of a sharded optimizer. In host memory they take the memory of the
//! bucket's gradients.

use std::ops::Range;

use burn::tensor::{DType, Element, Tensor, TensorData, backend::Backend};
use cubecl_kernels::tape::{float, primitive};
use half::{bf16, f16};

use super::flat::{FlatBuffer, HostBuffer, PendingHost, part};
use super::gradient_entry::GradientEntry;
use super::gradients::ReducedGradients;
use crate::collectives::{CollectiveBackend, CollectiveElement, CollectiveError, Pending, PendingTensor, TensorCall};

/// A bucket's parameters on their way from every rank of the data-parallel group to all.
pub(crate) struct PendingParameters<B: Backend> {
    bucket: usize,
    pending: Shards<B>,
}

enum Shards<B: Backend> {
    /// Parameters of the gradients' type take their memory.
    Main(PendingHost),
    BF16(Pending<Vec<bf16>>),
    F16(Pending<Vec<f16>>),
    Device(PendingTensor<B>),
}

/// A bucket's parameters, all shards of them.
pub(crate) struct GatheredParameters<B: Backend> {
    bucket: usize,
    values: Values<B>,
}

enum Values<B: Backend> {
    /// In the bucket's memory.
    Main,
    BF16(Vec<bf16>),
    F16(Vec<f16>),
    Device(Tensor<B, 1>),
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
        let memory = match std::mem::replace(&mut self.buckets[bucket], FlatBuffer::nothing()) {
            FlatBuffer::Device(buffer) => {
                self.buckets[bucket] = FlatBuffer::Device(buffer);
                let shard = self.device_shard(bucket, pieces, dtype, device);
                let pending = Shards::Device(B::start(primitive(shard), TensorCall::AllGather, &group));
                return PendingParameters { bucket, pending };
            }
            FlatBuffer::Host(memory) => memory,
        };
        let pieces: Vec<(usize, TensorData)> = pieces
            .into_iter()
            .map(|(entry, values)| (self.owned_in_bucket(entry).start, values.into_data()))
            .collect();
        let pending = match dtype {
            DType::BF16 | DType::F16 => {
                self.buckets[bucket] = FlatBuffer::Host(memory);
                let own = self.own_range(bucket);
                match dtype {
                    DType::BF16 => Shards::BF16(group.all_gather_start(host_shard::<bf16>(own, &pieces))),
                    _ => Shards::F16(group.all_gather_start(host_shard::<f16>(own, &pieces))),
                }
            }
            _ => Shards::Main(with_pieces(memory, &pieces).all_gather_start(&group)),
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
            Shards::Main(pending) => {
                self.buckets[bucket] = FlatBuffer::Host(pending.wait()?);
                Values::Main
            }
            Shards::BF16(pending) => Values::BF16(pending.wait()?),
            Shards::F16(pending) => Values::F16(pending.wait()?),
            Shards::Device(pending) => Values::Device(float(pending.wait()?)),
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
        let from_data = |data: TensorData| {
            let dtype = data.dtype;
            Tensor::from_data(data, (device, dtype))
        };
        (slot.bucket == gathered.bucket).then(|| match &gathered.values {
            Values::Main => self.buckets[slot.bucket].tensor(range, device),
            Values::BF16(values) => from_data(TensorData::new(values[range].to_vec(), [slot.len])),
            Values::F16(values) => from_data(TensorData::new(values[range].to_vec(), [slot.len])),
            Values::Device(values) => part(values.clone(), range),
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

    /// This rank's shard of a bucket on a device, with the new values in their places and zeros between.
    fn device_shard(
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

/// A bucket's memory with pieces of parameters at these places in it.
fn with_pieces(mut memory: HostBuffer, pieces: &[(usize, TensorData)]) -> HostBuffer {
    for (start, values) in pieces {
        memory.accumulate(*start, values, true);
    }
    memory
}

/// A shard in host memory, with pieces of parameters at these places of its bucket.
fn host_shard<T: CollectiveElement + Element>(own: Range<usize>, pieces: &[(usize, TensorData)]) -> Vec<T> {
    let mut shard = vec![T::zeroed(); own.len()];
    for (start, values) in pieces {
        let values = values.as_slice::<T>().expect("parameters have one element type");
        shard[start - own.start..][..values.len()].copy_from_slice(values);
    }
    shard
}
