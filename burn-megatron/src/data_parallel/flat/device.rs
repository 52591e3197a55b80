//! `DeviceBuffer`: a bucket's numbers on a device.

use std::ops::Range;

use burn::grad_clipping::GradientClipping;
use burn::tensor::{DType, Int, Tensor, TensorData, backend::Backend};
use cubecl_kernels::accumulate::{GradientPlace, GradientSums, accumulate};
use cubecl_kernels::embedding::{TokenRange, add_rows};
use cubecl_kernels::l2_norm::sum_of_squares;
use cubecl_kernels::tape::{float, primitive};

use super::host::count_data;
use super::{BucketRange, NonFinite};
use crate::collectives::{CollectiveBackend, CollectiveError, PendingTensor, ProcessGroup, ReduceOp, TensorCall};

/// A bucket in a device's memory.
#[derive(Debug)]
pub(in crate::data_parallel) struct DeviceBuffer<B: Backend> {
    /// Absent while it is written.
    sums: Option<Tensor<B, 1>>,
    /// The reduced shard of this rank, after its offset in the bucket.
    shard: Option<(usize, Tensor<B, 1>)>,
}

/// A reduction of a bucket that is under way.
pub(in crate::data_parallel) struct PendingDevice<B: Backend> {
    pending: PendingTensor<B>,
    /// Where a reduction of one shard begins, and the bucket itself.
    shard_of: Option<(usize, Tensor<B, 1>)>,
}

impl<B: CollectiveBackend> DeviceBuffer<B> {
    pub fn zeros(len: usize, dtype: DType, device: &B::Device) -> Self {
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

    /// Adds a gradient, and notes it if it is not finite.
    pub fn accumulate(&mut self, gradient: Tensor<B, 1>, place: GradientPlace, non_finite: &mut NonFinite<B>) {
        self.shard = None;
        let flags = taken_flags(non_finite, self.sums());
        let sums = GradientSums {
            sums: taken(&mut self.sums),
            non_finite: flags,
        };
        let added = added(sums, gradient, place);
        self.sums = Some(added.sums);
        non_finite.flags = Some(added.non_finite);
    }

    /// Adds a product.
    pub fn add_product(&mut self, a: Tensor<B, 2>, b: Tensor<B, 2>, place: GradientPlace) {
        self.shard = None;
        self.sums = Some(B::add_product(taken(&mut self.sums), a, b, place));
    }

    /// Adds the gradients of embeddings.
    pub fn add_rows(&mut self, offset: usize, tokens: Tensor<B, 1, Int>, gradient: Tensor<B, 2>, range: TokenRange) {
        self.shard = None;
        let sums = add_rows(taken(&mut self.sums), offset, tokens, gradient, range);
        self.sums = Some(sums.unwrap_or_else(|error| panic!("{error}")));
    }

    /// Notes a parameter if a range is not finite, or too large for its squares to be added up.
    pub fn note(&self, range: Range<usize>, parameter: usize, non_finite: &mut NonFinite<B>) {
        let sum = sum_of_squares(vec![self.part(range)]).unwrap_or_else(|error| panic!("{error}"));
        let flags = taken_flags(non_finite, self.sums());
        let sums = GradientSums {
            // Asked for, and not looked at.
            sums: Tensor::zeros([1], (&flags.device(), flags.dtype())),
            non_finite: flags,
        };
        let place = GradientPlace {
            offset: 0,
            parameter,
            is_first: true,
        };
        non_finite.flags = Some(added(sums, sum.expect("of one buffer"), place).non_finite);
    }

    pub fn clear(&mut self, offset: usize, len: usize) {
        self.shard = None;
        if len == 0 {
            return;
        }
        let sums = self.sums();
        let zeros = Tensor::zeros([len], (&sums.device(), sums.dtype()));
        self.write(offset, zeros);
    }

    /// Gives the reduced shard back.
    pub fn forget_shard(&mut self) {
        self.shard = None;
    }

    /// Writes elements of the shard, or of the whole where there is none.
    pub fn write(&mut self, offset: usize, values: Tensor<B, 1>) {
        match self.shard.take() {
            Some((start, shard)) => self.shard = Some((start, written(shard, offset - start, values))),
            None => self.sums = Some(written(taken(&mut self.sums), offset, values)),
        }
    }

    pub fn all_reduce_start(self, op: ReduceOp, group: &ProcessGroup) -> PendingDevice<B> {
        let sums = self.sums.expect(THERE);
        PendingDevice {
            pending: B::start(primitive(sums), TensorCall::AllReduce(op), group),
            shard_of: None,
        }
    }

    pub fn reduce_scatter_start(self, op: ReduceOp, group: &ProcessGroup) -> PendingDevice<B> {
        let sums = self.sums.expect(THERE);
        let start = sums.dims()[0] / group.size() * group.rank();
        PendingDevice {
            pending: B::start(primitive(sums.clone()), TensorCall::ReduceScatter(op), group),
            shard_of: Some((start, sums)),
        }
    }

    pub fn all_gather_start(self, group: &ProcessGroup) -> PendingDevice<B> {
        let (_, shard) = self.shard.expect("only a shard is here");
        PendingDevice {
            pending: B::start(primitive(shard), TensorCall::AllGather, group),
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
    fn change(&mut self, range: Range<usize>, change: impl FnOnce(Tensor<B, 1>) -> Tensor<B, 1>) {
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

    pub fn tensor(&self, range: Range<usize>, _device: &B::Device) -> Tensor<B, 1> {
        self.part(range)
    }

    pub fn data(&self, range: Range<usize>) -> TensorData {
        match range.len() {
            0 => TensorData::new(Vec::<f32>::new(), [0]),
            _ => self.part(range).into_data(),
        }
    }

    /// The elements of a range.
    pub fn part(&self, range: Range<usize>) -> Tensor<B, 1> {
        match &self.shard {
            Some((start, shard)) if range.start >= *start && range.end <= start + shard.dims()[0] => {
                part(shard.clone(), range.start - start..range.end - start)
            }
            _ => part(self.sums().clone(), range),
        }
    }

    fn sums(&self) -> &Tensor<B, 1> {
        self.sums.as_ref().expect(THERE)
    }
}

const THERE: &str = "absent only while it is written";

fn added<B: CollectiveBackend>(sums: GradientSums<B>, values: Tensor<B, 1>, place: GradientPlace) -> GradientSums<B> {
    accumulate(sums, values, place).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns a tensor with other values from `offset` on.
fn written<B: CollectiveBackend>(whole: Tensor<B, 1>, offset: usize, values: Tensor<B, 1>) -> Tensor<B, 1> {
    let sums = GradientSums {
        // Asked for, and not looked at.
        non_finite: Tensor::zeros([1], (&whole.device(), whole.dtype())),
        sums: whole,
    };
    let place = GradientPlace {
        offset,
        parameter: 0,
        is_first: true,
    };
    added(sums, values, place).sums
}

fn taken<B: Backend>(tensor: &mut Option<Tensor<B, 1>>) -> Tensor<B, 1> {
    tensor.take().expect(THERE)
}

/// Takes the flags, zeros at first, to be written.
fn taken_flags<B: Backend>(non_finite: &mut NonFinite<B>, sums: &Tensor<B, 1>) -> Tensor<B, 1> {
    let zeros = || Tensor::zeros([non_finite.parameters], (&sums.device(), sums.dtype()));
    non_finite.flags.take().unwrap_or_else(zeros)
}

/// Returns the elements of a range; the same memory, where the device's alignment allows it.
pub(in crate::data_parallel) fn part<B: Backend>(whole: Tensor<B, 1>, range: Range<usize>) -> Tensor<B, 1> {
    match range.len() {
        0 => Tensor::empty([0], (&whole.device(), whole.dtype())),
        length if length == whole.dims()[0] => whole,
        _ => whole.slice(range),
    }
}

impl<B: CollectiveBackend> PendingDevice<B> {
    pub fn wait(self) -> Result<DeviceBuffer<B>, CollectiveError> {
        let result = float(self.pending.wait()?);
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

/// Returns, for each set of ranges, the sum of squares over all of them. The device is waited for once.
pub(super) fn sums_of_squares<B: CollectiveBackend>(
    tensor: impl Fn(&BucketRange) -> Tensor<B, 1>,
    sets: &[Vec<BucketRange>],
) -> Vec<f64> {
    let sums = sets.iter().map(|set| {
        let filled = set.iter().filter(|part| !part.range.is_empty());
        let sum = sum_of_squares(filled.map(&tensor).collect());
        sum.unwrap_or_else(|error| panic!("{error}"))
    });
    let sums: Vec<Option<Tensor<B, 1>>> = sums.collect();
    let there: Vec<Tensor<B, 1>> = sums.iter().flatten().cloned().collect();
    let mut values = if there.is_empty() {
        Vec::new()
    } else {
        Tensor::cat(there, 0).into_data().iter::<f64>().collect()
    }
    .into_iter();
    let value_of = |sum: &Option<_>| sum.as_ref().and_then(|_| values.next()).unwrap_or(0.0);
    sums.iter().map(value_of).collect()
}

/// Sums tensors, none of them empty, over a group, all in one call.
pub(super) fn sum_over<B: CollectiveBackend>(
    tensors: Vec<Tensor<B, 1>>,
    group: &ProcessGroup,
) -> Result<Vec<Tensor<B, 1>>, CollectiveError> {
    if tensors.is_empty() {
        return Ok(Vec::new());
    }
    let lengths: Vec<usize> = tensors.iter().map(|tensor| tensor.dims()[0]).collect();
    let together = primitive(Tensor::cat(tensors, 0));
    let sum: Tensor<B, 1> = float(B::run(together, TensorCall::AllReduce(ReduceOp::Sum), group)?);
    let mut end = 0;
    let part_of = |length: usize| {
        end += length;
        part(sum.clone(), end - length..end)
    };
    Ok(lengths.into_iter().map(part_of).collect())
}
