//! `DeviceBuffer`: a bucket's numbers on a device.

use std::ops::Range;

use burn::grad_clipping::GradientClipping;
use burn::tensor::{DType, Device, Int, Tensor, TensorData};
use cubecl_kernels::accumulate::{GradientPlace, GradientSums, VectorSums, accumulate};
use cubecl_kernels::embedding::{TokenRange, add_rows};
use cubecl_kernels::l2_norm::{SquaredPart, sums_of_squares};
use cubecl_kernels::linear::add_product;
use cubecl_kernels::ranges::{BufferRange, RangeTarget, clear_ranges, gather_ranges, scatter_ranges};

use super::host::count_data;
use super::{BucketRange, NonFinite};
use crate::collectives::{self, CollectiveError, PendingTensor, ProcessGroup, ReduceOp, TensorCall};
use crate::data_parallel::buckets::summing_ranks::SummingRanks;

/// A bucket in a device's memory.
#[derive(Debug)]
pub(in crate::data_parallel) struct DeviceBuffer {
    /// Absent while it is written.
    sums: Option<Tensor<1>>,
    /// The reduced shard of this rank, after its offset in the bucket.
    shard: Option<(usize, Tensor<1>)>,
}

/// A reduction of a bucket that is under way.
pub(in crate::data_parallel) struct PendingDevice {
    pending: PendingTensor,
    /// Where a reduction of one shard begins, and the bucket itself.
    shard_of: Option<(usize, Tensor<1>)>,
}

impl DeviceBuffer {
    pub fn zeros(len: usize, dtype: DType, device: &Device) -> Self {
        // A launch for no elements is one too many.
        let sums = match len {
            0 => Tensor::empty([0], (device, dtype)),
            _ => Tensor::zeros([len], (device, dtype)),
        };
        Self {
            sums: Some(sums),
            shard: None,
        }
    }

    /// Returns the reduced shard without the bucket.
    pub fn into_shard(self) -> Self {
        Self { sums: None, ..self }
    }

    /// Adds the elements of another buffer's shard.
    pub fn add(&mut self, other: Self) {
        let (start, sums) = self.shard.take().expect(REDUCED);
        let (_, values) = other.shard.expect(REDUCED);
        self.shard = Some((start, sums + values));
    }

    /// Adds a gradient, and notes it if it is not finite.
    pub fn accumulate(&mut self, gradient: Tensor<1>, place: GradientPlace, non_finite: &mut NonFinite) {
        self.replace(|sums| added(sums, gradient, place), non_finite);
    }

    /// Lends the sums to a kernel that adds gradients to their places, and notes which are not finite.
    pub fn lend(
        &mut self,
        places: Vec<GradientPlace>,
        add: &mut dyn FnMut(VectorSums) -> GradientSums,
        non_finite: &mut NonFinite,
    ) {
        self.replace(|sums| add(VectorSums { sums, places }), non_finite);
    }

    fn replace(&mut self, add: impl FnOnce(GradientSums) -> GradientSums, non_finite: &mut NonFinite) {
        self.shard = None;
        let flags = taken_flags(non_finite, self.sums());
        let added = add(GradientSums {
            sums: taken(&mut self.sums),
            non_finite: flags,
        });
        self.sums = Some(added.sums);
        non_finite.flags = Some(added.non_finite);
    }

    /// Adds a product.
    pub fn add_product(&mut self, a: Tensor<2>, b: Tensor<2>, place: GradientPlace) {
        self.shard = None;
        self.sums = Some(add_product(taken(&mut self.sums), a, b, place));
    }

    /// Adds the gradients of embeddings.
    pub fn add_rows(&mut self, offset: usize, tokens: Tensor<1, Int>, gradient: Tensor<2>, range: TokenRange) {
        self.shard = None;
        let sums = add_rows(taken(&mut self.sums), offset, tokens, gradient, range);
        self.sums = Some(sums.unwrap_or_else(|error| panic!("{error}")));
    }

    /// Returns the sum of squares of each of some ranges of the whole bucket.
    pub fn squares(&self, ranges: Vec<Range<usize>>) -> Tensor<1> {
        let count = ranges.len();
        let of_range = |(sum, range)| SquaredPart { buffer: 0, range, sum };
        let parts: Vec<SquaredPart> = ranges.into_iter().enumerate().map(of_range).collect();
        let sums = sums_of_squares(vec![self.sums().clone()], &parts, count);
        sums.unwrap_or_else(|error| panic!("{error}")).expect("of one buffer")
    }

    pub fn clear(&mut self, offset: usize, len: usize) {
        self.shard = None;
        let cleared = clear_ranges(taken(&mut self.sums), std::slice::from_ref(&(offset..offset + len)));
        self.sums = Some(cleared.unwrap_or_else(|error| panic!("{error}")));
    }

    /// Gives the reduced shard back.
    pub fn forget_shard(&mut self) {
        self.shard = None;
    }

    /// Writes elements of the shard, or of the whole where there is none.
    pub fn write(&mut self, offset: usize, values: Tensor<1>) {
        let first = offset - self.shard.as_ref().map_or(0, |(start, _)| *start);
        let range = first..first + values.dims()[0];
        self.scatter(values, &[RangeTarget { range, start: 0 }]);
    }

    /// Writes values to ranges of the shard, or of the whole where there is none.
    fn scatter(&mut self, values: Tensor<1>, targets: &[RangeTarget]) {
        let write = |buffer| scatter_ranges(buffer, values, targets).unwrap_or_else(|error| panic!("{error}"));
        match self.shard.take() {
            Some((start, shard)) => self.shard = Some((start, write(shard))),
            None => self.sums = Some(write(taken(&mut self.sums))),
        }
    }

    pub fn all_reduce_start(self, op: ReduceOp, group: &ProcessGroup) -> PendingDevice {
        let sums = self.sums.expect(THERE);
        PendingDevice {
            pending: collectives::start(sums, TensorCall::AllReduce(op), group),
            shard_of: None,
        }
    }

    pub fn reduce_scatter_start(self, op: ReduceOp, group: &ProcessGroup) -> PendingDevice {
        let sums = self.sums.expect(THERE);
        let start = sums.dims()[0] / group.size() * group.rank();
        PendingDevice {
            pending: collectives::start(sums.clone(), TensorCall::ReduceScatter(op), group),
            shard_of: Some((start, sums)),
        }
    }

    pub fn all_gather_start(self, group: &ProcessGroup) -> PendingDevice {
        let (_, shard) = self.shard.expect("only a shard is here");
        PendingDevice {
            pending: collectives::start(shard, TensorCall::AllGather, group),
            shard_of: None,
        }
    }

    pub fn scale(&mut self, factor: f64) {
        match self.shard.take() {
            Some((start, shard)) => self.shard = Some((start, shard.mul_scalar(factor))),
            None => self.sums = Some(taken(&mut self.sums).mul_scalar(factor)),
        }
    }

    pub fn scale_range(&mut self, range: Range<usize>, factor: f64) {
        self.change(range, |values| values.mul_scalar(factor));
    }

    pub fn clamp_range(&mut self, range: Range<usize>, threshold: f32) {
        self.change(range, |values| GradientClipping::Value(threshold).clip_gradient(values));
    }

    /// Replaces the elements of a range by what `change` makes of them.
    fn change(&mut self, range: Range<usize>, change: impl FnOnce(Tensor<1>) -> Tensor<1>) {
        if !range.is_empty() {
            let changed = change(self.part(range.clone()));
            self.write(range.start, changed);
        }
    }

    pub fn count(&self, ranges: &[Range<usize>]) -> (usize, usize) {
        let start = ranges.first().map_or(0, |first| first.start);
        let data = self.data(start..ranges.last().map_or(0, |last| last.end));
        let from_start = ranges.iter().map(|range| range.start - start..range.end - start);
        count_data(&data, from_start)
    }

    pub fn tensor(&self, range: Range<usize>, _device: &Device) -> Tensor<1> {
        self.part(range)
    }

    pub fn data(&self, range: Range<usize>) -> TensorData {
        match range.len() {
            0 => TensorData::new(Vec::<f32>::new(), [0]),
            _ => self.part(range).into_data(),
        }
    }

    /// Returns what is complete of the bucket here, and its first element: the shard, or the whole where there is none.
    fn current(&self) -> (usize, Tensor<1>) {
        match &self.shard {
            Some((start, shard)) => (*start, shard.clone()),
            None => (0, self.sums().clone()),
        }
    }

    /// The elements of a range.
    pub fn part(&self, range: Range<usize>) -> Tensor<1> {
        match &self.shard {
            Some((start, shard)) if range.start >= *start && range.end <= start + shard.dims()[0] => {
                part(shard.clone(), range.start - start..range.end - start)
            }
            _ => part(self.sums().clone(), range),
        }
    }

    fn sums(&self) -> &Tensor<1> {
        self.sums.as_ref().expect(THERE)
    }
}

const REDUCED: &str = "it was reduced to a shard";
const THERE: &str = "absent only while it is written";

fn added(sums: GradientSums, values: Tensor<1>, place: GradientPlace) -> GradientSums {
    accumulate(sums, values, place).unwrap_or_else(|error| panic!("{error}"))
}

fn taken(tensor: &mut Option<Tensor<1>>) -> Tensor<1> {
    tensor.take().expect(THERE)
}

/// Takes the flags, zeros at first, to be written.
fn taken_flags(non_finite: &mut NonFinite, sums: &Tensor<1>) -> Tensor<1> {
    let zeros = || Tensor::zeros([non_finite.parameters], (&sums.device(), sums.dtype()));
    non_finite.flags.take().unwrap_or_else(zeros)
}

/// Returns the elements of a range; the same memory, where the device's alignment allows it.
pub(in crate::data_parallel) fn part(whole: Tensor<1>, range: Range<usize>) -> Tensor<1> {
    match range.len() {
        0 => Tensor::empty([0], (&whole.device(), whole.dtype())),
        length if length == whole.dims()[0] => whole,
        _ => whole.slice(range),
    }
}

impl PendingDevice {
    pub fn wait(self) -> Result<DeviceBuffer, CollectiveError> {
        let result = self.pending.tensor()?;
        Ok(match self.shard_of {
            None => DeviceBuffer {
                sums: Some(result),
                shard: None,
            },
            Some((start, sums)) => DeviceBuffer {
                sums: Some(sums),
                shard: Some((start, result)),
            },
        })
    }
}

/// Returns, for each set of ranges, the sum of squares over all of them, and the elements of other tensors one after
/// the other. The device is waited for once.
pub(super) fn squares_of_sets<'a>(
    buffers: impl Iterator<Item = &'a DeviceBuffer>,
    sets: &[Vec<BucketRange>],
    others: Vec<Tensor<1>>,
) -> (Vec<f64>, Vec<f64>) {
    let (starts, buffers): (Vec<usize>, Vec<Tensor<1>>) = buffers.map(DeviceBuffer::current).unzip();
    let part_of = |sum, part: &BucketRange| {
        let start = starts[part.bucket];
        let range = part.range.start - start..part.range.end - start;
        let buffer = part.bucket;
        SquaredPart { buffer, range, sum }
    };
    let of_set = |(sum, set): (usize, &Vec<BucketRange>)| -> Vec<SquaredPart> {
        let filled = set.iter().filter(|part| !part.range.is_empty());
        filled.map(|part| part_of(sum, part)).collect()
    };
    let parts: Vec<SquaredPart> = sets.iter().enumerate().flat_map(of_set).collect();
    let sums = sums_of_squares(buffers, &parts, sets.len()).unwrap_or_else(|error| panic!("{error}"));
    match sums {
        Some(sums) => {
            let mut squares = read_together([vec![sums], others].concat());
            let others = squares.split_off(sets.len());
            (squares, others)
        }
        None => (vec![0.0; sets.len()], read_together(others)),
    }
}

/// Reads tensors, one after the other: all at once, where they have one type.
pub(super) fn read_together(tensors: Vec<Tensor<1>>) -> Vec<f64> {
    let read = |tensor: Tensor<1>| tensor.into_data().iter::<f64>().collect::<Vec<f64>>();
    let (dtypes, ranges): (Vec<DType>, Vec<BufferRange>) = (tensors.iter().enumerate())
        .map(|(buffer, tensor)| {
            (
                tensor.dtype(),
                BufferRange {
                    buffer,
                    range: 0..tensor.dims()[0],
                },
            )
        })
        .unzip();
    if tensors.len() < 2 || dtypes.windows(2).any(|pair| pair[0] != pair[1]) {
        return tensors.into_iter().flat_map(read).collect();
    }
    let together = gather_ranges(tensors, &ranges).unwrap_or_else(|error| panic!("{error}"));
    together.map_or_else(Vec::new, read)
}

/// Sums ranges of buckets over a group, all in one call.
pub(super) fn sum_over(
    buffers: &mut [&mut DeviceBuffer],
    ranges: &[BucketRange],
    ranks: SummingRanks<'_>,
) -> Result<(), CollectiveError> {
    let (starts, tensors): (Vec<usize>, Vec<Tensor<1>>) = buffers.iter().map(|buffer| buffer.current()).unzip();
    let filled: Vec<BufferRange> = (ranges.iter().filter(|part| !part.range.is_empty()))
        .map(|part| BufferRange {
            buffer: part.bucket,
            range: part.range.start - starts[part.bucket]..part.range.end - starts[part.bucket],
        })
        .collect();
    if filled.is_empty() {
        return Ok(());
    }
    let together = gather_ranges(tensors, &filled).unwrap_or_else(|error| panic!("{error}"));
    let together = ranks.among_all(together.expect("there is a bucket"));
    let sums = collectives::run(together, TensorCall::AllReduce(ReduceOp::Sum), ranks.group)?;
    let sums = ranks.of_all(sums);
    let (mut targets, mut start) = (vec![Vec::new(); buffers.len()], 0);
    for BufferRange { buffer, range } in filled {
        let end = start + range.len();
        targets[buffer].push(RangeTarget { range, start });
        start = end;
    }
    for (buffer, targets) in buffers.iter_mut().zip(targets) {
        if !targets.is_empty() {
            buffer.scatter(sums.clone(), &targets);
        }
    }
    Ok(())
}
