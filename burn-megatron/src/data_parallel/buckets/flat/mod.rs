//! `FlatBuffer`: a bucket's numbers, f32 or f64: in host memory, which the ranks of a node reduce in place, or on a
//! device, where gradients are added up, reduced and used without passing through the host.
//!
//! Which of them it is depends on the device, and is chosen in `allocate`.

mod device;
mod host;

use std::ops::Range;

use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use cubecl_kernels::accumulate::{GradientPlace, GradientSums, VectorSums};
use cubecl_kernels::embedding::TokenRange;

pub(in crate::data_parallel) use self::device::part;
use self::device::{DeviceBuffer, PendingDevice};
use self::host::{HostBuffer, PendingHost};
use super::summing_ranks::SummingRanks;
use crate::collectives::{CollectiveError, ProcessGroup, ReduceOp, has_device_memory};

/// Main gradients: f64 where the parameters are f64, f32 otherwise.
#[derive(Debug)]
pub(in crate::data_parallel) enum FlatBuffer {
    F32(HostBuffer<f32>),
    F64(HostBuffer<f64>),
    Device(DeviceBuffer),
}

/// A collective on a flat buffer that is under way.
pub(in crate::data_parallel) enum PendingFlat {
    F32(PendingHost<f32>),
    F64(PendingHost<f64>),
    Device(PendingDevice),
}

/// Evaluates `$body` with `$inside` bound to what is inside a `$from`; `$to($body)` makes a `$to` of the result.
macro_rules! on_each {
    ($from:ident($inside:ident) = $value:expr => $to:ident($body:expr)) => {
        match $value {
            $from::F32($inside) => $to::F32($body),
            $from::F64($inside) => $to::F64($body),
            $from::Device($inside) => $to::Device($body),
        }
    };
    ($from:ident($inside:ident) = $value:expr => $body:expr) => {
        match $value {
            $from::F32($inside) => $body,
            $from::F64($inside) => $body,
            $from::Device($inside) => $body,
        }
    };
}

/// Which parameters received a gradient that is not finite.
#[derive(Debug)]
pub(in crate::data_parallel) struct NonFinite {
    parameters: usize,
    /// In host memory: the first that did.
    first: Option<usize>,
    /// On a device, once a gradient has come: by parameter 0, or 1 if it did.
    flags: Option<Tensor<1>>,
    /// On a device, of gradients that were added up in their bucket: parameters, and the sum of squares of each.
    squares: Vec<(Vec<usize>, Tensor<1>)>,
}

/// A range of elements of a bucket.
#[derive(Clone, Debug)]
pub(in crate::data_parallel) struct BucketRange {
    pub bucket: usize,
    pub range: Range<usize>,
}

/// The element type that the gradients and main values of parameters of a type are kept in, and the optimizer's state.
pub(crate) fn main_type(dtype: DType) -> DType {
    match dtype {
        DType::F64 => DType::F64,
        _ => DType::F32,
    }
}

/// No elements, to stand where a buffer is away.
impl Default for FlatBuffer {
    fn default() -> Self {
        FlatBuffer::F32(HostBuffer::default())
    }
}

impl FlatBuffer {
    /// Zeros for the gradients of parameters of `dtype`, for collectives over `group`. Collective over it.
    pub fn allocate(len: usize, dtype: DType, group: &ProcessGroup, device: &Device) -> Result<Self, CollectiveError> {
        Ok(match main_type(dtype) {
            main if has_device_memory(device) => FlatBuffer::Device(DeviceBuffer::zeros(len, main, device)),
            DType::F64 => FlatBuffer::F64(HostBuffer::allocate(len, group)?),
            _ => FlatBuffer::F32(HostBuffer::allocate(len, group)?),
        })
    }

    /// Zeros for the gradients of parameters of `dtype`, in memory of this rank's own.
    pub fn zeros(len: usize, dtype: DType, device: &Device) -> Self {
        match main_type(dtype) {
            main if has_device_memory(device) => FlatBuffer::Device(DeviceBuffer::zeros(len, main, device)),
            DType::F64 => FlatBuffer::F64(HostBuffer::zeros(len)),
            _ => FlatBuffer::F32(HostBuffer::zeros(len)),
        }
    }

    /// Returns this rank's shard alone, of a buffer of its own that was reduced to it.
    pub fn into_shard(self) -> Self {
        match self {
            FlatBuffer::Device(buffer) => FlatBuffer::Device(buffer.into_shard()),
            // A reduction leaves nothing else.
            host => host,
        }
    }

    /// Adds the elements of another buffer, of the same shard.
    pub fn add(&mut self, other: Self) {
        match (self, other) {
            (FlatBuffer::F32(sums), FlatBuffer::F32(values)) => sums.add(values),
            (FlatBuffer::F64(sums), FlatBuffer::F64(values)) => sums.add(values),
            (FlatBuffer::Device(sums), FlatBuffer::Device(values)) => sums.add(values),
            _ => unreachable!("{ALIKE}"),
        }
    }

    /// Adds a parameter's gradient, `[len]`, to its place, or writes it there when it is the first; notes it if it is
    /// not finite.
    pub fn accumulate(&mut self, gradient: Tensor<1>, place: GradientPlace, non_finite: &mut NonFinite) {
        on_each!(FlatBuffer(buffer) = self => buffer.accumulate(gradient, place, non_finite))
    }

    /// Adds a product, a parameter's gradient, to its place, or writes it there when it is the first. On devices only.
    pub fn add_product(&mut self, a: Tensor<2>, b: Tensor<2>, place: GradientPlace) {
        match self {
            FlatBuffer::Device(buffer) => buffer.add_product(a, b, place),
            _ => unreachable!("products come to buckets on devices"),
        }
    }

    /// Lends the sums to a kernel that adds the gradients of vectors to their places. On devices only.
    pub fn lend(
        &mut self,
        places: Vec<GradientPlace>,
        add: &mut dyn FnMut(VectorSums) -> GradientSums,
        non_finite: &mut NonFinite,
    ) {
        match self {
            FlatBuffer::Device(buffer) => buffer.lend(places, add, non_finite),
            _ => unreachable!("buckets on devices are lent"),
        }
    }

    /// Adds the gradients of embeddings to that of their table. On devices only.
    pub fn add_rows(&mut self, offset: usize, tokens: Tensor<1, Int>, gradient: Tensor<2>, range: TokenRange) {
        match self {
            FlatBuffer::Device(buffer) => buffer.add_rows(offset, tokens, gradient, range),
            _ => unreachable!("rows come to buckets on devices"),
        }
    }

    /// Notes which of these parameters have a gradient, in their ranges, that is not finite, or too large for its
    /// squares to be added up. On devices only.
    pub fn note(&self, parameters: Vec<usize>, ranges: Vec<Range<usize>>, non_finite: &mut NonFinite) {
        match self {
            FlatBuffer::Device(buffer) => non_finite.squares.push((parameters, buffer.squares(ranges))),
            _ => unreachable!("products come to buckets on devices"),
        }
    }

    /// Writes elements from `offset` on.
    pub fn write(&mut self, offset: usize, values: Tensor<1>) {
        on_each!(FlatBuffer(buffer) = self => buffer.write(offset, values))
    }

    /// Sets `len` elements from `offset` on to zero.
    pub fn clear(&mut self, offset: usize, len: usize) {
        on_each!(FlatBuffer(buffer) = self => buffer.clear(offset, len))
    }

    /// Starts the reduction of the whole buffer over the group that it was allocated for.
    pub fn all_reduce_start(self, op: ReduceOp, group: &ProcessGroup) -> PendingFlat {
        on_each!(FlatBuffer(buffer) = self => PendingFlat(buffer.all_reduce_start(op, group)))
    }

    /// Starts the reduction of this rank's shard over the group that it was allocated for; the other shards stay.
    pub fn reduce_scatter_start(self, op: ReduceOp, group: &ProcessGroup) -> PendingFlat {
        on_each!(FlatBuffer(buffer) = self => PendingFlat(buffer.reduce_scatter_start(op, group)))
    }

    /// Starts to fetch the shards of the other ranks of the group that it was allocated for.
    pub fn all_gather_start(self, group: &ProcessGroup) -> PendingFlat {
        on_each!(FlatBuffer(buffer) = self => PendingFlat(buffer.all_gather_start(group)))
    }

    /// Multiplies the elements of a range. Elements outside it are not complete on this rank, and may be multiplied
    /// too.
    pub fn scale(&mut self, range: Range<usize>, factor: f64) {
        match self {
            FlatBuffer::Device(buffer) => buffer.scale(factor),
            _ => self.scale_range(range, factor),
        }
    }

    /// Multiplies the elements of a range, and no others.
    pub fn scale_range(&mut self, range: Range<usize>, factor: f64) {
        on_each!(FlatBuffer(buffer) = self => buffer.scale_range(range, factor))
    }

    /// Moves the elements of a range into `-threshold..=threshold`, and no others; what is not a number stays.
    pub fn clamp_range(&mut self, range: Range<usize>, threshold: f32) {
        on_each!(FlatBuffer(buffer) = self => buffer.clamp_range(range, threshold))
    }

    /// Returns how many elements of ascending ranges are zero, and how many are infinite or not a number. A device is
    /// read once, from the first to the last.
    pub fn count(&self, ranges: &[Range<usize>]) -> (usize, usize) {
        on_each!(FlatBuffer(buffer) = self => buffer.count(ranges))
    }

    /// Returns a range as a tensor, `[len]`.
    pub fn tensor(&self, range: Range<usize>, device: &Device) -> Tensor<1> {
        on_each!(FlatBuffer(buffer) = self => buffer.tensor(range, device))
    }

    /// Returns a range's elements.
    pub fn data(&self, range: Range<usize>) -> TensorData {
        on_each!(FlatBuffer(buffer) = self => buffer.data(range))
    }

    /// Gives back what only the step that has ended needed.
    pub fn forget_step(&mut self) {
        if let FlatBuffer::Device(buffer) = self {
            buffer.forget_shard();
        }
    }

    /// Returns, for each set of ranges, the sum of squares over all of them.
    pub fn sums_of_squares(buffers: &[Self], sets: &[Vec<BucketRange>]) -> Vec<f64> {
        Self::sums_of_squares_and(buffers, sets, Vec::new()).0
    }

    /// Returns the sums of squares over sets of ranges, and the elements of other tensors one after the other. A device
    /// is read once.
    pub fn sums_of_squares_and(
        buffers: &[Self],
        sets: &[Vec<BucketRange>],
        others: Vec<Tensor<1>>,
    ) -> (Vec<f64>, Vec<f64>) {
        if let Some(FlatBuffer::Device(_)) = buffers.first() {
            let buffers = buffers.iter().map(|buffer| match buffer {
                FlatBuffer::Device(buffer) => buffer,
                _ => unreachable!("{ALIKE}"),
            });
            return device::squares_of_sets(buffers, sets, others);
        }
        let of_range = |part: &BucketRange| match &buffers[part.bucket] {
            FlatBuffer::F32(buffer) => buffer.sum_of_squares(part.range.clone()),
            FlatBuffer::F64(buffer) => buffer.sum_of_squares(part.range.clone()),
            FlatBuffer::Device(_) => unreachable!("{ALIKE}"),
        };
        let squares = sets.iter().map(|set| set.iter().map(of_range).sum());
        (squares.collect(), device::read_together(others))
    }

    /// Sums ranges over ranks, all in one call; and whether each is there on some of them.
    pub fn sum_over(
        buffers: &mut [Self],
        ranges: &[BucketRange],
        is_there: &[bool],
        ranks: SummingRanks<'_>,
    ) -> Result<Vec<bool>, CollectiveError> {
        match buffers.first() {
            Some(FlatBuffer::F64(_)) => {
                let buffers = buffers.iter_mut().map(|buffer| match buffer {
                    FlatBuffer::F64(buffer) => buffer,
                    _ => unreachable!("{ALIKE}"),
                });
                host::sum_over(&mut buffers.collect::<Vec<_>>(), ranges, is_there, ranks)
            }
            Some(FlatBuffer::Device(_)) => {
                let mut buffers: Vec<&mut DeviceBuffer> = buffers.iter_mut().map(device_of).collect();
                device::sum_over(&mut buffers, ranges, ranks)?;
                let start = ranks.part() * is_there.len();
                let mut counts = vec![0_i32; ranks.num_parts() * is_there.len()];
                for (count, &is_there) in counts[start..].iter_mut().zip(is_there) {
                    *count = i32::from(is_there);
                }
                ranks.group.all_reduce(&mut counts, ReduceOp::Sum)?;
                let mine = &counts[start..start + is_there.len()];
                Ok(mine.iter().map(|&count| count > 0).collect())
            }
            _ => {
                let buffers = buffers.iter_mut().map(|buffer| match buffer {
                    FlatBuffer::F32(buffer) => buffer,
                    _ => unreachable!("{ALIKE}"),
                });
                host::sum_over(&mut buffers.collect::<Vec<_>>(), ranges, is_there, ranks)
            }
        }
    }
}

const ALIKE: &str = "all buckets of a module are alike";

fn device_of(buffer: &mut FlatBuffer) -> &mut DeviceBuffer {
    match buffer {
        FlatBuffer::Device(buffer) => buffer,
        _ => unreachable!("{ALIKE}"),
    }
}

impl PendingFlat {
    /// Waits for the buffer.
    pub fn wait(self) -> Result<FlatBuffer, CollectiveError> {
        Ok(on_each!(PendingFlat(pending) = self => FlatBuffer(pending.wait()?)))
    }
}

impl NonFinite {
    /// Returns a record in which none of the parameters is marked.
    pub fn none(parameters: usize) -> Self {
        Self {
            parameters,
            first: None,
            flags: None,
            squares: Vec::new(),
        }
    }

    /// Returns the first parameter that is marked.
    pub fn first(&self) -> Option<usize> {
        let flagged = self.flags.iter().filter_map(|flags| {
            let flags = flags.to_data();
            flags.iter::<f64>().position(|flag| flag != 0.0)
        });
        let squared = self.squares.iter().flat_map(|(parameters, squares)| {
            let squares: Vec<f64> = squares.to_data().iter::<f64>().collect();
            let marked = parameters.iter().zip(squares).filter(|(_, sum)| !sum.is_finite());
            marked.map(|(&parameter, _)| parameter)
        });
        self.first.into_iter().chain(flagged).chain(squared).min()
    }
}

#[cfg(test)]
mod tests;
