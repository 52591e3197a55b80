//! `State`: the buckets of a [`Reducer`](super::Reducer), what has come of them, and what is on its way.

use std::collections::HashMap;

use burn::tensor::{DType, Device, Int, Tensor};
use cubecl_kernels::accumulate::{GradientPlace, GradientSums, VectorSums};
use cubecl_kernels::embedding::TokenRange;

use super::super::bucket::BucketLayout;
use super::super::flat::{FlatBuffer, NonFinite, PendingFlat};
use super::Reduction;
use crate::collectives::{CollectiveError, Pending, has_device_memory, unwrap_or_unwind};

pub(super) struct State {
    pub(super) layout: BucketLayout,
    pub(super) dtype: DType,
    pub(super) device: Device,
    pub(super) reduction: Reduction,
    pub(super) buckets: Vec<Bucket>,
    /// By bucket, where each rank keeps its shards only: the sum over the passes of the step, absent before the first.
    pub(super) shards: Vec<Option<FlatBuffer>>,
    /// What the backward pass at hand gave to reused parameters: a pass may reach one twice, in graphs of its own, and
    /// the sum must have the bits that one graph gives it.
    pub(super) reused: HashMap<usize, Tensor<1>>,
    /// `true` if a parameter has received a gradient in this step.
    pub(super) received: Vec<bool>,
    /// `true` if what its bucket holds now has a gradient of a parameter.
    pub(super) written: Vec<bool>,
    /// `true` if products, or rows of embeddings, were added to a parameter's gradient in this step.
    pub(super) multiplied: Vec<bool>,
    /// `true` if a parameter has received a gradient of the micro-batch that its bucket is reduced in.
    pub(super) completed: Vec<bool>,
    /// Parameters that each bucket still waits for in this micro-batch.
    pub(super) missing: Vec<usize>,
    pub(super) is_last_micro_batch: bool,
    /// Buckets are launched in the order of their numbers, the same on every rank.
    pub(super) launched: usize,
    /// Those of them that have been added to their shards.
    pub(super) folded: usize,
    /// Which parameters have received a gradient on some rank, then the maxima of the ranks' progress; launched after
    /// the buckets.
    pub(super) presence: Option<Pending<Vec<i32>>>,
    /// Which parameters received a gradient that is not finite.
    pub(super) non_finite: NonFinite,
}

pub(super) enum Bucket {
    /// Has no memory before the first gradient of a pass comes, where each rank keeps its shards only.
    Empty,
    Filling(FlatBuffer),
    Reducing(PendingFlat),
    /// Between steps, until parameters that took its memory have come, and for the blink of a state change.
    Away,
}

impl State {
    pub(super) fn begin_step(&mut self) {
        self.reused.clear();
        self.received.fill(false);
        self.begin_buckets();
        self.shards.fill_with(|| None);
        self.is_last_micro_batch = false;
        self.presence = None;
        self.take_non_finite();
    }

    /// Begins to fill all buckets.
    pub(super) fn begin_buckets(&mut self) {
        self.written.fill(false);
        self.multiplied.fill(false);
        self.completed.fill(false);
        self.missing = self.layout.parameters_per_bucket();
        self.launched = 0;
        self.folded = 0;
    }

    /// Returns whether each rank keeps its shards only, to which every pass is reduced.
    pub(super) fn keeps_shards(&self) -> bool {
        self.reduction.sharding.shards_gradients()
    }

    /// Reduces what has not been reduced of a pass, and begins the next.
    pub(super) fn reduce_pass(&mut self) -> Result<(), CollectiveError> {
        while self.launched < self.buckets.len() {
            self.launch_next();
        }
        self.fold(0)?;
        self.begin_buckets();
        Ok(())
    }

    /// Waits for the buckets that were launched first, until no more than `most` are being reduced, and adds them to
    /// their shards. All of them, before an error is returned.
    pub(super) fn fold(&mut self, most: usize) -> Result<(), CollectiveError> {
        let mut result = Ok(());
        while self.launched - self.folded > most {
            let number = self.folded;
            self.folded += 1;
            let Bucket::Reducing(pending) = std::mem::replace(&mut self.buckets[number], Bucket::Empty) else {
                unreachable!("a bucket that was launched is being reduced");
            };
            match (pending.wait().map(FlatBuffer::into_shard), &mut self.shards[number]) {
                (Ok(shard), Some(sum)) => sum.add(shard),
                (Ok(shard), sum @ None) => *sum = Some(shard),
                (Err(error), _) => result = result.and(Err(error)),
            }
        }
        result
    }

    /// The shards of a step whose passes have been reduced.
    pub(super) fn take_shards(&mut self) -> Result<Vec<FlatBuffer>, CollectiveError> {
        let shards = self.shards.iter_mut();
        Ok(shards
            .map(|shard| shard.take().expect("each pass has reduced all buckets"))
            .collect())
    }

    /// Waits for all buckets.
    pub(super) fn take_buckets(&mut self) -> Result<Vec<FlatBuffer>, CollectiveError> {
        let buckets = self.buckets.iter_mut();
        let pending: Vec<PendingFlat> = buckets
            .map(|bucket| match std::mem::replace(bucket, Bucket::Away) {
                Bucket::Reducing(pending) => pending,
                _ => unreachable!("every bucket was launched"),
            })
            .collect();
        let results: Vec<_> = pending.into_iter().map(PendingFlat::wait).collect();
        results.into_iter().collect()
    }

    pub(super) fn take_back(&mut self, number: usize, mut buffer: FlatBuffer) {
        buffer.forget_step();
        self.buckets[number] = Bucket::Filling(buffer);
    }

    /// Forgets which gradients were not finite, and returns it.
    pub(super) fn take_non_finite(&mut self) -> NonFinite {
        std::mem::replace(&mut self.non_finite, NonFinite::none(self.received.len()))
    }

    /// Adds the gradients of the pass at hand to those of reused parameters.
    pub(super) fn add_reused(&mut self) {
        for (index, gradient) in std::mem::take(&mut self.reused) {
            self.add(index, gradient);
        }
    }

    pub(super) fn add(&mut self, index: usize, gradient: Tensor<1>) {
        let place = self.next_place(index);
        let mut non_finite = self.take_non_finite();
        self.filling(index).accumulate(gradient, place, &mut non_finite);
        self.non_finite = non_finite;
    }

    /// Adds a product to the gradient of a parameter that [takes products](Self::takes_products).
    pub(super) fn add_product(&mut self, index: usize, a: Tensor<2>, b: Tensor<2>) {
        let slot = self.layout.slots()[index];
        let length = a.dims()[0] * b.dims()[1];
        assert_eq!(
            length, slot.len,
            "a product of {length} elements for parameter {index} of {}",
            slot.len
        );
        let place = self.next_place(index);
        self.multiplied[index] = true;
        self.filling(index).add_product(a, b, place);
    }

    /// Lends the sums of parameters, all in one bucket, to a kernel that adds to them.
    pub(super) fn lend(&mut self, parameters: &[usize], add: &mut dyn FnMut(VectorSums) -> GradientSums) {
        let places = parameters.iter().map(|&index| self.next_place(index)).collect();
        let mut non_finite = self.take_non_finite();
        self.filling(parameters[0]).lend(places, add, &mut non_finite);
        self.non_finite = non_finite;
    }

    /// Adds the gradients of embeddings to that of their table, a parameter that
    /// [takes products](Self::takes_products).
    pub(super) fn add_rows(&mut self, index: usize, tokens: Tensor<1, Int>, gradient: Tensor<2>, range: TokenRange) {
        let (slot, place) = (self.layout.slots()[index], self.next_place(index));
        self.multiplied[index] = true;
        let bucket = self.filling(index);
        if place.is_first {
            // Rows of tokens that do not come are not written.
            bucket.clear(slot.offset, slot.len);
        }
        bucket.add_rows(slot.offset, tokens, gradient, range);
    }

    /// Returns whether parts of a parameter's gradient may come before the graph has summed them, in the memory of a
    /// device: not those of a single number, which looks like the zero that the graph gets in their place.
    pub(super) fn takes_products(&self, index: usize) -> bool {
        has_device_memory(&self.device) && self.layout.slots()[index].len > 1
    }

    /// Returns where a parameter's next gradient of this step goes.
    pub(super) fn next_place(&mut self, index: usize) -> GradientPlace {
        self.received[index] = true;
        GradientPlace {
            offset: self.layout.slots()[index].offset,
            parameter: index,
            is_first: !std::mem::replace(&mut self.written[index], true),
        }
    }

    /// The bucket of a parameter whose gradient has come.
    pub(super) fn filling(&mut self, index: usize) -> &mut FlatBuffer {
        let number = self.layout.slots()[index].bucket;
        if matches!(self.buckets[number], Bucket::Empty) && number >= self.launched {
            self.buckets[number] = Bucket::Filling(self.empty(number));
        }
        match &mut self.buckets[number] {
            Bucket::Filling(buffer) => buffer,
            _ => panic!(
                "a gradient of parameter {index} came after its bucket was reduced: a hooked module serves one \
                 forward pass only, and a parameter that several segments of a stage use must be declared as reused"
            ),
        }
    }

    /// Memory for a pass's gradients of a bucket.
    pub(super) fn empty(&self, number: usize) -> FlatBuffer {
        FlatBuffer::zeros(self.layout.padded_length(number), self.dtype, &self.device)
    }

    /// Counts a parameter whose gradient of the pass at hand has come; with the last of the step, launches what is
    /// full.
    pub(super) fn complete(&mut self, index: usize) {
        let bucket = self.layout.slots()[index].bucket;
        let is_reduced = self.is_last_micro_batch || self.keeps_shards();
        if !is_reduced || std::mem::replace(&mut self.completed[index], true) {
            return;
        }
        self.missing[bucket] -= 1;
        if !self.reduction.overlaps && !self.keeps_shards() {
            return;
        }
        while self.launched < self.layout.num_early() && self.missing[self.launched] == 0 {
            self.launch_next();
        }
    }

    /// Notes which gradients of a bucket that were added up of products are not finite: nothing has looked at these.
    pub(super) fn note_products(&mut self, bucket: usize) {
        let slots = self.layout.slots().iter().enumerate();
        let multiplied = slots.filter(|(index, slot)| slot.bucket == bucket && self.multiplied[*index]);
        let (parameters, ranges): (Vec<usize>, Vec<_>) = multiplied.map(|(index, slot)| (index, slot.range())).unzip();
        if let Some(&first) = parameters.first() {
            let mut non_finite = self.take_non_finite();
            self.filling(first).note(parameters, ranges, &mut non_finite);
            self.non_finite = non_finite;
        }
    }

    pub(super) fn launch_next(&mut self) {
        let number = self.launched;
        self.note_products(number);
        let buffer = match std::mem::replace(&mut self.buckets[number], Bucket::Away) {
            Bucket::Filling(buffer) => buffer,
            Bucket::Empty => self.empty(number),
            _ => unreachable!("a bucket is launched once"),
        };
        let group = self.reduction.group.labelled(&format!("bucket {number}"));
        self.buckets[number] = Bucket::Reducing(if self.reduction.sharding.shards_optimizer() {
            buffer.reduce_scatter_start(self.reduction.op, &group)
        } else {
            buffer.all_reduce_start(self.reduction.op, &group)
        });
        self.launched += 1;
        if self.keeps_shards() {
            // One is filled while one at most is being reduced.
            unwrap_or_unwind(self.fold(usize::from(self.reduction.overlaps)));
        }
    }

    /// Buffers are reused: what received nothing still holds the last step's gradient.
    pub(super) fn clear_missing(&mut self) {
        for (slot, written) in self.layout.slots().iter().zip(&self.written) {
            if let (false, Bucket::Filling(buffer)) = (written, &mut self.buckets[slot.bucket]) {
                buffer.clear(slot.offset, slot.len);
            }
        }
    }
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reducer")
            .field("buckets", &self.layout.lengths())
            .field("dtype", &self.dtype)
            .field("reduction", &self.reduction)
            .field("launched", &self.launched)
            .finish()
    }
}
