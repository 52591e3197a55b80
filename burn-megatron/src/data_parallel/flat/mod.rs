//! `FlatBuffer`: a bucket's numbers, f32 or f64: in host memory, which the ranks of a node reduce in place, or on a
//! device, where gradients are added up, reduced and used without passing through the host.

mod device;
mod host;

use std::ops::Range;

use burn::grad_clipping::GradientClipping;
use burn::tensor::{DType, Tensor, TensorData, backend::Backend};
use cubecl_kernels::accumulate::GradientPlace;

pub(super) use self::device::part;
use self::device::{DeviceBuffer, PendingDevice};
pub(super) use self::host::{HostBuffer, PendingHost};
use crate::collectives::{CollectiveBackend, CollectiveError, ProcessGroup, ReduceOp};

/// Main gradients: f64 where the parameters are f64, f32 otherwise.
#[derive(Debug)]
pub(super) enum FlatBuffer<B: Backend> {
    Host(HostBuffer),
    Device(DeviceBuffer<B>),
}

/// A collective on a flat buffer that is under way.
pub(super) enum PendingFlat<B: Backend> {
    Host(PendingHost),
    Device(PendingDevice<B>),
}

/// Which parameters received a gradient that is not finite. Made when the first gradient comes.
#[derive(Debug)]
pub(super) enum NonFinite<B: Backend> {
    /// The first that did.
    Host(Option<usize>),
    /// By parameter 0, or 1 if it did; absent while it is written.
    Device(Option<Tensor<B, 1>>),
}

/// A range of elements of a bucket.
#[derive(Clone, Debug)]
pub(super) struct BucketRange {
    pub bucket: usize,
    pub range: Range<usize>,
}

/// The element type that the gradients of parameters of a type are kept in.
pub(super) fn main_type(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F64,
        _ => DType::F32,
    }
}

impl<B: CollectiveBackend> FlatBuffer<B> {
    /// Zeros for the gradients of parameters of `dtype`, for collectives over `group`. Collective over it.
    pub fn allocate(
        len: usize,
        dtype: DType,
        group: &ProcessGroup,
        device: &B::Device,
    ) -> Result<Self, CollectiveError> {
        Ok(if B::HAS_DEVICE_MEMORY {
            FlatBuffer::Device(DeviceBuffer::zeros(len, main_type(dtype), device))
        } else {
            FlatBuffer::Host(HostBuffer::allocate(len, dtype, group)?)
        })
    }

    /// No elements, to stand where a buffer is away.
    pub fn nothing() -> Self {
        FlatBuffer::Host(HostBuffer::zeros(0, DType::F32))
    }

    /// Adds a parameter's gradient, `[len]`, to its place, or writes it there when it is the first; notes it if it is
    /// not finite.
    pub fn accumulate(&mut self, gradient: Tensor<B, 1>, place: GradientPlace, non_finite: &mut NonFinite<B>) {
        match (self, non_finite) {
            (FlatBuffer::Host(buffer), NonFinite::Host(first)) => {
                let gradient = gradient.into_data();
                if first.is_none() && !host::is_finite(&gradient) {
                    *first = Some(place.parameter);
                }
                buffer.accumulate(place.offset, &gradient, place.is_first);
            }
            (FlatBuffer::Device(buffer), NonFinite::Device(flags)) => {
                buffer.accumulate(gradient, place, flags);
            }
            _ => unreachable!("both are where the backend's tensors are"),
        }
    }

    /// Adds a product, a parameter's gradient, to its place, or writes it there when it is the first. On devices only.
    pub fn add_product(&mut self, a: Tensor<B, 2>, b: Tensor<B, 2>, place: GradientPlace) {
        match self {
            FlatBuffer::Device(buffer) => buffer.add_product(a, b, place),
            FlatBuffer::Host(_) => unreachable!("products come to buckets on devices"),
        }
    }

    /// Notes a parameter whose gradient, in this range, is not finite. On devices only.
    pub fn note(&self, range: Range<usize>, parameter: usize, non_finite: &mut NonFinite<B>) {
        match (self, non_finite) {
            (FlatBuffer::Device(buffer), NonFinite::Device(flags)) => buffer.note(range, parameter, flags),
            _ => unreachable!("products come to buckets on devices"),
        }
    }

    /// Sets `len` elements from `offset` on to zero.
    pub fn clear(&mut self, offset: usize, len: usize) {
        match self {
            FlatBuffer::Host(buffer) => buffer.clear(offset, len),
            FlatBuffer::Device(buffer) => buffer.clear(offset, len),
        }
    }

    /// Starts the reduction of the whole buffer over the group that it was allocated for.
    pub fn all_reduce_start(self, op: ReduceOp, group: &ProcessGroup) -> PendingFlat<B> {
        match self {
            FlatBuffer::Host(buffer) => PendingFlat::Host(buffer.all_reduce_start(op, group)),
            FlatBuffer::Device(buffer) => PendingFlat::Device(buffer.all_reduce_start(op, group)),
        }
    }

    /// Starts the reduction of this rank's shard over the group that it was allocated for; the other shards stay.
    pub fn reduce_scatter_start(self, op: ReduceOp, group: &ProcessGroup) -> PendingFlat<B> {
        match self {
            FlatBuffer::Host(buffer) => PendingFlat::Host(buffer.reduce_scatter_start(op, group)),
            FlatBuffer::Device(buffer) => PendingFlat::Device(buffer.reduce_scatter_start(op, group)),
        }
    }

    /// Fetches the shards of the other ranks of the group that it was allocated for.
    pub fn all_gather(self, group: &ProcessGroup) -> Result<Self, CollectiveError> {
        match self {
            FlatBuffer::Host(buffer) => buffer.all_gather_start(group).wait().map(FlatBuffer::Host),
            FlatBuffer::Device(buffer) => buffer.all_gather(group).map(FlatBuffer::Device),
        }
    }

    /// Multiplies the elements of a range. Elements outside it are not complete on this rank, and may be multiplied
    /// too.
    pub fn scale(&mut self, range: Range<usize>, factor: f64) {
        match self {
            FlatBuffer::Host(buffer) => buffer.scale(range, factor),
            FlatBuffer::Device(buffer) => buffer.scale(factor),
        }
    }

    /// Multiplies the elements of a range, and no others.
    pub fn scale_range(&mut self, range: Range<usize>, factor: f64) {
        match self {
            FlatBuffer::Host(buffer) => buffer.scale(range, factor),
            FlatBuffer::Device(buffer) => buffer.change(range, |values| values.mul_scalar(factor)),
        }
    }

    /// Moves the elements of a range into `-threshold..=threshold`, and no others; what is not a number stays.
    pub fn clamp_range(&mut self, range: Range<usize>, threshold: f32) {
        match self {
            FlatBuffer::Host(buffer) => buffer.clamp(range, threshold),
            FlatBuffer::Device(buffer) => {
                buffer.change(range, |values| GradientClipping::Value(threshold).clip_gradient(values))
            }
        }
    }

    /// Returns how many elements of ascending ranges are zero, and how many are infinite or not a number. A device is
    /// read once, from the first to the last.
    pub fn count(&self, ranges: &[Range<usize>]) -> (usize, usize) {
        let counts = |count: &dyn Fn(Range<usize>) -> (usize, usize)| {
            let counts = ranges.iter().cloned().map(count);
            counts.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1))
        };
        match self {
            FlatBuffer::Host(buffer) => counts(&|range| buffer.count(range)),
            FlatBuffer::Device(_) => {
                let start = ranges.first().map_or(0, |first| first.start);
                let data = self.data(start..ranges.last().map_or(0, |last| last.end));
                counts(&|range| host::count_data(&data, range.start - start..range.end - start))
            }
        }
    }

    /// Returns a range as a tensor, `[len]`.
    pub fn tensor(&self, range: Range<usize>, device: &B::Device) -> Tensor<B, 1> {
        match self {
            FlatBuffer::Host(buffer) => {
                let data = buffer.tensor_data(range);
                let dtype = data.dtype;
                Tensor::from_data(data, (device, dtype))
            }
            FlatBuffer::Device(buffer) => buffer.tensor(range),
        }
    }

    /// Returns a range's elements.
    pub fn data(&self, range: Range<usize>) -> TensorData {
        match self {
            FlatBuffer::Host(buffer) => buffer.tensor_data(range),
            FlatBuffer::Device(_) if range.is_empty() => TensorData::new(Vec::<f32>::new(), [0]),
            FlatBuffer::Device(buffer) => buffer.tensor(range).into_data(),
        }
    }

    /// Gives back what only the step that has ended needed.
    pub fn forget_step(&mut self) {
        if let FlatBuffer::Device(buffer) = self {
            buffer.forget_shard();
        }
    }

    /// Returns, for each set of ranges, the sum of squares over all of them.
    pub fn sums_of_squares(buffers: &[Self], sets: &[Vec<BucketRange>]) -> Vec<f64> {
        match buffers.first() {
            Some(FlatBuffer::Device(_)) => device::sums_of_squares(|part| device_of(buffers, part), sets),
            _ => sets
                .iter()
                .map(|set| {
                    let of_range = |part: &BucketRange| match &buffers[part.bucket] {
                        FlatBuffer::Host(buffer) => buffer.sum_of_squares(part.range.clone()),
                        FlatBuffer::Device(_) => unreachable!("all buckets of a module are alike"),
                    };
                    set.iter().map(of_range).sum()
                })
                .collect(),
        }
    }

    /// Sums ranges over a group, all in one call; and whether each is there on some rank of it.
    pub fn sum_over(
        buffers: &mut [Self],
        ranges: &[BucketRange],
        is_there: &[bool],
        dtype: DType,
        group: &ProcessGroup,
    ) -> Result<Vec<bool>, CollectiveError> {
        match buffers.first() {
            Some(FlatBuffer::Device(_)) => {
                let filled = ranges.iter().filter(|part| !part.range.is_empty());
                let tensors = filled.clone().map(|part| device_of(buffers, part)).collect();
                for (part, sum) in filled.zip(device::sum_over(tensors, group)?) {
                    if let FlatBuffer::Device(buffer) = &mut buffers[part.bucket] {
                        buffer.write(part.range.start, sum);
                    }
                }
                let mut counts: Vec<i32> = is_there.iter().map(|&is_there| i32::from(is_there)).collect();
                group.all_reduce(&mut counts, ReduceOp::Sum)?;
                Ok(counts.iter().map(|&count| count > 0).collect())
            }
            _ => {
                let mut host: Vec<&mut HostBuffer> = buffers
                    .iter_mut()
                    .filter_map(|buffer| match buffer {
                        FlatBuffer::Host(buffer) => Some(buffer),
                        FlatBuffer::Device(_) => None,
                    })
                    .collect();
                host::sum_over(&mut host, ranges, is_there, dtype, group)
            }
        }
    }
}

/// A part of buckets on a device.
fn device_of<B: CollectiveBackend>(buffers: &[FlatBuffer<B>], part: &BucketRange) -> Tensor<B, 1> {
    match &buffers[part.bucket] {
        FlatBuffer::Device(buffer) => buffer.tensor(part.range.clone()),
        FlatBuffer::Host(_) => unreachable!("all buckets of a module are alike"),
    }
}

impl<B: CollectiveBackend> PendingFlat<B> {
    /// Waits for the buffer.
    pub fn wait(self) -> Result<FlatBuffer<B>, CollectiveError> {
        match self {
            PendingFlat::Host(pending) => pending.wait().map(FlatBuffer::Host),
            PendingFlat::Device(pending) => pending.wait().map(FlatBuffer::Device),
        }
    }
}

impl<B: CollectiveBackend> NonFinite<B> {
    /// Returns a record in which none of the parameters is marked; `dtype` determines the type that their gradients are
    /// kept in.
    pub fn none(parameters: usize, dtype: DType, device: &B::Device) -> Self {
        if B::HAS_DEVICE_MEMORY {
            NonFinite::Device(Some(Tensor::zeros([parameters.max(1)], (device, main_type(dtype)))))
        } else {
            NonFinite::Host(None)
        }
    }

    /// Returns the first parameter that is marked.
    pub fn first(&self) -> Option<usize> {
        match self {
            NonFinite::Host(first) => *first,
            NonFinite::Device(flags) => {
                let flags = flags.clone()?.into_data();
                flags.iter::<f64>().position(|flag| flag != 0.0)
            }
        }
    }
}

#[cfg(test)]
mod tests;
