//! `HostBuffer`: a bucket's numbers, f32 or f64, in host memory: the whole bucket, which the ranks of a node may reduce
//! in place, or this rank's shard of it.

use std::ops::{AddAssign, Deref, DerefMut, MulAssign, Range};

use burn::tensor::{DType, Device, Element, Tensor, TensorData};
use cubecl_kernels::accumulate::GradientPlace;
use half::{bf16, f16};
use rayon::prelude::*;

use super::{BucketRange, NonFinite};
use crate::collectives::{CollectiveElement, CollectiveError, Pending, ProcessGroup, ReduceOp, SharedBuffer};
use crate::data_parallel::buckets::summing_ranks::SummingRanks;

/// Elements that one thread goes through at a time; sums are over parts of this many, whatever the number of threads.
const PART: usize = 1 << 16;

/// The type of main gradients.
pub(in crate::data_parallel) trait MainElement:
    CollectiveElement + Element + Sync + PartialOrd + AddAssign + MulAssign + From<f32> + Into<f64>
{
    /// Rounds a number.
    fn rounded(value: f64) -> Self;

    /// Adds a gradient to the first elements, or writes it there when it is the first.
    fn add(sums: &mut [Self], gradient: &TensorData, is_first: bool);
}

impl MainElement for f32 {
    fn rounded(value: f64) -> Self {
        value as f32
    }

    fn add(sums: &mut [Self], gradient: &TensorData, is_first: bool) {
        match gradient.dtype() {
            DType::F32 => add(sums, slice::<f32>(gradient), is_first, |g| g),
            DType::BF16 => add(sums, slice::<bf16>(gradient), is_first, bf16::to_f32),
            DType::F16 => add(sums, slice::<f16>(gradient), is_first, f16::to_f32),
            other => panic!("a gradient of {other:?} for a parameter whose gradients are kept in f32"),
        }
    }
}

impl MainElement for f64 {
    fn rounded(value: f64) -> Self {
        value
    }

    fn add(sums: &mut [Self], gradient: &TensorData, is_first: bool) {
        match gradient.dtype() {
            DType::F64 => add(sums, slice::<f64>(gradient), is_first, |g| g),
            other => panic!("a gradient of {other:?} for an f64 parameter"),
        }
    }
}

/// A bucket in host memory, or a shard of it.
#[derive(Debug)]
pub(in crate::data_parallel) struct HostBuffer<T: MainElement> {
    memory: Memory<T>,
    /// Where in the bucket the first element is.
    start: usize,
}

#[derive(Debug)]
enum Memory<T: MainElement> {
    /// Made by all ranks of the group together.
    Shared(SharedBuffer<T>),
    Own(Vec<T>),
}

/// A collective on a bucket that is under way.
pub(in crate::data_parallel) enum PendingHost<T: MainElement> {
    /// The whole bucket, where it is.
    Shared(Pending<SharedBuffer<T>>),
    /// Numbers from `start` on in the bucket.
    Own { pending: Pending<Vec<T>>, start: usize },
}

impl<T: MainElement> Default for HostBuffer<T> {
    fn default() -> Self {
        Self {
            memory: Memory::Own(Vec::new()),
            start: 0,
        }
    }
}

impl<T: MainElement> Deref for Memory<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Memory::Shared(values) => values,
            Memory::Own(values) => values,
        }
    }
}

impl<T: MainElement> DerefMut for Memory<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Memory::Shared(values) => values,
            Memory::Own(values) => values,
        }
    }
}

impl<T: MainElement> HostBuffer<T> {
    /// Zeros for collectives over `group`. Collective over it.
    pub fn allocate(len: usize, group: &ProcessGroup) -> Result<Self, CollectiveError> {
        let memory = Memory::Shared(group.allocate(len)?);
        Ok(Self { memory, start: 0 })
    }

    /// Zeros in memory of this rank's own.
    pub fn zeros(len: usize) -> Self {
        let memory = Memory::Own(vec![T::zeroed(); len]);
        Self { memory, start: 0 }
    }

    /// The elements of a range of the bucket.
    fn part(&self, range: Range<usize>) -> &[T] {
        &self.memory[self.in_memory(range)]
    }

    /// Returns the elements of a range of the bucket, to be changed.
    fn part_mut(&mut self, range: Range<usize>) -> &mut [T] {
        let range = self.in_memory(range);
        &mut self.memory[range]
    }

    /// Returns where a range of the bucket is. One of no elements may be in another shard.
    fn in_memory(&self, range: Range<usize>) -> Range<usize> {
        if range.is_empty() {
            0..0
        } else {
            range.start - self.start..range.end - self.start
        }
    }

    /// Adds a gradient, and notes it if it is not finite.
    pub fn accumulate(&mut self, gradient: Tensor<1>, place: GradientPlace, non_finite: &mut NonFinite) {
        let gradient = gradient.into_data();
        if non_finite.first.is_none() && !is_finite(&gradient) {
            non_finite.first = Some(place.parameter);
        }
        T::add(&mut self.memory[place.offset - self.start..], &gradient, place.is_first);
    }

    /// Adds the elements of another buffer of the same range of the bucket.
    pub fn add(&mut self, other: Self) {
        debug_assert_eq!((self.start, self.memory.len()), (other.start, other.memory.len()));
        add(&mut self.memory, &other.memory, false, |value| value);
    }

    pub fn write(&mut self, offset: usize, values: Tensor<1>) {
        T::add(&mut self.memory[offset - self.start..], &values.into_data(), true);
    }

    pub fn clear(&mut self, offset: usize, len: usize) {
        self.part_mut(offset..offset + len).fill(T::zeroed());
    }

    pub fn all_reduce_start(self, op: ReduceOp, group: &ProcessGroup) -> PendingHost<T> {
        match self.memory {
            Memory::Shared(values) => PendingHost::Shared(group.all_reduce_shared_start(values, op)),
            Memory::Own(values) => PendingHost::Own {
                pending: group.all_reduce_start(values, op),
                start: self.start,
            },
        }
    }

    /// Of memory that is shared the whole stays, of other memory this rank's shard.
    pub fn reduce_scatter_start(self, op: ReduceOp, group: &ProcessGroup) -> PendingHost<T> {
        match self.memory {
            Memory::Shared(values) => PendingHost::Shared(group.reduce_scatter_shared_start(values, op)),
            Memory::Own(values) => PendingHost::Own {
                start: values.len() / group.size() * group.rank(),
                pending: group.reduce_scatter_start(values, op),
            },
        }
    }

    pub fn all_gather_start(self, group: &ProcessGroup) -> PendingHost<T> {
        match self.memory {
            Memory::Shared(values) => PendingHost::Shared(group.all_gather_shared_start(values)),
            Memory::Own(shard) => PendingHost::Own {
                pending: group.all_gather_start(shard),
                start: 0,
            },
        }
    }

    pub fn scale_range(&mut self, range: Range<usize>, factor: f64) {
        let factor = T::rounded(factor);
        let parts = self.part_mut(range).par_chunks_mut(PART);
        parts.for_each(|part| part.iter_mut().for_each(|value| *value *= factor));
    }

    pub fn clamp_range(&mut self, range: Range<usize>, threshold: f32) {
        let [low, high] = [-threshold, threshold].map(T::from);
        let clamped = |value: T| match value {
            value if value < low => low,
            value if value > high => high,
            value => value,
        };
        let parts = self.part_mut(range).par_chunks_mut(PART);
        parts.for_each(|part| part.iter_mut().for_each(|value| *value = clamped(*value)));
    }

    /// The sum of squares of a range, in f64; it does not depend on the number of threads.
    pub fn sum_of_squares(&self, range: Range<usize>) -> f64 {
        let parts: Vec<f64> = self.part(range).par_chunks(PART).map(sum_of_squares).collect();
        parts.iter().sum()
    }

    pub fn count(&self, ranges: &[Range<usize>]) -> (usize, usize) {
        let in_memory = ranges.iter().map(|range| self.in_memory(range.clone()));
        count(&self.memory, in_memory)
    }

    pub fn tensor(&self, range: Range<usize>, device: &Device) -> Tensor<1> {
        Tensor::from_data(self.data(range), (device, T::dtype()))
    }

    pub fn data(&self, range: Range<usize>) -> TensorData {
        let shape = [range.len()];
        TensorData::new(self.part(range).to_vec(), shape)
    }
}

impl<T: MainElement> PendingHost<T> {
    pub fn wait(self) -> Result<HostBuffer<T>, CollectiveError> {
        Ok(match self {
            PendingHost::Shared(pending) => HostBuffer {
                memory: Memory::Shared(pending.wait()?),
                start: 0,
            },
            PendingHost::Own { pending, start } => HostBuffer {
                memory: Memory::Own(pending.wait()?),
                start,
            },
        })
    }
}

/// Sums ranges of buffers over a group, all in one call; and whether each is there on some rank of it.
pub(super) fn sum_over<T: MainElement>(
    buffers: &mut [&mut HostBuffer<T>],
    ranges: &[BucketRange],
    is_there: &[bool],
    ranks: SummingRanks<'_>,
) -> Result<Vec<bool>, CollectiveError> {
    // Each range, and whether it is there.
    let length: usize = ranges.iter().map(|part| part.range.len() + 1).sum();
    let start = ranks.part() * length;
    let mut together: Vec<T> = Vec::with_capacity(ranks.num_parts() * length);
    together.resize(start, T::zeroed());
    for (BucketRange { bucket, range }, &is_there) in ranges.iter().zip(is_there) {
        together.extend_from_slice(buffers[*bucket].part(range.clone()));
        together.push(T::from(f32::from(u8::from(is_there))));
    }
    together.resize(ranks.num_parts() * length, T::zeroed());
    ranks.group.all_reduce(&mut together, ReduceOp::Sum)?;
    let mut rest = &together[start..start + length];
    let mut is_somewhere = Vec::with_capacity(ranges.len());
    for BucketRange { bucket, range } in ranges {
        let (sums, after) = rest.split_at(range.len());
        buffers[*bucket].part_mut(range.clone()).copy_from_slice(sums);
        is_somewhere.push(after[0] > T::zeroed());
        rest = &after[1..];
    }
    Ok(is_somewhere)
}

/// Returns whether every element is finite: no exponent is all ones.
pub(super) fn is_finite(gradient: &TensorData) -> bool {
    /// The largest magnitude as bits, of which a comparison is one instruction for many elements.
    fn largest<T: Element, U: Copy + Default + Ord>(gradient: &TensorData, magnitude: impl Fn(T) -> U) -> U {
        slice::<T>(gradient)
            .iter()
            .fold(U::default(), |max, &value| max.max(magnitude(value)))
    }
    match gradient.dtype() {
        DType::F64 => largest(gradient, |v: f64| v.to_bits() & (u64::MAX >> 1)) < f64::INFINITY.to_bits(),
        DType::F32 => largest(gradient, |v: f32| v.to_bits() & (u32::MAX >> 1)) < f32::INFINITY.to_bits(),
        DType::F16 => largest(gradient, |v: f16| v.to_bits() & (u16::MAX >> 1)) < f16::INFINITY.to_bits(),
        DType::BF16 => largest(gradient, |v: bf16| v.to_bits() & (u16::MAX >> 1)) < bf16::INFINITY.to_bits(),
        _ => true,
    }
}

/// Returns how many elements of ranges are zero, and how many are infinite or not a number.
pub(super) fn count_data(data: &TensorData, ranges: impl Iterator<Item = Range<usize>>) -> (usize, usize) {
    match data.dtype() {
        DType::F64 => count(slice::<f64>(data), ranges),
        _ => count(slice::<f32>(data), ranges),
    }
}

fn count<T: MainElement>(values: &[T], ranges: impl Iterator<Item = Range<usize>>) -> (usize, usize) {
    let sum = |a: (usize, usize), b: (usize, usize)| (a.0 + b.0, a.1 + b.1);
    let of_element = |&value: &T| {
        let value: f64 = value.into();
        (usize::from(value == 0.0), usize::from(!value.is_finite()))
    };
    let of_part = |part: &[T]| part.iter().map(of_element).fold((0, 0), sum);
    let of_range = |range: Range<usize>| values[range].par_chunks(PART).map(of_part).reduce(|| (0, 0), sum);
    ranges.map(of_range).fold((0, 0), sum)
}

fn slice<T: Element>(data: &TensorData) -> &[T] {
    data.as_slice().expect("matched on the element type")
}

fn add<T, S>(sum: &mut [S], gradient: &[T], is_first: bool, widen: impl Fn(T) -> S + Sync)
where
    T: Copy + Sync,
    S: Copy + Send + AddAssign,
{
    let parts = sum[..gradient.len()]
        .par_chunks_mut(PART)
        .zip(gradient.par_chunks(PART));
    parts.for_each(|(sum, gradient)| {
        let pairs = sum.iter_mut().zip(gradient);
        if is_first {
            pairs.for_each(|(s, &g)| *s = widen(g))
        } else {
            pairs.for_each(|(s, &g)| *s += widen(g))
        }
    });
}

/// In lanes, so that the additions need not wait for each other.
fn sum_of_squares<T: Copy + Into<f64>>(values: &[T]) -> f64 {
    let mut sums = [0.0f64; 8];
    let chunks = values.chunks_exact(8);
    let rest: f64 = chunks.remainder().iter().map(|&v| v.into().powi(2)).sum();
    for chunk in chunks {
        for (sum, &value) in sums.iter_mut().zip(chunk) {
            let value: f64 = value.into();
            *sum += value * value;
        }
    }
    sums.iter().sum::<f64>() + rest
}
